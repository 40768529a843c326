"""Where both phases reach: control flow, loops, readers of every kind; and what stops them, with the reason."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from relucid.convert import ConversionError, fuse, to_crelu, to_geometric
from relucid.nn import CReLU

from .odd import faults

unchanged = pytest.mark.filterwarnings("ignore:.* changes no layer")


class Net(nn.Module):
    """A function of layers."""

    def __init__(self, function, **layers):
        super().__init__()
        self.function = function
        for name, layer in layers.items():
            setattr(self, name, layer)

    def forward(self, x):
        return self.function(self, x)


def reasons(conversion):
    return {change.name: (change.status, change.reason) for change in conversion.changes}


def same(model, net, *shapes):
    for shape in shapes:
        for training in (False, True):
            assert faults(model, net, torch.randn(shape, dtype=torch.float64), training) == []


def branches():
    def function(m, x):
        y = F.relu(m.first(x))
        return m.positive(y) if x.sum() > 0 else m.negative(y)

    layers = {"first": nn.Linear(4, 6), "positive": nn.Linear(6, 2), "negative": nn.Linear(6, 2)}
    return Net(function, **layers).double()


def test_a_branch_that_the_example_does_not_reach_stays_and_fails_loudly():
    model, x = branches(), torch.rand(3, 4, dtype=torch.float64)
    conversion = to_crelu(model, x)
    torch.testing.assert_close(conversion.model(x), model(x))
    assert reasons(conversion)["negative"] == ("kept", "not used on the example")
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
        conversion.model(-x)


def test_several_examples_reach_several_branches():
    model, x = branches(), torch.rand(3, 4, dtype=torch.float64)
    net = to_crelu(model, [x, -x]).model
    torch.testing.assert_close(net(x), model(x))
    torch.testing.assert_close(net(-x), model(-x))
    assert net.negative.in_features == 12


def test_a_layer_in_a_loop_over_time_reads_both_phases_at_every_step():
    def function(m, x):
        state = x.new_zeros(x.shape[0], 5)
        for now in x.unbind(1):
            state = m.out(F.relu(m.inner(now) + m.state(state)))
        return state

    layers = {"inner": nn.Linear(3, 6), "state": nn.Linear(5, 6), "out": nn.Linear(6, 5)}
    model, x = Net(function, **layers).double(), torch.randn(2, 7, 3, dtype=torch.float64)
    for convert in to_geometric, fuse:
        same(model, convert(model, x).model, (3, 9, 3))

    def rectified(m, x):
        return m.out(torch.stack([F.relu(m.inner(now)) for now in x.unbind(1)], 1).sum(1))

    model = Net(rectified, inner=nn.Linear(3, 6), out=nn.Linear(6, 5)).double()
    net = to_crelu(model, x).model
    assert net.out.in_features == 12
    same(model, net, (3, 9, 3))


READERS = {
    "linear": (lambda m, y: m.read(y.mean((2, 3))), nn.Linear(8, 2), "in_features"),
    "flattened": (
        lambda m, y: m.read(F.adaptive_max_pool2d(y, 2).flatten(1)),
        nn.Linear(32, 2),
        "in_features",
    ),
    "channels last": (lambda m, y: m.read(y.permute(0, 2, 3, 1)), nn.Linear(8, 2), "in_features"),
    "grouped": (lambda m, y: m.read(y), nn.Conv2d(8, 4, 3, groups=4), "in_channels"),
    "depthwise": (lambda m, y: m.last(m.read(y)), nn.Conv2d(8, 8, 3, groups=8), "in_channels"),
    "multiplied": (lambda m, y: m.wide(m.read(y)), nn.Conv2d(8, 16, 3, groups=8), "in_channels"),
    "transposed": (lambda m, y: m.read(y), nn.ConvTranspose2d(8, 4, 2, groups=2), "in_channels"),
    "concatenated": (lambda m, y: m.read(torch.cat((y, 2 * y, y), 1)), nn.Conv2d(24, 4, 1), "in_channels"),
    "norm": (lambda m, y: m.last(m.read(y)), nn.BatchNorm2d(8), "num_features"),
}


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("rectify", ["module", "function"])
def test_readers_of_every_kind_get_entries_for_the_new_phase(reader, rectify):
    function, read, size = READERS[reader]
    relu = (lambda m, x: m.relu(m.conv(x))) if rectify == "module" else lambda m, x: m.conv(x).relu()
    layers = {"conv": nn.Conv2d(3, 8, 3), "relu": nn.ReLU(), "read": read}
    layers |= {"last": nn.Conv2d(8, 2, 1), "wide": nn.Conv2d(16, 2, 1)}
    model = Net(lambda m, x: function(m, relu(m, x)), **layers).double()
    net = to_crelu(model, torch.randn(2, 3, 8, 8, dtype=torch.float64)).model
    assert getattr(net.read, size) == 2 * getattr(model.read, size)
    assert isinstance(net.relu, CReLU) == (rectify == "module")
    same(model, net, (3, 3, 8, 8), (2, 3, 11, 9))


STOPS = {
    "added": (lambda m, y: m.last(y + 2 * m.same(y)), "it is added to another value"),
    "multiplied": (lambda m, y: m.last(y * m.same(y).sigmoid()), "it is multiplied by another value"),
    "returned": (lambda m, y: (m.last(y), y), "the network returns it"),
    "sliced": (lambda m, y: m.narrow(y[:, :4]), "slice cuts its channels"),
    "normalized": (lambda m, y: m.last(F.group_norm(y, 2)), "group_norm"),
    "softmax": (lambda m, y: m.last(y.softmax(1)), "softmax"),
    "per channel": (lambda m, y: m.last(y * torch.arange(8).view(8, 1, 1)), "must match the size"),
    "mixed": (lambda m, y: m.last(y - y.mean(1, keepdim=True)), "sub combines it with another value"),
}


@unchanged
@pytest.mark.parametrize("stop", STOPS)
def test_what_mixes_channels_keeps_the_relu_as_it_is_and_is_named(stop):
    function, reason = STOPS[stop]
    layers = {"conv": nn.Conv2d(3, 8, 1), "same": nn.Conv2d(8, 8, 1), "last": nn.Conv2d(8, 2, 1)}
    model = Net(lambda m, x: function(m, m.conv(x).relu()), **layers, narrow=nn.Conv2d(4, 2, 1))
    status, found = reasons(to_crelu(model, torch.randn(2, 3, 4, 4)))["relu"]
    assert status == "refused"
    assert reason in found


@unchanged
def test_a_relu_after_a_sum_stays_and_is_reported():
    model = Net(
        lambda m, x: m.c(F.relu(m.a(x) + m.b(x))), a=nn.Linear(3, 4), b=nn.Linear(3, 4), c=nn.Linear(4, 2)
    )
    assert reasons(to_crelu(model, torch.randn(5, 3)))["relu"] == (
        "refused",
        "it rectifies a sum, which no module returns",
    )


@unchanged
def test_a_recurrent_layer_stops_both_phases_and_is_named():
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.GRU(8, 3))
    assert reasons(to_crelu(model, torch.randn(5, 2, 4)))["1"][1].startswith("2 reads it")


@pytest.mark.parametrize("activation", ["relu", nn.ReLU()])
@pytest.mark.parametrize("wrap", [lambda e: e, lambda e: nn.TransformerEncoder(e, 2)])
@pytest.mark.parametrize("mode", ["expand", "merge", "geometric"])
def test_the_fast_path_of_a_transformer_is_not_taken(activation, wrap, mode):
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True, activation=activation)
    with torch.no_grad():  # opposite pairs
        layer.linear1.weight[8:], layer.linear1.bias[8:] = -layer.linear1.weight[:8], -layer.linear1.bias[:8]
    model, x = wrap(layer).eval(), torch.randn(2, 5, 8)
    net = to_geometric(model, x).model if mode == "geometric" else to_crelu(model, x, mode=mode).model
    with torch.no_grad():
        assert torch.allclose(net(x), model(x), atol=1e-5)
        with_gradients = net.requires_grad_()(x.requires_grad_())
        assert torch.allclose(net(x), with_gradients, atol=1e-5)


@unchanged
@pytest.mark.parametrize(
    "mask", [lambda x, m: x.masked_fill(m, -torch.inf), lambda x, m: torch.where(m, -torch.inf, x)]
)
def test_where_masks_of_minus_infinity_come_before_it_a_relu_stays(mask):
    class Masked(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.relu, self.b = nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 3)

        def forward(self, x, masked):
            return self.b(self.relu(mask(self.a(x), masked)))

    found = to_crelu(Masked(), (torch.randn(5, 4), torch.zeros(5, 6, dtype=torch.bool)))
    assert reasons(found)["relu"][0] == "refused"


def test_a_layer_with_spectral_norm_stays_and_the_other_layers_are_converted():
    normed = nn.utils.parametrizations.spectral_norm(nn.Linear(6, 6))
    x = torch.randn(9, 4)
    net = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), normed, nn.ReLU(), nn.Linear(6, 2)).eval()
    conversion = to_crelu(net, x)
    torch.testing.assert_close(conversion.model(x), net(x))
    assert {change.name for change in conversion.changes if change.status == "changed"} == {"3", "4"}


def test_networks_that_share_an_encoder_are_converted_as_one():
    x, encoder = torch.randn(9, 4), nn.Sequential(nn.Linear(4, 6), nn.ReLU())
    actor, critic = nn.Sequential(encoder, nn.Linear(6, 2)), nn.Sequential(encoder, nn.Linear(6, 1))
    both = nn.ModuleDict({"actor": actor, "critic": critic})
    optimizer = torch.optim.Adam(both.parameters())
    before = actor(x), critic(x)
    with pytest.raises(ConversionError, match="ModuleDict"):
        to_crelu({"actor": actor, "critic": critic}, x)
    call = lambda net, x: [part(x) for part in net.values()]  # noqa: E731
    to_crelu(both, x, inplace=True, optimizer=optimizer, call=call)
    torch.testing.assert_close((actor(x), critic(x)), before)
    assert actor[1].in_features == critic[1].in_features == 12


def test_what_overflows_in_float16_is_said_with_the_name_of_the_layer():
    net = nn.Sequential(nn.Linear(3, 3), nn.ReLU(), nn.Linear(3, 2))
    net[0].weight.data.fill_(-60000)
    x = torch.rand(4, 3) * 0.01
    assert to_crelu(net, x).unchecked == ()
    conversion = to_crelu(net.half(), x.half())
    assert not conversion.model(100 * x.half() + 10).isfinite().any()
    (sentence,) = conversion.unchecked
    assert sentence.startswith("values below -65,504 at 1: float16")
    assert sentence in conversion.summary()
