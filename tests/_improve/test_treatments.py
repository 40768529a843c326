import torch
from torch import nn

from relucid._improve._treatments import Treatment, redraw
from relucid.inspect import examine


def network():
    net = nn.Sequential(
        nn.Conv2d(1, 6, 3), nn.BatchNorm2d(6), nn.ReLU(), nn.Flatten(), nn.Linear(96, 3)
    ).eval()
    net[1].bias.data[:2] = -100.0
    return net


IMAGES = torch.randn(64, 1, 6, 6)


def test_unchanged_is_a_copy():
    net = network()
    begun = Treatment().apply(net, IMAGES[:4], [IMAGES]).model
    assert begun is not net
    assert torch.equal(begun(IMAGES), net(IMAGES))


def test_only_the_weights_of_dead_units_are_drawn_anew():
    net = network()
    drawn = Treatment(draw="dead").apply(net, IMAGES[:4], [IMAGES], seed=1).model
    same = (drawn[0].weight == net[0].weight).flatten(1).all(1)
    assert same.tolist() == [False, False, True, True, True, True]
    assert drawn[1].bias[:2].tolist() == [0, 0]
    dead = [examine(each, IMAGES[:4], [IMAGES])["0"].activity.kinds()["dead"] for each in (net, drawn)]
    assert [int(units.sum()) for units in dead] == [2, 0]


def test_what_is_drawn_follows_from_the_seed_and_leaves_the_generator_alone():
    net, state = network(), torch.get_rng_state()
    first, again, other = (Treatment(draw="all").apply(net, IMAGES[:4], [], seed).model for seed in (1, 1, 2))
    assert torch.equal(first[0].weight, again[0].weight)
    assert not torch.equal(first[0].weight, other[0].weight)
    assert torch.equal(torch.get_rng_state(), state)


def test_a_converted_network_drawn_anew_has_no_zeros_left():
    net = Treatment("crelu", ["0"], "all").apply(network(), IMAGES[:4], []).model
    assert net[4].in_features == 192
    assert bool((net[4].weight != 0).all())


def test_parameters_of_layers_that_cannot_reset_them_keep_their_mean_and_deviation():
    class Scale(nn.Module):
        def __init__(self):
            super().__init__()
            self.scale = nn.Parameter(5 + 2 * torch.randn(4000))

    layer = Scale().requires_grad_(False)
    before = layer.scale.detach().clone()
    redraw(layer)
    assert not torch.equal(layer.scale, before)
    assert abs(float(layer.scale.mean()) - 5) < 0.2
    assert abs(float(layer.scale.std()) - 2) < 0.2
