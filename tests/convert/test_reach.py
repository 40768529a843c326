"""Networks as people write them: norms that contain their activation, constants, stochastic depth, transformers."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from relucid.convert import check, fuse, load, save, to_crelu, to_geometric, to_heavy_ball
from relucid.nn import CReLU, GeometricLinear

from .trial import faults


class NormAct(nn.BatchNorm2d):
    """A batch norm, a dropout that is usually nothing, an activation, in one module."""

    def __init__(self, channels, act=True, momentum=0.1):
        super().__init__(channels, momentum=momentum)
        self.drop, self.act = nn.Identity(), nn.ReLU(inplace=True) if act else nn.Identity()

    def forward(self, x):
        factor = 0.0 if self.momentum is None else self.momentum
        if self.training and self.track_running_stats:
            self.num_batches_tracked.add_(1)
            if self.momentum is None:
                factor = 1.0 / float(self.num_batches_tracked)
        batch = self.training or (self.running_mean is None and self.running_var is None)
        keep = not self.training or self.track_running_stats
        mean, variance = (self.running_mean, self.running_var) if keep else (None, None)
        x = F.batch_norm(x, mean, variance, self.weight, self.bias, batch, factor, self.eps)
        return self.act(self.drop(x))


class FrozenNorm(nn.BatchNorm2d):
    """Statistics that never change, in training neither."""

    def forward(self, x):
        return F.batch_norm(
            x, self.running_mean, self.running_var, self.weight, self.bias, False, 0.0, self.eps
        )


class DropPath(nn.Module):
    """Stochastic depth: a branch is dropped sample by sample."""

    def forward(self, x):
        if not self.training:
            return x
        keep = x.new_empty((x.shape[0],) + (1,) * (x.ndim - 1)).bernoulli_(0.8)
        return x * keep.div_(0.8)


class Residual(nn.Module):
    def __init__(self, channels, norm=NormAct):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(channels, channels, 3, padding=1, bias=False), norm(channels)
        self.conv2, self.bn2 = (
            nn.Conv2d(channels, channels, 3, padding=1, bias=False),
            nn.BatchNorm2d(channels),
        )
        self.path, self.act = DropPath(), nn.ReLU(inplace=True)

    def forward(self, x):
        y = self.bn2(self.conv2(self.bn1(self.conv1(x))))
        return self.act(self.path(y) + x)


def network(norm=NormAct):
    blocks = (Residual(6, norm), Residual(6, norm))
    return nn.Sequential(nn.Conv2d(3, 6, 3), *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(6, 4))


def assert_same(model, net, *shapes, modes=(False, True)):
    for shape in shapes:
        x = torch.randn(shape, dtype=torch.float64)
        for training in modes:
            assert faults(model, net, x, training) == []


def changed(conversion):
    return {change.name for change in conversion.changes if change.status == "changed"}


@pytest.mark.parametrize("conversion", [to_crelu, to_geometric, to_heavy_ball, fuse])
def test_a_norm_that_contains_its_activation_is_a_norm_and_an_activation(conversion):
    model = network().double()
    found = conversion(model, torch.randn(2, 3, 8, 8, dtype=torch.float64))
    modes = (False,) if conversion is fuse else (False, True)
    assert_same(model, found.model, (5, 3, 8, 8), (3, 3, 11, 9), modes=modes)
    if conversion is to_crelu:
        assert {"1.bn1.act", "2.bn1.act", "1.conv2"} <= changed(found)
        assert isinstance(found.model.get_submodule("1.bn1.act"), CReLU)
        assert set(model.state_dict()) == set(found.model.state_dict())


def test_a_norm_that_is_none_in_training_is_kept_as_it_is():
    model = network(FrozenNorm).double()
    conversion = to_crelu(model, torch.randn(2, 3, 8, 8, dtype=torch.float64))
    assert_same(model, conversion.model, (5, 3, 8, 8))
    assert "1.bn2" not in changed(conversion)


def test_a_norm_without_momentum_averages_as_before():
    model = network(lambda c: NormAct(c, momentum=None)).double()
    assert_same(model, to_crelu(model, torch.randn(2, 3, 8, 8).double()).model, (5, 3, 8, 8))


def test_training_is_compared_on_more_than_one_image(monkeypatch):
    """Norms centre one image on their shift: a gate that averages it would rectify rounding errors."""
    batches = []

    def run(model, example, training, _run=check.run, **options):
        batches.append((training, len(example)))
        return _run(model, example, training, **options)

    monkeypatch.setattr(check, "run", run)
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Conv2d(4, 2, 3))
    to_crelu(model.double(), torch.randn(2, 3, 8, 8, dtype=torch.float64))
    assert (False, 1) in batches
    assert {size for training, size in batches if training} == {2}


class Attention(nn.Module):
    """Dropout inside scaled dot product attention, which is on in training only."""

    def __init__(self):
        super().__init__()
        self.qkv, self.fc1, self.fc2 = nn.Linear(8, 24), nn.Linear(8, 16), nn.Linear(16, 8)
        self.attend = Attend()

    def forward(self, x):
        x = x + self.attend(*self.qkv(x).chunk(3, -1))
        return x + self.fc2(F.relu(self.fc1(x)))


class Attend(nn.Module):
    def forward(self, q, k, v):
        return F.scaled_dot_product_attention(q, k, v, dropout_p=0.1 if self.training else 0.0)


def test_dropout_in_attention_is_left_alone_and_feed_forward_blocks_are_converted():
    model, x = Attention().double(), torch.randn(2, 5, 8, dtype=torch.float64)
    conversion = to_crelu(model, x)
    assert {"fc2", "relu"} <= changed(conversion)
    assert_same(model, conversion.model, (3, 7, 8), modes=(False,))
    net = conversion.model.train()
    assert not torch.equal(net(x), net(x))


@pytest.mark.parametrize("norm_first", [False, True])
def test_feed_forward_blocks_of_a_transformer_encoder_are_converted(norm_first):
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True, norm_first=norm_first)
    encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
    model, x = nn.Sequential(encoder, nn.Linear(8, 3)).double(), torch.randn(2, 5, 8, dtype=torch.float64)
    conversion = to_geometric(model, x)
    assert isinstance(conversion.model.get_submodule("0.layers.1.linear1"), GeometricLinear)
    assert isinstance(conversion.model.get_submodule("0.layers.0.self_attn"), nn.MultiheadAttention)
    for found in conversion, to_crelu(model, x), fuse(model, x):
        assert_same(model, found.model, (3, 7, 8), modes=(False,))


@pytest.mark.filterwarnings("ignore:enable_nested_tensor")
@pytest.mark.parametrize("norm_first", [False, True])
def test_feed_forward_blocks_of_a_transformer_with_a_decoder_are_converted(norm_first):
    class Translation(nn.Module):
        def __init__(self):
            super().__init__()
            options = {"dropout": 0.0, "batch_first": True, "norm_first": norm_first}
            self.transformer, self.head = nn.Transformer(8, 2, 1, 2, 16, **options), nn.Linear(8, 3)

        def forward(self, x):
            mask = torch.triu(torch.ones(x.shape[1], x.shape[1], dtype=torch.bool), 1)
            return self.head(self.transformer(x, x.flip(1), tgt_mask=mask))

    model, x = Translation().double(), torch.randn(2, 5, 8, dtype=torch.float64)
    conversion = to_crelu(model, x)
    assert isinstance(conversion.model.get_submodule("transformer.decoder.layers.1.relu"), CReLU)
    assert isinstance(
        conversion.model.get_submodule("transformer.decoder.layers.0.multihead_attn"), nn.MultiheadAttention
    )
    assert_same(model, conversion.model, (3, 7, 8))
    assert_same(model, to_geometric(model, x).model, (3, 7, 8))


class Constants(nn.Module):
    """Tensors made in forward, lengths, integers, keyword arguments."""

    def __init__(self):
        super().__init__()
        self.fc1, self.fc2 = nn.Linear(3, 4), nn.Linear(4, 2)

    def forward(self, x):
        x = torch.as_tensor(x)
        assert isinstance(x, torch.Tensor)
        y = self.fc1(input=x) * torch.tensor(2.0) + torch.arange(4) / int(x.shape[0])
        z = self.fc2(F.relu(y)) @ torch.eye(2, dtype=x.dtype) / math.sqrt(len(x))
        return z + torch.ones(x.shape[0], 1, dtype=x.dtype) + torch.zeros(len(x), 2, dtype=x.dtype)


@pytest.mark.parametrize("conversion", [to_crelu, to_geometric, fuse])
def test_constants_made_in_forward_follow_the_size_of_the_batch(conversion):
    model = Constants().double()
    found = conversion(model, torch.randn(2, 3, dtype=torch.float64))
    assert_same(model, found.model, (5, 3), (1, 3))
    assert "constant_0" not in found.model.state_dict()


def test_fuse_looks_at_evaluation_only():
    class Auxiliary(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc1, self.bn, self.fc2, self.aux = (
                nn.Linear(3, 4),
                nn.BatchNorm1d(4),
                nn.Linear(4, 2),
                nn.Linear(4, 2),
            )

        def forward(self, x):
            y = self.bn(self.fc1(x)).relu()
            return (self.fc2(y), self.aux(y)) if self.training else self.fc2(y)

    model = Auxiliary().double()
    x = torch.randn(4, 3, dtype=torch.float64)
    fused = fuse(model, x)
    assert_same(model, fused.model, (7, 3), modes=(False,))
    assert not any(isinstance(m, nn.BatchNorm1d) for m in fused.model.modules())


def test_arguments_that_may_be_left_out_may_still_be():
    class Masked(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc1, self.fc2 = nn.Linear(3, 4), nn.Linear(4, 2)

        def forward(self, x, mask=None, scale=2.0):
            y = self.fc2(self.fc1(x).relu()) * scale
            return y if mask is None else y * mask

    model, x = Masked(), torch.randn(4, 3)
    net = to_crelu(model, x).model
    assert torch.equal(net(x), model(x))
    assert torch.equal(net(x, mask=None, scale=2.0), model(x))
    for other in {"mask": torch.ones(4, 2)}, {"scale": 3.0}:
        with pytest.raises(AssertionError, match="converted for an example without"):
            net(x, **other)


def test_center_goes_by_the_names_of_arguments():
    class Two(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc1, self.fc2 = nn.Linear(3, 4), nn.Linear(4, 2)

        def forward(self, x, shift):
            return self.fc2(self.fc1(x).relu() + 100 * shift)

    batch = {"shift": torch.ones(4, 4), "x": torch.zeros(4, 3)}
    net = to_geometric(Two(), batch, center=[batch], layers=["fc1", "fc2"]).model
    assert net.fc2_center.running_mean.min() > 90


@pytest.mark.slow
def test_a_hugging_face_model_keeps_its_configuration(tmp_path):
    transformers = pytest.importorskip("transformers")
    config = transformers.T5Config(vocab_size=100, d_model=16, d_kv=8, d_ff=32, num_layers=1, num_heads=2)
    model = transformers.T5EncoderModel(config).eval()
    x = {"input_ids": torch.randint(3, 90, (2, 7))}
    conversion = to_crelu(model, x)
    net = conversion.model
    assert net.config.d_ff == 32
    net.save_pretrained(tmp_path / "pretrained")
    assert (tmp_path / "pretrained" / "config.json").exists()
    save(conversion, tmp_path / "saved")
    back = load(tmp_path / "saved").model(**x)
    assert type(back) is type(model(**x))
    assert torch.allclose(back.last_hidden_state, model(**x).last_hidden_state, atol=1e-6)
