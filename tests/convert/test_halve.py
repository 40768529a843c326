"""CReLU with half the filters: the paper's own recipe, on any network."""

import pytest
import torch
import torch.nn.functional as F
from tests.convert.networks import NETWORKS, Block, Functional, example
from torch import nn

from relucid.convert import ConversionError, UnchangedWarning, to_crelu
from relucid.models import count_parameters, create
from relucid.nn import CReLU

IMAGES = torch.randn(4, 3, 32, 32, generator=torch.Generator().manual_seed(0))


def halved(model, example=IMAGES, **options):
    return to_crelu(model, example, mode="halve", **options)


def shapes(model):
    return {name: tuple(p.shape) for name, p in model.named_parameters()}


def reasons(conversion):
    return {change.name: change.reason for change in conversion.changes if change.status == "refused"}


def test_the_papers_baseline_becomes_the_papers_network_parameter_for_parameter():
    baseline = create("crelu/convpool-baseline", num_classes=10)
    conversion = halved(baseline)
    assert shapes(conversion.model) == shapes(create("crelu/convpool-half", num_classes=10))
    assert "the network's outputs" in reasons(conversion)["act8"]


@pytest.mark.parametrize("name", ["vgg6", "vgg16", "resnet20", "densenet121"])
def test_outputs_keep_their_shape_and_there_are_fewer_parameters(name):
    net = create(name, num_classes=10, width=0.25)
    conversion = halved(net)
    assert conversion.model(IMAGES).shape == (4, 10)
    assert conversion.parameters[1] == count_parameters(conversion.model) < count_parameters(net)
    loss = F.cross_entropy(conversion.model.train()(IMAGES), torch.arange(4))
    loss.backward()
    assert all(p.grad is not None for p in conversion.model.parameters())


@pytest.mark.filterwarnings("ignore::relucid.convert.UnchangedWarning")
@pytest.mark.parametrize("name", NETWORKS)
def test_every_refusal_has_a_reason_and_the_rest_is_done(name):
    torch.manual_seed(0)
    conversion = halved(NETWORKS[name]().double(), example())
    relus = [c for c in conversion.changes if "relu" in c.name or c.kind == "ReLU"]
    assert any(c.status == "changed" for c in relus) or name == "perceptron"  # of 7 units
    assert all(c.reason for c in relus)
    assert conversion.model.eval()(example()).shape[1] == 5


def plain():
    return nn.Sequential(
        *(nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(16, 32, 3), nn.GroupNorm(4, 32), nn.ReLU(), nn.Flatten(), nn.Linear(32 * 14 * 14, 10)),
    )


def test_half_the_filters_and_what_lies_between_them_and_the_relu():
    net = halved(plain()).model
    assert [type(m) for m in net][2::4] == [CReLU, CReLU]
    assert shapes(net) == {
        "0.weight": (8, 3, 3, 3),
        "0.bias": (8,),
        "1.weight": (8,),
        "1.bias": (8,),
        "4.weight": (16, 16, 3, 3),
        "4.bias": (16,),
        "5.weight": (16,),
        "5.bias": (16,),
        "8.weight": (10, 32 * 14 * 14),
        "8.bias": (10,),
    }
    assert (net[0].out_channels, net[1].num_features, net[5].num_channels) == (8, 8, 16)
    assert net[1].running_var.shape == (8,)


def test_weights_are_drawn_by_each_layer_and_follow_the_users_seed():
    net = plain()
    torch.manual_seed(3)
    first = halved(net).model
    torch.manual_seed(3)
    again, other = halved(net).model, halved(net).model
    for a, b, c in zip(first.parameters(), again.parameters(), other.parameters(), strict=True):
        assert torch.equal(a, b)
        assert a.dim() < 2 or not torch.equal(a, c)
    layer = first[4]
    assert layer.weight.abs().max() <= (16 * 9) ** -0.5  # the bound of torch's own initialization


def test_a_trained_network_keeps_nothing_that_it_has_learned():
    net = plain()
    nn.init.constant_(net[8].weight, 7.0)
    nn.init.constant_(net[1].running_mean, 7.0)
    new = halved(net).model
    assert not (new[8].weight == 7).any()
    assert not new[1].running_mean.any()
    assert bool((net[8].weight == 7).all())


def test_functional_relus_are_halved_too():
    net = Functional()
    conversion = halved(net, torch.randn(4, 3, 8, 8))
    assert conversion.model.conv1.weight.shape == (3, 3, 3, 3)
    assert conversion.model.conv2.weight.shape == (4, 6, 3, 3)
    assert conversion.model(torch.randn(2, 3, 8, 8)).shape == (2, 5)


def test_a_sum_is_refused_and_the_branch_is_halved():
    net = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), Block(8, 8, 1), nn.Flatten(), nn.Linear(8 * 1024, 10))
    conversion = halved(net)
    assert reasons(conversion) == {"1.relu#2": "it rectifies a sum, whose terms must keep their widths"}
    assert conversion.model[1].conv1.weight.shape == (4, 8, 3, 3)
    assert conversion.model[1].conv2.weight.shape == (8, 8, 3, 3)


class Concatenated(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b, self.c = nn.Linear(4, 8), nn.Linear(4, 8), nn.Linear(16, 2)

    def forward(self, x):
        return self.c(F.relu(torch.cat((self.a(x), self.b(x)), 1)))


class ReadBefore(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(4, 8), nn.Linear(8, 2)

    def forward(self, x):
        y = self.a(x)
        return self.b(F.relu(y)) + y.mean()


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b, self.c = nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 2)
        self.b.weight = self.a.weight

    def forward(self, x):
        return self.c(F.relu(self.b(F.relu(self.a(x)))))


class Twice(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(4, 4), nn.Linear(4, 2)

    def forward(self, x):
        return self.b(F.relu(self.a(F.relu(self.a(x)))))


class Hardcoded(nn.Module):
    """A size that is written into forward."""

    def __init__(self):
        super().__init__()
        self.a, self.b, self.c, self.relu = nn.Linear(4, 8), nn.Linear(8, 8), nn.Linear(8, 2), nn.ReLU()

    def forward(self, x):
        y = self.a(x)
        if y.shape[1] != 8:
            raise ValueError("8 units expected")
        return self.c(F.relu(self.b(self.relu(y))))


def frozen():
    net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 2))
    net[0].requires_grad_(False)
    return net


def depthwise():
    return nn.Sequential(nn.Conv1d(4, 4, 1, groups=4), nn.ReLU(), nn.Flatten(), nn.Linear(4, 2))


def normed():
    return nn.Sequential(nn.Linear(4, 6), nn.GroupNorm(6, 6), nn.ReLU(), nn.Linear(6, 2))


def spectral():
    layer = nn.utils.parametrizations.spectral_norm(nn.Linear(4, 8))
    return nn.Sequential(layer, nn.ReLU(), nn.Linear(8, 2))


REFUSED = {
    Concatenated: "concatenation",
    ReadBefore: "something else reads the same units",
    Tied: "a is used more than once",
    Twice: "a is used more than once",
    Hardcoded: "the network does not run with half the filters",
    frozen: "0 is frozen",
    depthwise: "0 has 4 groups, into which half of its 4 filters do not divide",
    normed: "1 has 6 groups, into which half of the 6 units do not divide",
    spectral: "the weight of 0 is computed from others",
    lambda: nn.Sequential(nn.Linear(4, 7), nn.ReLU(), nn.Linear(7, 2)): "0 has 7 units, an odd number",
    lambda: nn.Sequential(nn.Linear(4, 8), nn.ReLU()): "its units are the network's outputs",
    lambda: nn.Sequential(nn.ReLU(), nn.Linear(4, 2)): "no layer comes before",
}


@pytest.mark.parametrize("build", REFUSED)
@pytest.mark.filterwarnings("ignore::relucid.convert.UnchangedWarning")
def test_what_cannot_be_halved_is_a_sentence_and_stays_as_it_was(build):
    net = build()
    x = torch.randn(5, 4, 1) if build is depthwise else torch.randn(5, 4)
    conversion = halved(net, x)
    assert any(REFUSED[build] in reason for reason in reasons(conversion).values()), conversion.summary()
    first = next(iter(net.parameters())).shape
    assert next(iter(conversion.model.parameters())).shape == first
    assert conversion.model(x).shape == net(x).shape


def test_nothing_to_halve_is_a_warning_and_the_weights_stay():
    net = nn.Sequential(nn.Linear(4, 7), nn.ReLU(), nn.Linear(7, 2))
    with pytest.warns(UnchangedWarning, match="an odd number"):
        conversion = halved(net, torch.randn(5, 4))
    assert torch.equal(conversion.model[2].weight, net[2].weight)


def test_a_frozen_layer_keeps_its_weights():
    net = frozen()
    new = halved(net, torch.randn(5, 4)).model
    assert torch.equal(new[0].weight, net[0].weight)
    assert new[2].weight.shape == (4, 8)


def test_layers_choose_what_is_halved():
    net = halved(plain(), layers="4").model
    assert [type(net[2]), type(net[6])] == [nn.ReLU, CReLU]
    assert net[0].weight.shape == (16, 3, 3, 3)


def test_in_place_the_optimizer_trains_the_halves():
    net = plain()
    parameters = list(net.parameters())
    optimizer = torch.optim.Adam(net.parameters(), lr=0.01)
    F.cross_entropy(net(IMAGES), torch.arange(4)).backward()
    optimizer.step()
    assert halved(net, inplace=True, optimizer=optimizer).model is net
    assert all(a is b for a, b in zip(net.parameters(), parameters, strict=True))
    before = [p.detach().clone() for p in net.parameters()]
    optimizer.zero_grad()
    F.cross_entropy(net(IMAGES), torch.arange(4)).backward()
    optimizer.step()
    assert all(not torch.equal(a, b) for a, b in zip(net.parameters(), before, strict=True))


def test_a_tolerance_is_refused():
    with pytest.raises(ValueError, match="halve"):
        halved(plain(), tolerance=1)


def test_sequences_are_halved_along_their_last_dimension():
    net = nn.Sequential(nn.Linear(4, 8), nn.LayerNorm(8), nn.ReLU(), nn.Linear(8, 2))
    new = halved(net, torch.randn(5, 7, 4)).model
    assert new[1].normalized_shape == (4,)
    assert new(torch.randn(5, 9, 4)).shape == (5, 9, 2)


def test_a_network_that_does_not_take_the_example_is_an_error():
    with pytest.raises(ConversionError, match="does not take the example"):
        halved(plain(), torch.randn(2, 5))
