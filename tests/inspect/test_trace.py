import copy
import warnings

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils.parametrizations import weight_norm

from relucid.inspect._trace import trace
from relucid.inspect.execution import running
from relucid.inspect.recorder import DATA
from relucid.nn import GeometricConv2d, GeometricLinear, geometric
from relucid.nn.activation import AVR, CReLU, crelu
from relucid.nn.meannorm import MeanNorm

IMAGE = torch.randn(2, 3, 8, 8)


class Net(nn.Module):
    """A network from its parts and a forward function of (self, x)."""

    def __init__(self, forward, **parts):
        super().__init__()
        self.function = forward
        for name, part in parts.items():
            setattr(self, name, part)

    def forward(self, *args, **kwargs):
        return self.function(self, *args, **kwargs)


def conv(**arguments):
    return nn.Conv2d(3, 4, 3, **arguments)


def trained(norm):
    for tensor in (norm.weight.data, norm.bias.data, norm.running_mean):
        tensor.normal_()
    norm.running_var.uniform_(0.5, 2)
    return norm


def kinds(model, example=IMAGE):
    """{rectification: (kind, [(layer, *what stands between)])}"""
    return {
        r.name: (r.kind, [(s.name, *s.through) for s in r.sources]) for r in trace(model, example).rectified
    }


RECTIFICATIONS = {
    "F.relu": (F.relu, "relu"),
    "torch.relu": (torch.relu, "relu"),
    "F.relu in place": (lambda x: F.relu(x, inplace=True), "relu"),
    "x.relu()": (lambda x: x.relu(), "relu"),
    "x.relu_()": (lambda x: x.relu_(), "relu"),
    "clamp(min=0)": (lambda x: x.clamp(min=0), "relu"),
    "clamp(0)": (lambda x: torch.clamp(x, 0), "relu"),
    "clamp_min_(0)": (lambda x: x.clamp_min_(0), "relu"),
    "clip": (lambda x: torch.clip(x, min=0.0), "relu"),
    "threshold": (lambda x: F.threshold(x, 0, 0), "relu"),
    "maximum": (lambda x: torch.maximum(x, torch.zeros_like(x)), "relu"),
    "maximum, zero first": (lambda x: torch.maximum(torch.zeros(()), x), "relu"),
    "nn.ReLU": (nn.ReLU(), "relu"),
    "nn.ReLU in place": (nn.ReLU(inplace=True), "relu"),
    "ReLU6": (nn.ReLU6(), "clipped"),
    "clamp(0, 1)": (lambda x: x.clamp(0, 1), "clipped"),
    "clamp(-1, 1)": (lambda x: x.clamp(-1, 1), "clipped"),
    "Hardtanh": (nn.Hardtanh(), "clipped"),
    "F.hardtanh in place": (lambda x: F.hardtanh(x, -2, 2, inplace=True), "clipped"),
    "LeakyReLU": (nn.LeakyReLU(), "leaky"),
    "F.leaky_relu in place": (lambda x: F.leaky_relu(x, 0.2, inplace=True), "leaky"),
    "PReLU": (nn.PReLU(4), "leaky"),
    "RReLU": (nn.RReLU(), "leaky"),
    "abs": (torch.abs, "avr"),
    "AVR": (AVR(), "avr"),
    "CReLU": (CReLU(), "crelu"),
    "crelu": (crelu, "crelu"),
    "two ReLUs": (lambda x: torch.cat([F.relu(x), F.relu(-x)], 1), "crelu"),
    "two ReLUs, negative first": (lambda x: torch.cat([F.relu(-x), F.relu(x)], 1), "crelu"),
    "CReLU, leaky": (CReLU(activation=nn.LeakyReLU(0.1)), "crelu"),
    "ReLU of both": (lambda x: F.relu(torch.cat([x, -x], 1)), "crelu"),
}


@pytest.mark.parametrize("name", RECTIFICATIONS)
def test_every_way_to_write_a_rectification_is_found_once(name):
    activation, kind = RECTIFICATIONS[name]
    net = Net(
        lambda self, x: (
            self.act(self.conv(x)) if isinstance(activation, nn.Module) else activation(self.conv(x))
        ),
        conv=conv(),
    )
    if isinstance(activation, nn.Module):
        net.act = activation
    (result,) = trace(net, IMAGE).rectified
    assert (result.kind, result.layer, result.units, result.channel_dim) == (kind, "conv", 4, 1)
    assert result.obstacle == ""
    assert result.doubled == (4 if kind == "crelu" else 0)


@pytest.mark.parametrize(
    "activation",
    [
        F.gelu,
        F.elu,
        F.silu,
        torch.tanh,
        F.softplus,
        lambda x: x.clamp(min=1e-6),
        lambda x: x.clamp(-65504, 65504),
    ],
)
def test_other_activations_are_listed_as_not_examined(activation):
    result = trace(Net(lambda self, x: activation(self.conv(x)), conv=conv()), IMAGE)
    assert not result.rectified
    assert [name for name, _ in result.unattributed] == ["conv", "the network"]
    assert "not among the activations" in result.unattributed[1][1]


def test_a_rectification_written_in_an_unknown_way_does_not_pass_in_silence():
    result = trace(Net(lambda self, x: torch.where(self.conv(x) > 0, 1.0, 0.0), conv=conv()), IMAGE)
    assert result.unattributed == (("conv", "feeds gt (not known to rectify)"),)


def geometric_net():
    net = nn.Sequential(
        GeometricConv2d(3, 4, 3, activation=nn.ReLU()),
        MeanNorm(4),
        GeometricConv2d(4, 5, 3, activation=CReLU()),
        GeometricConv2d(10, 6, 2, bias=False),
        MeanNorm(6, bias=True),
        nn.ReLU(),
        nn.Flatten(),
        GeometricLinear(54, 7, activation=torch.relu),
        geometric(nn.Linear(7, 5)),
        nn.ReLU(),
    )
    for layer in (net[0], net[7]):
        layer.scale.data.normal_()  # of either sign
        layer.offset.data.normal_()
    net[4].running_mean.normal_()
    net[4].bias.data.normal_()
    return net


NETWORKS = {
    "plain": (
        lambda: nn.Sequential(
            conv(stride=2, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(64, 5), nn.ReLU()
        ),
        IMAGE,
    ),
    "batch norm": (
        lambda: nn.Sequential(conv(bias=False), trained(nn.BatchNorm2d(4)), nn.ReLU(inplace=True)),
        IMAGE,
    ),
    "batch norm 1d": (
        lambda: nn.Sequential(nn.Linear(8, 5), trained(nn.BatchNorm1d(5)), nn.ReLU()),
        torch.randn(6, 8),
    ),
    "two norms": (lambda: nn.Sequential(conv(), trained(nn.BatchNorm2d(4)), MeanNorm(4), nn.ReLU()), IMAGE),
    "weight norm": (lambda: nn.Sequential(weight_norm(conv()), nn.ReLU()), IMAGE),
    "geometric": (geometric_net, IMAGE),
    "groups, dilation, circular": (
        lambda: nn.Sequential(
            nn.Conv2d(4, 6, 3, groups=2, dilation=2, padding=2, padding_mode="circular"), nn.ReLU()
        ),
        torch.randn(1, 4, 8, 8),
    ),
    "transposed": (
        lambda: nn.Sequential(nn.ConvTranspose2d(4, 6, 3, stride=2, groups=2), nn.ReLU()),
        torch.randn(1, 4, 5, 5),
    ),
    "conv1d": (lambda: nn.Sequential(nn.Conv1d(3, 4, 3), nn.ReLU()), torch.randn(2, 3, 9)),
    "conv3d": (lambda: nn.Sequential(nn.Conv3d(1, 4, 2), nn.ReLU()), torch.randn(2, 1, 4, 4, 4)),
    "linear over positions": (
        lambda: nn.Sequential(nn.Linear(8, 5), nn.ReLU(), nn.Linear(5, 4, bias=False), nn.ReLU()),
        torch.randn(2, 3, 7, 8),
    ),
    "matrix product": (
        lambda: Net(
            lambda s, x: F.relu(x @ s.w + s.b),
            w=nn.Parameter(torch.randn(8, 5)),
            b=nn.Parameter(torch.randn(5)),
        ),
        torch.randn(2, 3, 8),
    ),
    "weight on the left": (
        lambda: Net(lambda s, x: F.relu(s.w @ x), w=nn.Parameter(torch.randn(5, 8))),
        torch.randn(3, 8, 4),
    ),
    "einsum": (
        lambda: Net(
            lambda s, x: F.relu(torch.einsum("nchw,oc->nohw", x, s.w)), w=nn.Parameter(torch.randn(5, 3))
        ),
        IMAGE,
    ),
    "channels last": (
        lambda: Net(lambda s, x: F.relu(s.fc(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)), fc=nn.Linear(3, 5)),
        IMAGE,
    ),
    "gain and shift": (
        lambda: Net(
            lambda s, x: F.relu((s.conv(x) * s.gain - 0.3) / 2),
            conv=conv(),
            gain=nn.Parameter(torch.randn(4, 1, 1)),
        ),
        IMAGE,
    ),
    "negated": (lambda: Net(lambda s, x: F.relu(-s.conv(x)), conv=conv()), IMAGE),
    "reshaped": (lambda: Net(lambda s, x: F.relu(s.conv(x).flatten(2)), conv=conv()), IMAGE),
    "partly doubled": (lambda: nn.Sequential(conv(), CReLU(paired=2)), IMAGE),
}


@pytest.mark.parametrize("name", NETWORKS)
def test_what_is_rectified_is_the_folded_map_of_what_the_layer_receives(name):
    build, example = NETWORKS[name]
    model = build().eval()
    result = trace(model, example)
    assert result.rectified
    inputs, values = {}, {}

    def visit(node, value):
        inputs[node.name] = (node, value.clone())

    def observe(node, value, output):
        values[node.name] = value.clone()

    with running(model) as (run, _):
        run(example, visit, observe)
    for r in result.rectified:
        node, x = inputs[r.sources[0].name]
        weight, bias = r.folded()
        function, args, _ = node.call
        if node.op == "convolution":
            if args[6]:  # back to PyTorch's layout
                weight = weight.unflatten(0, (args[8], -1)).transpose(1, 2).flatten(0, 1)
            expected = function(x, weight, bias, *args[3:]).movedim(1, 0).flatten(1)
        elif args[-1] is DATA:
            expected = (weight @ x).movedim(-2, 0).flatten(1) + bias.unsqueeze(1)
        else:
            expected = weight @ x.flatten(0, -2).T + bias.unsqueeze(1)
        torch.testing.assert_close(r.by_unit(values[r.name]), expected.detach(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    "build, obstacle",
    [
        (
            lambda: Net(lambda s, x: F.relu(s.conv(x) + s.skip(x)), conv=conv(), skip=conv()),
            "a sum of 2 branches",
        ),
        (
            lambda: nn.Sequential(conv(), nn.BatchNorm2d(4, track_running_stats=False), nn.ReLU()),
            "1 has no running statistics",
        ),
        (lambda: nn.Sequential(conv(), nn.GroupNorm(2, 4), nn.ReLU()), "1 comes between"),
        (lambda: nn.Sequential(conv(), nn.InstanceNorm2d(4), nn.ReLU()), "1 has no running statistics"),
        (lambda: nn.Sequential(conv(), nn.AvgPool2d(2), nn.ReLU()), "1 comes between"),
        (
            lambda: Net(
                lambda s, x: F.relu(s.conv(x) + s.place), conv=conv(), place=nn.Parameter(torch.randn(6, 6))
            ),
            "same affine map at every place",
        ),
        (
            lambda: Net(lambda s, x: F.relu(s.conv(x).flatten(1)), conv=conv()),
            "same affine map at every place",
        ),
        (lambda: Net(lambda s, x: s.conv(x).view(-1).relu_(), conv=conv()), "same affine map at every place"),
        (
            lambda: Net(lambda s, x: F.relu(torch.cat([s.conv(x), x[:, :, 1:-1, 1:-1]], 1)), conv=conv()),
            "a sum of 2 branches",
        ),
    ],
)
def test_where_units_have_no_fixed_boundary_the_reason_is_given(build, obstacle):
    (result,) = trace(build(), IMAGE).rectified
    assert obstacle in result.obstacle
    assert result.sources[0].name in ("conv", "0")
    with pytest.raises(ValueError, match="does not rectify a single affine map"):
        result.folded()


def test_max_pooling_does_not_move_a_boundary():
    net = Net(lambda s, x: F.relu(F.max_pool2d(s.conv(x), 2)), conv=conv())
    (result,) = trace(net, IMAGE).rectified
    weight, bias = result.folded()
    assert torch.equal(weight, net.conv.weight)
    assert torch.equal(bias, net.conv.bias)
    assert result.sources[0].through == ("max_pool2d_with_indices",)


class Block(nn.Module):
    """A residual block with one ReLU module for three rectifications, in place."""

    def __init__(self):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(4, 4, 3, padding=1, bias=False), nn.BatchNorm2d(4)
        self.conv2, self.bn2 = nn.Conv2d(4, 4, 3, padding=1, bias=False), nn.BatchNorm2d(4)
        self.down = nn.Conv2d(4, 4, 1)
        self.relu = nn.ReLU(inplace=True)

    def forward(self, x):
        y = self.relu(self.bn1(self.conv1(x)))
        y = self.bn2(self.conv2(y))
        y += x
        y = self.relu(y)
        return self.relu(y + self.down(x))


def test_reused_modules_and_residual_additions_are_distinguished():
    net = nn.Sequential(conv(padding=1), nn.ReLU(), Block(), Block())
    assert kinds(net) == {
        "1": ("relu", [("0",)]),
        "2.relu": ("relu", [("2.conv1", "2.bn1")]),
        "2.relu#2": ("relu", [("2.conv2", "2.bn2", "add")]),
        "2.relu#3": ("relu", [("2.down", "add")]),
        "3.relu": ("relu", [("3.conv1", "3.bn1")]),
        "3.relu#2": ("relu", [("3.conv2", "3.bn2", "add")]),
        "3.relu#3": ("relu", [("3.down", "add")]),
    }
    result = {r.name: r for r in trace(net, IMAGE).rectified}
    assert result["2.relu#2"].adds == ("1",)
    assert result["3.relu#3"].adds == ("3.relu#2",)


def test_the_calls_of_one_module_are_one_layer():
    net = Net(lambda s, x: F.relu(s.fc(F.relu(s.fc(x)))), fc=nn.Linear(4, 4))
    (layer,) = trace(net, torch.randn(2, 4)).rectified
    assert (layer.name, layer.layer, layer.calls) == ("relu", "fc", ("relu", "relu#2"))
    head = Net(lambda s, x: s.head(F.relu(s.fc(x[0]))) - s.head(F.relu(s.fc(x[1]))), **siamese())
    (layer,) = trace(head, (torch.randn(2, 2, 4),)).rectified
    assert layer.calls == ("relu", "relu#2")
    assert {reader.name.partition("#")[0] for reader in layer.readers} == {"head"}
    assert len(trace(head, (torch.randn(2, 2, 4),)).unattributed) == 1


def test_calls_through_other_norms_are_layers_of_their_own():
    norms = {f"norm{i}": nn.BatchNorm1d(4) for i in (1, 2)}
    norms["norm2"].running_mean += 1
    forward = lambda s, x: F.relu(s.norm1(s.fc(x))) + F.relu(s.norm2(s.fc(x)))  # noqa: E731
    first, second = trace(Net(forward, fc=nn.Linear(4, 4), **norms), torch.randn(2, 4)).rectified
    assert not torch.equal(first.shift, second.shift)


def siamese():
    return {"fc": nn.Linear(4, 4), "head": nn.Linear(4, 1)}


def test_a_recurrent_network_has_a_layer_for_its_first_step_and_one_for_the_others():
    net = nn.RNN(4, 8, nonlinearity="relu", batch_first=True)
    first, others = trace(net, torch.randn(3, 9, 4)).rectified
    assert [len(layer.calls) for layer in (first, others)] == [1, 8]


def test_functional_weights_go_by_the_name_of_their_parameter():
    parts = {"a": nn.Parameter(torch.randn(4, 3, 3, 3)), "b": nn.Parameter(torch.randn(5, 4, 1, 1))}
    net = nn.Sequential(Net(lambda s, x: F.relu(F.conv2d(F.relu(F.conv2d(x, s.a)), s.b)), **parts))
    assert kinds(net) == {"0:relu": ("relu", [("0.a",)]), "0:relu#2": ("relu", [("0.b",)])}


def test_one_layer_rectified_twice_has_two_names():
    net = Net(lambda s, x: (F.relu(y := s.conv(x)), y.abs()), conv=conv())
    assert [r.layer for r in trace(net, IMAGE).rectified] == ["conv (relu)", "conv (abs)"]


def test_the_parameters_behind_a_weight_are_named():
    net = nn.Sequential(weight_norm(nn.Linear(4, 5)), nn.ReLU(), GeometricLinear(5, 3), nn.ReLU())
    first, second = trace(net, torch.randn(2, 4)).rectified
    assert first.sources[0].parameters == (
        "0.bias",
        "0.parametrizations.weight.original0",
        "0.parametrizations.weight.original1",
    )
    assert set(second.sources[0].parameters) == {"2.latitudes", "2.offset", "2.scale"}


def test_layers_that_read_a_rectification_are_known():
    net = nn.Sequential(conv(), CReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(72, 5))
    (result,) = trace(net, IMAGE).rectified
    assert [(s.name, tuple(s.weight.shape)) for s in result.readers] == [("4", (5, 72))]


class Keep(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clamp_(min=0)

    @staticmethod
    def backward(ctx, g):
        return g


def test_custom_autograd_functions_are_seen_through():
    assert kinds(Net(lambda s, x: Keep.apply(s.conv(x)), conv=conv())) == {"clamp": ("relu", [("conv",)])}


@pytest.mark.parametrize(
    "inplace",
    [
        lambda x: x.relu_(),
        lambda x: F.relu(x, inplace=True),
        lambda x: x.clamp_(min=0),
        nn.ReLU(inplace=True),
        crelu,
    ],
)
def test_values_are_shown_as_they_were_before_they_were_overwritten(inplace):
    net = Net(lambda s, x: inplace(s.conv(x)), conv=conv())
    pairs = []
    with running(net) as (run, _):
        run(IMAGE, observe=lambda node, value, output: pairs.append((value.clone(), output.clone())))
    torch.testing.assert_close(pairs[0][0], net.conv(IMAGE).detach())
    torch.testing.assert_close(pairs[-1][1][:, -4:], net(IMAGE).detach()[:, -4:])


def test_memory_that_is_overwritten_in_part_leads_back_to_both_writers():
    def forward(self, x):
        y = self.conv(x)
        y[:, :2].relu_()  # the first half only
        return F.relu(self.next(y))

    net = Net(forward, conv=conv(), next=nn.Conv2d(4, 5, 1))
    result = trace(net, IMAGE)
    assert kinds(net) == {"relu": ("relu", [("conv", "slice")]), "relu#2": ("relu", [("next",)])}
    assert [s.name for s in result.rectified[0].readers] == ["next"]
    assert "slice comes between" in result.rectified[0].obstacle


def test_transformers_are_taken_apart():
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    result = trace(layer, torch.randn(2, 5, 8))
    assert kinds(layer, torch.randn(2, 5, 8)) == {"relu": ("relu", [("linear1",)])}
    names = [name for name, _ in result.unattributed]
    assert names == ["self_attn", "self_attn.out_proj", "linear2"]


def test_weights_that_cannot_be_attributed_are_listed_with_the_reason():
    net = Net(
        lambda s, x: s.rnn(x)[0] @ s.out.weight.T,
        rnn=nn.LSTM(4, 3),
        out=nn.Linear(3, 2),
        spare=nn.Linear(2, 2),
    )
    reasons = dict(trace(net, torch.randn(5, 2, 4)).unattributed)
    assert reasons["out"] == "feeds the output"
    assert reasons["spare.weight"] == "not used on this example"
    assert "not taken apart" in reasons["rnn.weight_ih_l0"]


def test_a_rectification_without_weights_is_listed():
    result = trace(Net(lambda s, x: F.relu(x) + F.relu(x * x)), IMAGE)
    assert result.unattributed == (
        ("relu", "no weight feeds it, only the input"),
        ("relu#2", "no weight feeds it, only mul in the network"),
    )


def test_a_gate_is_not_a_sum_of_branches():
    net = Net(lambda s, x: F.relu(s.a(x) * torch.sigmoid(s.b(x))), a=conv(), b=conv())
    result = trace(net, IMAGE)
    assert not result.rectified[0].sources
    assert dict(result.unattributed)["a"] == "feeds mul (not known to rectify)"


def test_every_weight_is_a_source_or_listed():
    net = nn.Sequential(
        conv(padding=1), nn.ReLU(), Block(), nn.GELU(), nn.Conv2d(4, 4, 1), nn.Flatten(), nn.Linear(256, 3)
    )
    result = trace(net, IMAGE)
    named = {s.name for r in result.rectified for s in r.sources} | {name for name, _ in result.unattributed}
    weights = {name.removesuffix(".weight") for name, p in net.named_parameters() if p.dim() > 1}
    assert weights <= named


@pytest.mark.parametrize(
    "example", [(torch.randn(2, 4), 3.0), {"x": torch.randn(2, 4), "gain": 3.0}, [torch.randn(2, 4), 2.0]]
)
def test_examples_may_be_positional_or_keyword_arguments(example):
    net = Net(lambda s, x, gain: F.relu(s.fc(x) * gain), fc=nn.Linear(4, 5))
    assert kinds(net, example) == {"relu": ("relu", [("fc", "mul")])}


def test_mixed_precision_is_seen_through():
    def forward(self, x):
        with torch.autocast("cpu", torch.bfloat16):
            return F.relu(self.fc(x))

    net = Net(forward, fc=nn.Linear(4, 5))
    (result,) = trace(net, torch.randn(2, 4)).rectified
    assert result.sources[0].parameters == ("fc.bias", "fc.weight")
    assert result.obstacle == ""


def test_compiled_networks_are_run_as_they_were_written():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the compiler's own imports
        net = torch.compile(nn.Sequential(nn.Linear(4, 5), nn.ReLU()))
        assert [r.kind for r in trace(net, torch.randn(2, 4)).rectified] == ["relu"]


def test_torchscript_is_seen_through():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # deprecated, but still how some networks are published
        scripted = torch.jit.trace(
            nn.Sequential(nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 2)), torch.randn(2, 4)
        )
    assert kinds(scripted, torch.randn(2, 4)) == {"relu": ("relu", [("0",)])}


class Fidgety(nn.Module):
    """Draws random numbers, updates statistics and counts its calls, also in eval mode."""

    def __init__(self, channels):
        super().__init__()
        self.conv, self.norm, self.drop = nn.Conv2d(channels, 4, 3), nn.BatchNorm2d(4), nn.Dropout(0.5)
        self.register_buffer("calls", torch.zeros(()))
        self.register_buffer("mean", torch.zeros(()))

    def forward(self, x):
        self.calls += 1
        self.mean = 0.9 * self.mean + 0.1 * x.mean()
        return F.relu(self.drop(self.norm(self.conv(x)))) + torch.rand(1)


def test_the_network_and_the_random_state_are_left_as_they_were():
    net = nn.Sequential(Fidgety(3), Fidgety(4))
    net[1].norm.eval()
    state, modes = copy.deepcopy(net.state_dict()), [m.training for m in net.modules()]
    random, hooks = (
        torch.get_rng_state(),
        [len(m._forward_hooks) + len(m._forward_pre_hooks) for m in net.modules()],
    )
    trace(net, IMAGE)
    assert all(torch.equal(value, state[name]) for name, value in net.state_dict().items())
    assert [m.training for m in net.modules()] == modes
    assert torch.equal(torch.get_rng_state(), random)
    assert [len(m._forward_hooks) + len(m._forward_pre_hooks) for m in net.modules()] == hooks
    assert all(p.grad is None and p.requires_grad for p in net.parameters())
    assert torch.is_grad_enabled()


def test_an_example_that_the_network_overwrites_is_left_as_it_was():
    example = torch.randn(2, 4)
    before = example.clone()
    trace(nn.Sequential(nn.ReLU(inplace=True), nn.Linear(4, 3)), example)
    assert torch.equal(example, before)


def test_sparse_values_pass():
    adjacency = torch.eye(4).to_sparse()
    net = Net(lambda s, x: F.relu(s.fc(torch.sparse.mm(adjacency, x))), fc=nn.Linear(3, 5))
    assert kinds(net, torch.randn(4, 3)) == {"relu": ("relu", [("fc",)])}


def test_a_network_that_fails_is_left_as_it_was():
    net = nn.Sequential(conv(), nn.ReLU(), nn.Linear(999, 2))
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
        trace(net, IMAGE)
    assert net.training
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in net.modules())
