import runpy
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from relucid.models import create
from relucid.nn import parameter_groups
from relucid.nn.pairwise import PairwiseConv2d

literal = runpy.run_path(str(Path(__file__).with_name("literal.py")))["literal"]


def randomized(net):
    """Alphas and norms other than at first, where some would not be seen."""
    with torch.no_grad():
        for name, parameter in net.named_parameters():
            if "alpha" in name or "norm" in name:
                parameter.add_(0.3 * torch.randn_like(parameter))
    return net


def test_agdnet_is_one_convolution_a_pair_computed_as_one_a_layer():
    net = randomized(create("structure/agdnet40", num_classes=10))
    pairwise = literal(net)
    x = torch.randn(4, 3, 32, 32)
    ours, theirs = net(x), pairwise(x)
    torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-5)
    for output in (ours, theirs):
        F.cross_entropy(output, torch.arange(4)).backward()
    for block in ("denseblock1", "denseblock2", "denseblock3"):
        layers = list(net.get_submodule(block))[1:]
        alphas = list(pairwise.get_submodule(block).alpha)[1:]
        for layer, alpha in zip(layers, alphas, strict=True):
            torch.testing.assert_close(layer.conv1.alpha.grad, alpha.grad, rtol=1e-3, atol=1e-5)


def test_densenet_is_agdnet_without_alpha_and_beta():
    densenet = create("densenet_cifar", depth=13, num_classes=10, width=0.5)
    agdnet = create("densenet_cifar", propagation="nesterov2", beta=0.0, depth=13, num_classes=10, width=0.5)
    weights = {key.replace("conv1.conv.", "conv1."): value for key, value in agdnet.state_dict().items()}
    densenet.load_state_dict({key: value for key, value in weights.items() if not key.endswith("alpha")})
    x = torch.randn(2, 3, 16, 16)
    torch.testing.assert_close(densenet(x), agdnet(x))


def reference_densenet(net, x):
    """DenseNet in evaluation: Huang's equations, from the weights alone."""
    weights = net.state_dict()

    def norm(x, name):
        mean, var = weights[f"{name}.running_mean"], weights[f"{name}.running_var"]
        return F.batch_norm(x, mean, var, weights[f"{name}.weight"], weights[f"{name}.bias"]).relu()

    x = F.conv2d(x, weights["conv0.weight"], stride=2, padding=3)
    x = F.max_pool2d(norm(x, "norm0"), 3, 2, 1)
    for block, count in enumerate((6, 12, 24, 16), start=1):
        for k in range(count):
            layer = f"denseblock{block}.{k}"
            y = F.conv2d(norm(x, f"{layer}.norm1"), weights[f"{layer}.conv1.weight"])
            y = F.conv2d(norm(y, f"{layer}.norm2"), weights[f"{layer}.conv2.weight"], padding=1)
            x = torch.cat((x, y), 1)
        if block < 4:
            name = f"transition{block}"
            x = F.avg_pool2d(F.conv2d(norm(x, f"{name}.norm"), weights[f"{name}.conv.weight"]), 2)
    return F.linear(norm(x, "norm5").mean((2, 3)), weights["classifier.weight"], weights["classifier.bias"])


def test_densenet121_is_huangs():
    net = create("densenet121", num_classes=5, width=0.2).double()
    x = torch.randn(4, 3, 64, 64, dtype=torch.float64)
    net(x)
    net.eval()
    torch.testing.assert_close(net(x), reference_densenet(net, x), rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("weights", ["standard", "weightnorm", "geometric"])
@pytest.mark.parametrize("activation", ["relu", "crelu"])
def test_alpha_scales_what_each_predecessor_contributes(weights, activation):
    choices = {"weights": weights, "activation": activation, "norm": "none", "propagation": "nesterov2"}
    net = create("densenet_cifar", depth=13, num_classes=5, width=0.25, **choices)
    layer = net.denseblock1[2]
    first, growth = net.conv0.out_channels, layer.conv1.conv.out_channels
    x = torch.randn(2, first + 2 * growth, 8, 8)
    before = layer(x)
    with torch.no_grad():
        layer.conv1.alpha[1] = 0.0
    without = x.clone()
    without[:, first : first + growth] = 0  # an activation of 0 is 0 in both phases
    assert not torch.allclose(before, layer(x))
    changed = layer(x)
    with torch.no_grad():
        layer.conv1.alpha[1] = 1.0
    torch.testing.assert_close(changed, layer(without))


@pytest.mark.parametrize("norm", ["batch", "none"])
@pytest.mark.parametrize("name", ["structure/agdnet40", "structure/agdnet121"])
def test_twice_the_alphas_of_a_layer_make_twice_its_output(name, norm):
    net = create(name, norm=norm, num_classes=5, width=0.1).double()
    layer = net.denseblock1[2]
    for module in layer.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.eps = 1e-18  # a larger one keeps batch norm from cancelling a factor entirely
        elif isinstance(module, nn.Conv2d) and module.bias is not None:
            assert not module.bias.any()  # a bias stands outside the sum of Eq. 21
    x = torch.randn(2, layer.conv1.conv.in_channels, 8, 8, dtype=torch.float64)
    once = layer(x)
    with torch.no_grad():
        for module in layer.modules():
            if isinstance(module, PairwiseConv2d):
                module.alpha.mul_(2)
    torch.testing.assert_close(layer(x), 2 * once, rtol=1e-12, atol=1e-12)


def test_alpha_is_not_decayed():
    net = create("structure/agdnet40", num_classes=10, width=0.25)
    _, kept = parameter_groups(net, 1e-4)
    alphas = {id(m.alpha) for m in net.modules() if isinstance(m, PairwiseConv2d)}
    assert len(alphas) == 33
    assert alphas <= {id(p) for p in kept["params"]}


def test_dropout_follows_every_convolution_but_the_first():
    net = create("structure/densenet40", dropout=0.2, num_classes=10, width=0.25)
    assert sum(isinstance(m, nn.Dropout) and m.p == 0.2 for m in net.modules()) == 38
    assert list(dict(net.denseblock1[0].named_children())) == ["norm1", "act1", "conv1", "dropout"]
    assert list(dict(net.transition2.named_children())) == ["norm", "act", "conv", "dropout", "pool"]
