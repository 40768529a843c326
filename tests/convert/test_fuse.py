import copy
import subprocess
import sys
from collections import OrderedDict

import pytest
import torch
from torch import nn
from torch.nn.utils.parametrizations import spectral_norm, weight_norm

from relucid.convert import fuse, to_crelu, to_geometric
from relucid.models import create
from relucid.nn import AVR, CReLU, GeometricConv2d, GeometricLinear, MeanNorm

from .networks import example, residual, trained_a_little


def close(fused, model, x, tolerance=1e-10):
    with torch.no_grad():
        return (fused(x) - model(x)).abs().max() <= tolerance * model(x).abs().max()


def ours(model):
    return {type(m).__name__ for m in model.modules() if type(m).__module__.startswith("relucid.nn")}


def with_negative_scales(model):
    for module in model.modules():
        if isinstance(module, GeometricConv2d | GeometricLinear) and module.scale is not None:
            module.scale.data.mul_(torch.where(torch.arange(len(module.scale)) % 3 == 0, -1.5, 0.5))
        if isinstance(module, MeanNorm):
            nn.init.normal_(module.running_mean)
    return model.double().eval()


class Pooled(nn.Module):
    """Negative scales meet average pooling, max pooling, a norm, a sum, a concatenation."""

    def __init__(self, activation):
        super().__init__()
        self.convs = nn.ModuleList(
            GeometricConv2d(c, 6, 3, padding=1, activation=activation) for c in (3, 6, 6, 6)
        )
        self.norm, self.conv = MeanNorm(6), nn.Conv2d(6, 6, 3)
        self.bn, self.fc = nn.BatchNorm2d(6), GeometricLinear(12 * 4, 5)

    def forward(self, x):
        x = nn.functional.avg_pool2d(self.convs[0](x), 2)
        y = self.bn(self.convs[1](x)) + x
        z = nn.functional.max_pool2d(self.convs[2](self.norm(y)), 3, 1, 1)
        z = torch.cat([self.convs[3](z), x], 1)
        return self.fc(nn.functional.adaptive_avg_pool2d(z, 2).flatten(1))


@pytest.mark.parametrize(
    "activation", [nn.ReLU(), torch.relu, AVR(), nn.LeakyReLU(0.1), nn.Tanh(), torch.sigmoid]
)
def test_scales_of_either_sign_move_forward(activation):
    model, x = with_negative_scales(Pooled(activation)), example()
    fused = fuse(model, x).model
    assert close(fused, model, x)
    assert ours(fused) <= {"AVR"}


def test_crelu_inside_a_geometric_layer_comes_out():
    layers = (
        GeometricConv2d(3, 4, 3, activation=CReLU()),
        GeometricConv2d(8, 6, 3, activation=CReLU(paired=2)),
    )
    model = with_negative_scales(nn.Sequential(*layers, nn.Flatten(), nn.Linear(8 * 16, 5)))
    fused = fuse(model, example()).model
    assert close(fused, model, example())
    assert ours(fused) == {"CReLU"}


@pytest.mark.parametrize("norm", ["none", "batch", "mean", "input_mean"])
@pytest.mark.parametrize("weights", ["standard", "geometric"])
@pytest.mark.parametrize("name, choices", [("vgg6", {}), ("resnet20", {"propagation": "heavy_ball"})])
def test_every_design_becomes_plain(name, weights, norm, choices):
    model = create(name, num_classes=5, width=0.05, weights=weights, norm=norm, **choices)
    model, x = with_negative_scales(model), example()
    fused = fuse(model, x).model
    assert close(fused, model, x)
    assert ours(fused) <= {"Propagation", "HeavyBall"}


def test_imn_before_a_padded_convolution_becomes_a_batch_norm_and_elsewhere_part_of_the_layer():
    padded = with_negative_scales(
        nn.Sequential(nn.Conv2d(3, 4, 1), nn.ReLU(), MeanNorm(4), nn.Conv2d(4, 2, 3, 1, 1))
    )
    bare = with_negative_scales(nn.Sequential(nn.Conv2d(3, 4, 1), nn.ReLU(), MeanNorm(4), nn.Conv2d(4, 2, 3)))
    for model, norms in (padded, 1), (bare, 0):
        fused = fuse(model, example()).model
        assert sum(isinstance(m, nn.BatchNorm2d) for m in fused.modules()) == norms
        assert close(fused, model, example())


@pytest.mark.parametrize("parametrization", [weight_norm, spectral_norm])
def test_parametrizations_become_weights(parametrization):
    model = nn.Sequential(parametrization(nn.Conv2d(3, 4, 3)), nn.ReLU(), nn.Conv2d(4, 2, 1)).double().eval()
    fused = fuse(model, example()).model
    assert close(fused, model, example())
    assert "0.weight" in fused.state_dict()


def test_a_network_made_geometric_has_its_own_layers_again():
    model, x = trained_a_little(residual()), example()
    expected = fuse(model, x).model
    fused = fuse(to_geometric(model, x).model, x).model
    assert {n.replace("layer.", "", n.startswith("0.")): p.shape for n, p in fused.named_parameters()} == {
        n: p.shape for n, p in expected.named_parameters()
    }
    assert [str(m) for m in fused.modules() if isinstance(m, nn.Conv2d)] == [
        str(m) for m in expected.modules() if isinstance(m, nn.Conv2d)
    ]


def test_training_until_scales_are_negative_then_fusing_changes_nothing():
    def convolution(channels, **options):
        return GeometricConv2d(channels, 16, 3, activation=nn.ReLU(), init="glorot", **options)

    model = nn.Sequential(
        *(
            convolution(3),
            nn.MaxPool2d(2),
            MeanNorm(16),
            convolution(16, padding=1),
            nn.AvgPool2d(3),
            nn.Flatten(),
        ),
        *(
            MeanNorm(16),
            GeometricLinear(16, 30, activation=nn.ReLU(), init="glorot"),
            MeanNorm(30),
            nn.Linear(30, 1),
        ),
    )
    x, y = torch.randn(64, 3, 8, 8), 5 * torch.randn(64, 1)
    for rate, noise in (0.2, 5.0), (0.03, 0.0):  # with noise for targets first, which drives scales through 0
        optimizer = torch.optim.Adam(model.parameters(), rate)
        for _ in range(60):
            optimizer.zero_grad()
            target = noise * torch.randn_like(y) if noise else y
            nn.functional.l1_loss(model(x), target).backward()
            optimizer.step()
    negative = [int((model[k].scale < 0).sum()) for k in (0, 3, 7)]
    assert all(negative)
    assert model.eval()(x).std() > 0.5
    assert fuse(model, x).relative_error < 1e-5


def test_a_fused_network_is_saved_and_loaded_without_this_package(tmp_path):
    model, x = trained_a_little(residual(), torch.float32), example(torch.float32)
    fused = fuse(to_geometric(model, x).model, x).model
    torch.save((fused, x, fused(x).detach()), tmp_path / "fused.pt")
    code = f"""
import sys
sys.modules["relucid"] = None
import torch
model, x, y = torch.load({str(tmp_path / "fused.pt")!r}, weights_only=False)
torch.testing.assert_close(model(x), y)
"""
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.slow
@pytest.mark.parametrize("conversion", [to_geometric, to_crelu])
@pytest.mark.filterwarnings("ignore")  # of the exporter's own making
def test_a_fused_network_runs_in_onnxruntime(conversion, tmp_path):
    pytest.importorskip("onnxscript", reason="needs relucid[onnx]")
    runtime = pytest.importorskip("onnxruntime", reason="needs relucid[onnx]")
    model, x = trained_a_little(residual(), torch.float32), example(torch.float32)
    fused = fuse(conversion(model, x).model, x).model.eval()
    torch.onnx.export(fused, (x,), tmp_path / "net.onnx", dynamo=True, verbose=False)
    session = runtime.InferenceSession(tmp_path / "net.onnx")
    (y,) = session.run(None, {session.get_inputs()[0].name: x.numpy()})
    assert torch.allclose(torch.from_numpy(y), fused(x), rtol=1e-4, atol=1e-5)


@pytest.mark.filterwarnings("ignore:fuse changes no layer")
def test_a_network_that_draws_random_numbers_draws_the_same_ones():
    class Noisy(nn.Module):
        def forward(self, x):
            return x.relu() + torch.rand_like(x) + torch.rand(3)

    x, net = torch.randn(4, 3), fuse(Noisy(), torch.randn(4, 3)).model
    torch.manual_seed(1)
    expected = Noisy()(x)
    torch.manual_seed(1)
    assert torch.equal(net(x), expected)


def test_the_mode_of_a_parametrized_layer_is_kept():
    model = nn.Sequential(weight_norm(nn.Linear(3, 3)), nn.ReLU(), nn.Linear(3, 2)).train()
    before = copy.deepcopy(model)
    assert fuse(model, torch.randn(2, 3)).model.training
    assert repr(model) == repr(before)


def test_a_layer_is_reported_by_its_own_name_even_if_that_is_layer():
    block = nn.Sequential(OrderedDict(layer=nn.Linear(3, 4), norm=nn.BatchNorm1d(4)))
    fused = fuse(nn.Sequential(OrderedDict(block=block, out=nn.Linear(4, 2))).eval(), torch.randn(5, 3))
    assert [(each.name, each.status) for each in fused.changes] == [
        ("block.layer", "changed"),
        ("out", "kept"),
    ]
