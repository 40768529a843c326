"""Every backbone with every design: it builds, and one step of training reaches every parameter."""

from itertools import combinations, product

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from relucid.models import BACKBONES, create
from relucid.models.design import CHOICES

# Small instances: the width, and the size of the images. All but the last layers see more than one pixel, since a
# constant is cancelled there that zero padding would show elsewhere.
SMALL = {
    "mlp": ({"in_channels": 5, "hidden": (6, 6, 6)}, None),
    "feedforward": ({"depth": 4}, None),
    "alexnet": ({"width": 0.05}, 95),
    "convpool": ({"width": 0.05}, 16),
    "vgg16": ({"width": 0.05}, 32),
    "vgg6": ({"width": 0.04}, 8),
    "all_cnn_b": ({"width": 0.05}, 67),
    "resnet20": ({"width": 0.3}, 8),
    "resnet18": ({"width": 0.08}, 64),
    "resnet50": ({"width": 0.06}, 64),
    "densenet_cifar": ({"depth": 13, "growth": 4, "width": 0.5}, 8),
    "densenet121": ({"width": 0.1}, 64),
}


def designs(name):
    """All designs that make sense on a backbone, (activation, weights, norm, propagation) each."""
    activations = CHOICES["activation"] if name == "feedforward" else ("relu", "avr", "crelu")
    every = product(activations, CHOICES["weights"], CHOICES["norm"], BACKBONES[name].propagations)
    return [d for d in every if d[1:3] != ("weightnorm", "batch")]


def covering(name):
    """Designs in which each two choices meet each other somewhere."""
    remaining = designs(name)
    unmet = {pair for design in remaining for pair in pairs(design)}
    chosen = []
    while unmet:
        best = max(remaining, key=lambda design: len(unmet & pairs(design)))
        chosen.append(best)
        unmet -= pairs(best)
    return chosen


def pairs(design):
    return set(combinations(enumerate(design), 2))


def cases(select):
    return [
        pytest.param(name, design, id=f"{name}-{'-'.join(design)}")
        for name in SMALL
        for design in select(name)
    ]


def small(name, design, **more):
    options, size = SMALL[name]
    net = create(name, **dict(zip(CHOICES, design, strict=True)), **options, **more, num_classes=8)
    shape = net.input_shape if size is None else (3, size, size)
    return net, shape


def is_cancelled(name, design, parameter):
    """Shifts of the norms before the sums of a network of bottlenecks that nothing rectifies.

    What reads the sum is a 1x1 convolution and a norm, which cancels a constant. HB-Net has them all the same: its
    parameters are those of ResNet.
    """
    _, _, norm, propagation = design
    ends = (f"{'bn' if norm == 'batch' else 'mbn'}3.bias", "downsample.1.bias")
    return (
        name == "resnet50"
        and norm in ("batch", "mean")
        and propagation == "heavy_ball"
        and parameter.endswith(ends)
    )


def exposed(net):
    """The network with gradients that are 0, but for rounding, where a parameter has no effect, and only there.

    In float64; with no eps, which keeps batch norm from cancelling a scale entirely; with shifts in batch norm, since
    a ReLU alone lets a scale through to the next.
    """
    net.double()
    for module in net.modules():
        if isinstance(module, nn.modules.batchnorm._BatchNorm):
            module.eps = 1e-18
            nn.init.normal_(module.bias, std=0.1)
    return net


def check_step(name, design):
    torch.manual_seed(0)
    net, shape = small(name, design)
    exposed(net)
    x = torch.randn(8, *shape, dtype=torch.float64)
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-3)
    # Not each class once: where features are centred, the bias of the output would then have a gradient of 0.
    loss = F.cross_entropy(net(x), torch.arange(8) % 5)
    loss.backward()
    assert loss.isfinite()
    for key, parameter in net.named_parameters():
        assert parameter.grad is not None, key
        assert parameter.grad.isfinite().all(), key
        assert parameter.grad.abs().max() > 1e-13 or is_cancelled(name, design, key), key
    optimizer.step()
    assert net(x).isfinite().all()


@pytest.mark.parametrize("name, design", cases(covering))
def test_a_step_of_training_reaches_every_parameter(name, design):
    check_step(name, design)


@pytest.mark.slow
@pytest.mark.parametrize("name", SMALL)
def test_a_step_of_training_reaches_every_parameter_for_all_designs(name):
    for design in designs(name):
        check_step(name, design)


def test_the_covering_set_covers():
    for name in SMALL:
        met = set().union(*map(pairs, covering(name)))
        assert met == set().union(*map(pairs, designs(name)))


UNTRIED = {
    "resnet20": ("crelu", "geometric", "input_mean", "heavy_ball"),
    "vgg6": ("crelu", "geometric", "batch", "plain"),
}


def own(name):
    design = BACKBONES[name].design
    return (design.activation, design.weights, design.norm, design.propagation)


def tools(*slow):
    """One member of each backbone, those that take long marked, and designs that no paper tried."""
    chosen = [(name, own(name)) for name in SMALL] + list(UNTRIED.items())
    marks = {name: [pytest.mark.slow] for name in slow}
    return [
        pytest.param(name, d, marks=marks.get(name, []), id=f"{name}-{'-'.join(d)}") for name, d in chosen
    ]


SLOW_TO_COMPILE = (
    "alexnet",
    "all_cnn_b",
    "convpool",
    "densenet121",
    "resnet18",
    "resnet20",
    "resnet50",
    "vgg16",
)


@pytest.mark.parametrize("name, design", tools("densenet121", "resnet50"))
def test_networks_can_be_exported(name, design):
    net, shape = small(name, design)
    x = torch.randn(3, *shape)
    net.eval()
    program = torch.export.export(net, (x,))
    torch.testing.assert_close(program.module()(x), net(x), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name, design", tools(*SLOW_TO_COMPILE))
def test_networks_can_be_compiled_without_a_graph_break(name, design):
    net, shape = small(name, design)
    x = torch.randn(3, *shape)
    net.eval()
    torch.compiler.reset()
    compiled = torch.compile(net, backend="aot_eager", fullgraph=True)
    torch.testing.assert_close(compiled(x), net(x), rtol=1e-4, atol=1e-4)
