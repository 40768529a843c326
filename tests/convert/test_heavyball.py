"""Stages of residual blocks get momentum; what only looks like one is refused."""

import pytest
import torch
from torch import nn

from relucid.convert import ConversionError, fuse, to_crelu, to_heavy_ball
from relucid.models import create
from relucid.nn import parameter_groups

from .networks import Block, Dense, PreBlock, example, residual, trained_a_little
from .odd import faults


def betas(net):
    return {name: p for name, p in net.named_parameters() if "beta" in name}


@pytest.mark.parametrize("block, steps", [(Block, (3, 6)), (PreBlock, (3,))])
def test_blocks_that_follow_one_of_the_same_shape_get_a_beta(block, steps):
    net = to_heavy_ball(trained_a_little(residual(block)), example()).model
    assert isinstance(net, nn.Sequential)
    assert net.steps == steps
    assert torch.equal(net.betas, torch.zeros(len(steps), dtype=torch.float64))


def test_blocks_are_found_after_to_crelu_too():
    model = trained_a_little(residual())
    conversion = to_heavy_ball(to_crelu(model, example()).model, example())
    assert conversion.model.steps == (3, 6)
    x = torch.randn(3, 3, 9, 9, dtype=torch.float64)
    for training in (False, True):
        assert faults(model, conversion.model, x, training) == []


def test_learned_coefficients_give_the_recursion_of_the_paper():
    blocks = [PreBlock(3) for _ in range(3)]
    model = trained_a_little(nn.Sequential(*blocks))
    net = to_heavy_ball(model, example()).model
    net.betas.data.copy_(torch.tensor([0.7, -0.4], dtype=torch.float64))
    x = start = example()
    before = x
    for block, beta in zip(blocks, (0.0, 0.7, -0.4), strict=True):
        x, before = block(x) + beta * (x - before), x
    assert torch.allclose(net(start), x, rtol=0, atol=1e-12)
    assert torch.allclose(fuse(net, start).model(start), x, rtol=0, atol=1e-12)


def test_new_parameters_have_gradients_and_no_weight_decay():
    net = to_heavy_ball(trained_a_little(residual()), example()).model
    net(example()).square().sum().backward()
    assert bool((net.betas.grad.abs() > 0).all())
    assert any(net.betas is p for p in parameter_groups(net, 0.1)[1]["params"])


def test_our_own_residual_network_is_joined_within_stages():
    net = to_heavy_ball(create("resnet20", num_classes=5, width=0.25), example(torch.float32)).model
    assert {name.rpartition(".")[0] for name in betas(net)} == {"layer1", "layer2", "layer3"}


class Shortcut(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.shortcut = nn.Conv2d(3, 3, 1), nn.Identity()

    def forward(self, x):
        return self.conv(x).relu() + self.shortcut(x)


def test_a_shortcut_through_an_identity_is_a_shortcut():
    assert to_heavy_ball(nn.Sequential(Shortcut(), Shortcut()), example(torch.float32)).model.steps == (1,)


class Variational(nn.Module):
    """mu + eps * sigma."""

    def __init__(self):
        super().__init__()
        self.mu, self.sigma = nn.Conv2d(3, 3, 1), nn.Conv2d(3, 3, 1)

    def forward(self, x):
        return self.mu(x) + torch.randn_like(x) * self.sigma(x)


class Embeddings(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.places, self.fc = nn.Embedding(9, 4), nn.Embedding(9, 4), nn.Linear(4, 4)

    def forward(self, x):
        return self.fc(self.words(x) + self.places(torch.arange(x.shape[1])))


class Iterated(nn.Module):
    """Blocks that are called one by one."""

    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList([Shortcut(), Shortcut()])

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return x


class Sums(nn.Module):
    """Sums of booleans and of integers."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 3, 1)

    def forward(self, x):
        return self.conv(x) * ((x > 0) + (x > 1)) + (x.long() + x.long().abs()).sum()


@pytest.mark.parametrize(
    "model, x",
    [
        (Dense(), torch.randn(4, 3, 8, 8)),
        (nn.Sequential(Variational(), Variational()), torch.randn(4, 3, 8, 8)),
        (nn.Sequential(Embeddings()), torch.randint(9, (2, 5))),
        (Iterated(), torch.randn(4, 3, 8, 8)),
        (nn.Sequential(Sums(), Sums()), torch.randn(4, 3, 8, 8)),
    ],
)
def test_what_is_no_stage_of_residual_blocks_is_refused_with_the_reason(model, x):
    with pytest.raises(
        ConversionError, match=r"has no nn.Sequential with two residual blocks .* nn.ModuleList"
    ):
        to_heavy_ball(model, x)
