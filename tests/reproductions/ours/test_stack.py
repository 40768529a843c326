import pytest
import torch
from torch import nn
from torch.nn import functional as F

from relucid.convert import to_crelu
from relucid.inspect import metrics
from relucid.nn import CReLU
from relucid.remedies import ContinualBackprop, L2Init, redo
from relucid_reproductions.ours._stack import Architecture, Recycling, Stack

SMALL = {"units": 5, "inputs": 4, "outputs": 3}
CONVERTED = Architecture("crelu", **SMALL)


@pytest.fixture(autouse=True)
def _double():
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


def network(stack, place=0):
    """The same network as a plain one."""
    shape = stack.begun if stack.closed[place] else stack.architecture
    kinds = {
        "relu": nn.ReLU,
        "crelu": lambda: CReLU(-1),
        "prelu": lambda: nn.PReLU(shape.units),
        "tanh": nn.Tanh,
        "leaky_relu": nn.LeakyReLU,
    }
    modules = []
    for layer in range(shape.layers + 1):
        rows, columns = shape.shapes[2 * layer]
        weight, bias = (stack.view(stack.flat, 2 * layer + k)[place] for k in (0, 1))
        linear = nn.Linear(rows, columns)
        linear.weight.data, linear.bias.data = weight[:rows, :columns].T.clone(), bias[0, :columns].clone()
        norm = [nn.LayerNorm(shape.units, elementwise_affine=False)] * shape.norm
        modules += [linear, *norm, kinds[shape.activation]()] if layer < shape.layers else [linear]
        if shape.activation == "prelu" and layer < shape.layers:
            modules[-1].weight.data = stack.view(stack.flat, stack.slopes + layer)[place, 0].clone()
    return nn.Sequential(*modules)


def train(net, optimizer, inputs, targets, penalty=lambda: 0.0):
    for x, y in zip(inputs, targets, strict=True):
        optimizer.zero_grad()
        (F.mse_loss(net(x), y) + penalty()).backward()
        optimizer.step()


def follow(stack, inputs, targets):
    """The same steps, of every network."""
    for x, y in zip(inputs, targets, strict=True):
        many = len(stack.flat), -1, -1
        stack.step((stack(x.expand(*many)) - y.expand(*many)).square().mean((1, 2)))


def same(stack, net, place=0):
    others = dict(network(stack, place).named_parameters())
    assert {name: value.shape for name, value in net.named_parameters()} == {
        name: value.shape for name, value in others.items()
    }
    for name, value in net.named_parameters():
        ours, theirs = value, others[name]
        torch.testing.assert_close(ours.data, theirs.data, rtol=1e-7, atol=1e-9)


def data(steps):
    torch.manual_seed(1)
    return torch.randn(steps, 6, 4), torch.randn(steps, 6, 3)


@pytest.mark.parametrize("activation", ["relu", "crelu", "tanh", "leaky_relu", "prelu"])
@pytest.mark.parametrize("norm", [False, True])
def test_a_network_of_a_stack_learns_as_a_plain_one_does(activation, norm):
    stack = Stack(Architecture(activation, norm=norm, **SMALL), [1, 2], [0.01, 0.01], decay=0.1)
    for place in (0, 1):
        net = network(stack, place)
        train(net, torch.optim.Adam(net.parameters(), lr=0.01, weight_decay=0.1), *data(20))
        copy = Stack(stack.architecture, [1, 2], [0.01, 0.01], decay=0.1)
        follow(copy, *data(20))
        same(copy, net, place)


def test_anchored_weights_have_the_gradient_of_l2_init():
    stack = Stack(Architecture(**SMALL), [1], [0.01], anchor=0.3)
    net = network(stack)
    train(net, torch.optim.Adam(net.parameters(), lr=0.01), *data(20), penalty=L2Init(net, 0.3))
    follow(stack, *data(20))
    same(stack, net)


@pytest.mark.parametrize("forget", [False, True])
def test_to_open_second_phases_is_to_crelu(forget):
    inputs, targets = data(40)
    stack = Stack(Architecture(**SMALL), [3, 4], [0.01, 0.01], later=CONVERTED)
    plain = Stack(Architecture(**SMALL), [3, 4], [0.01, 0.01])
    net = network(stack, 1)
    same(plain, net, 1)  # the same draws, whether there are second phases or not
    optimizer = torch.optim.Adam(net.parameters(), lr=0.01)
    train(net, optimizer, inputs[:20], targets[:20])
    follow(stack, inputs[:20], targets[:20])
    same(stack, net, 1)
    before = stack(inputs[:2])
    to_crelu(net, inputs[0], inplace=True, optimizer=optimizer)
    stack.open(1)
    if forget:
        stack.forget(1)
        optimizer = torch.optim.Adam(net.parameters(), lr=0.01)
    assert torch.equal(before, stack(inputs[:2]))
    torch.testing.assert_close(net(inputs[0]), stack(inputs[:1].expand(2, -1, -1))[1])
    train(net, optimizer, inputs[20:], targets[20:])
    follow(stack, inputs[20:], targets[20:])
    same(stack, net, 1)
    closed = [stack.view(stack.flat, 2 * layer)[0, SMALL["units"] :] for layer in (1, 2, 3)]
    assert not any(bool(rows.any()) for rows in closed)  # the other network stays as it is


def test_opened_slopes_are_those_of_a_prelu_that_begins_as_relu():
    inputs, targets = data(40)
    stack = Stack(Architecture(**SMALL), [3, 4], [0.01, 0.01], later=Architecture("prelu", **SMALL))
    net = network(stack, 1)
    optimizer = torch.optim.Adam(net.parameters(), lr=0.01)
    train(net, optimizer, inputs[:20], targets[:20])
    follow(stack, inputs[:20], targets[:20])
    before = stack(inputs[:2])
    stack.open(1)
    assert torch.equal(before, stack(inputs[:2]))
    for place in (1, 3, 5):
        net[place] = nn.PReLU(SMALL["units"], init=0.0)
        optimizer.add_param_group({"params": net[place].parameters()})
    train(net, optimizer, inputs[20:], targets[20:])
    follow(stack, inputs[20:], targets[20:])
    same(stack, net, 1)
    assert bool(net[3].weight.any())
    assert not bool(stack.view(stack.flat, stack.slopes)[0].any())  # the other network stays as it is


def test_added_units_change_no_output_and_their_first_step_is_no_longer_than_a_living_unit_s():
    wide = Architecture(**{**SMALL, "units": 8})
    stack = Stack(Architecture(**SMALL), [3, 4], [0.01, 0.01], later=wide)
    plain = Stack(Architecture(**SMALL), [3, 4], [0.01, 0.01])
    for each in (stack, plain):
        follow(each, *data(20))
    same(stack, network(plain, 1), 1)
    kill(stack, 1, 1, [0])
    x = torch.randn(2, 60, 4)
    before, dead = stack(x), stack.dead(x)[1, 1].sum()
    assert float(stack.dead_share(x)[1, 1]) == pytest.approx(100 * (dead - 3) / 5)
    stack.open(1)
    torch.testing.assert_close(stack(x), before)
    assert float(stack.dead_share(x)[1, 1]) == pytest.approx(100 * stack.dead(x)[1, 1].sum() / 8)
    assert network(stack, 1)[2].weight.shape == (8, 8)
    torch.testing.assert_close(network(stack, 1)(x[1]), stack(x)[1])
    start = stack.flat.clone()
    follow(stack, *data(1))
    step = (stack.flat - start).abs()
    for layer in range(3):
        assert 0 <= float(stack.view(step, 2 * layer)[1, :, 5:].max()) <= 1.01 * 0.01
        assert bool(stack.view(stack.flat, 2 * layer + 2)[1, 5:].any())  # they are read
    assert not bool((stack.flat * (1 - stack.mask))[0].any())  # the other network stays as it is


def test_units_cannot_be_added_before_a_norm():
    with pytest.raises(ValueError, match="without norm"):
        Stack(Architecture(norm=True), [1], [0.01], later=Architecture(units=88, norm=True))


def kill(stack, place, layer, units):
    """Let units be dead."""
    stack.view(stack.flat, 2 * layer + 1)[place, 0, units] = -100.0


def test_dead_and_dormant_units_are_those_that_the_library_counts():
    stack = Stack(Architecture(**SMALL), [1, 2], [0.01, 0.01])
    kill(stack, 1, 1, [0, 3])
    kill(stack, 1, 2, [1, 2, 3, 4])
    x = torch.randn(50, 4)
    many = x.expand(2, -1, -1)
    dead = stack.dead(many).double().mean(2)
    for place in (0, 1):
        measured = metrics(network(stack, place), x)
        assert measured["worst dead"] == pytest.approx(float(dead[place].max()))
        assert measured["dead"] == pytest.approx(float(dead[place].mean()))
    for threshold in (0.0, 0.3):
        net = network(stack, 1)
        changed = redo(net, x, threshold).changed
        expected = stack.dormant(many, threshold)[1]
        counted = [expected[layer].nonzero().flatten().tolist() for layer in range(3)]
        assert [list(changed.get(str(2 * layer), ())) for layer in range(3)] == counted


def test_a_closed_second_phase_does_not_keep_a_unit_alive():
    stack = Stack(Architecture(**SMALL), [1], [0.01], later=CONVERTED)
    kill(stack, 0, 0, [2])
    x = torch.randn(1, 50, 4)
    assert stack.dead(x)[0, 0].tolist() == [False, False, True, False, False]
    stack.open(0)
    assert not bool(stack.dead(x).any())


@pytest.mark.parametrize("dead", [[1, 2], [0, 1, 2, 3, 4]])
def test_reviving_keeps_outputs_and_brings_every_unit_back(dead):
    stack = Stack(Architecture(**SMALL), [1, 2], [0.01, 0.01], later=CONVERTED)
    kill(stack, 1, 1, dead)
    x = torch.randn(2, 60, 4)
    before, other = stack(x).detach(), stack.flat[0].clone()
    assert stack.revive(1, x) >= len(dead)
    torch.testing.assert_close(stack(x).detach(), before, rtol=1e-12, atol=1e-12)
    assert all(bool((values[1, :, : SMALL["units"]] > 0).any(0).all()) for values in stack.layers(x)[1:-1])
    assert torch.equal(stack.flat[0], other)


def test_first_steps_of_redrawn_units_are_not_longer_than_those_of_living_ones():
    stack = Stack(Architecture(units=40, inputs=4, outputs=3), [1], [0.01])
    follow(stack, *data(300))
    for units in (torch.tensor([0, 1, 2]), torch.arange(40)):
        stack.draw(0, 1, units)
        before = stack.flat.clone()
        follow(stack, *data(1))
        steps = (stack.view(stack.flat, 2) - stack.view(before, 2))[0].abs()
        assert float(steps[:, units].max()) <= 1.01 * 0.01
        assert float(stack.view(stack.flat, 4)[0, units].abs().max()) > 0  # they are read again


def test_with_forgotten_counts_of_one_parameter_all_others_step_as_before():
    stacks = [Stack(Architecture(**SMALL), [1], [0.01]) for _ in range(2)]
    for stack in stacks:
        follow(stack, *data(30))
    stacks[1].taken[0, 0] = 3.0
    for stack in stacks:
        follow(stack, *data(1))
    changed = (stacks[0].flat != stacks[1].flat)[0]
    assert bool(changed[stacks[0].places[0]].any())
    assert not bool(changed[stacks[0].places[0].stop :].any())


def test_continual_backprop_has_the_library_s_utilities_and_replaces_as_many():
    stack = Stack(Architecture(**SMALL), [1], [0.01])
    recycling, net = Recycling(stack, 0.021, maturity=5), network(stack)
    optimizer = torch.optim.Adam(net.parameters(), lr=0.01)
    library = ContinualBackprop(net, 0.021, 5, example=torch.randn(2, 4)).attach(optimizer)
    inputs, targets = data(14)
    for x, y in zip(inputs, targets, strict=True):  # the first replacement is due at the 15th step
        train(net, optimizer, [x], [y])
        seen = stack.layers(x.unsqueeze(0))
        stack.step((seen[-1] - y).square().mean((1, 2)))
        recycling.step(seen)
    for layer, utility in enumerate(library.utility.values()):
        corrected = recycling.utility[0, layer] / (1 - 0.99**14)
        torch.testing.assert_close(corrected, utility)
    same(stack, net)
    before = stack.flat.clone()
    x, y = inputs[0], targets[0]
    train(net, optimizer, [x], [y])
    assert sum(library.replaced.values()) == 3
    recycling.step(stack.layers(x.unsqueeze(0)))
    assert [int((of == 0).sum()) for of in recycling.age[0]] == [1, 1, 1]
    assert not torch.equal(before, stack.flat)
