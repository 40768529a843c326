import pytest
import torch
from torch import nn

from relucid.convert import ConversionError, HeavyBallSum, fuse, to_crelu, to_heavy_ball
from relucid.models import create
from relucid.nn import parameter_groups

from .networks import Block, Dense, PreBlock, example, residual, trained_a_little
from .trial import faults


def sums(net):
    return {name: m for name, m in net.named_modules() if isinstance(m, HeavyBallSum)}


@pytest.mark.parametrize(
    "block, with_previous, without",
    [(Block, {"3.sum", "6.sum"}, {"2.sum", "5.sum"}), (PreBlock, {"3.sum"}, {"2.sum", "7.sum"})],
)
def test_blocks_of_one_shape_are_joined_to_the_state_before(block, with_previous, without):
    model = trained_a_little(residual(block))
    found = sums(to_heavy_ball(model, example()).model)
    assert {name for name, m in found.items() if m.beta2 is not None} == with_previous
    assert {name for name, m in found.items() if m.beta2 is None} == without


@pytest.mark.parametrize("activation", [nn.ReLU, nn.LeakyReLU])
def test_blocks_are_found_after_to_crelu_too(activation):
    model = residual()
    for block in (m for m in model if isinstance(m, Block)):
        block.relu = activation()
    model = trained_a_little(model)
    first = to_crelu(model, example())
    conversion = to_heavy_ball(first.model, example())
    assert [m.beta2 is not None for m in sums(conversion.model).values()] == [False, True, False, True]
    x = torch.randn(3, 3, 9, 9, dtype=torch.float64)
    for training in (False, True):
        assert faults(model, conversion.model, x, training) == []


def test_learned_coefficients_give_the_recursion_of_the_paper():
    blocks = [PreBlock(3) for _ in range(3)]
    model = trained_a_little(nn.Sequential(*blocks))
    conversion = to_heavy_ball(model, example())
    for module in sums(conversion.model).values():
        module.beta1.data.fill_(0.7)
        if module.beta2 is not None:
            module.beta2.data.fill_(-0.4)
    before, x = torch.zeros_like(example()), example()
    start = x
    for block in blocks:
        x, before = (block(x) - x) + 0.7 * x - 0.4 * before, x
    assert torch.allclose(conversion.model(start), x, rtol=0, atol=1e-12)
    fused = fuse(conversion.model, start).model
    assert torch.allclose(fused(start), x, rtol=0, atol=1e-12)
    assert not sums(fused)


def test_new_parameters_have_gradients_and_no_weight_decay():
    net = to_heavy_ball(trained_a_little(residual()), example()).model
    net(example()).square().sum().backward()
    new = [p for m in sums(net).values() for p in m.parameters()]
    assert len(new) == 6
    assert all(p.grad.abs() > 0 for p in new)
    free = parameter_groups(net, 0.1)[1]["params"]
    assert all(any(p is q for q in free) for p in new)


def test_our_own_residual_network_is_joined_within_stages():
    found = sums(to_heavy_ball(create("resnet20", num_classes=5, width=0.25), example(torch.float32)).model)
    assert sum(m.beta2 is not None for m in found.values()) == 4
    assert len(found) == 7


def test_a_shortcut_through_an_identity_is_a_shortcut():
    class Shortcut(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv, self.shortcut = nn.Conv2d(3, 3, 1), nn.Identity()

        def forward(self, x):
            return self.conv(x).relu() + self.shortcut(x)

    found = sums(to_heavy_ball(nn.Sequential(Shortcut(), Shortcut()), example(torch.float32)).model)
    assert [m.beta2 is not None for m in found.values()] == [False, True]


def test_a_network_without_residual_blocks_is_refused():
    with pytest.raises(ConversionError, match="Dense has no residual block"):
        to_heavy_ball(Dense(), example(torch.float32))
