"""Mixed precision trains as single precision does, and only equal arithmetic is compared."""

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from relucid.data import digits
from relucid.models import create
from relucid.nn import GeometricLayer, MeanNorm
from relucid.train import Machine, Recipe, fit
from relucid.train.platform import check

STEPS, PER_EPOCH, BATCH = 50, 10, 64
DESIGNS = {
    "CReLU": {"activation": "crelu"},
    "geometric": {"weights": "geometric", "norm": "input_mean"},
    "heavy ball": {"propagation": "heavy_ball"},
}


def network_of(design):
    torch.manual_seed(0)
    return create("resnet8", num_classes=10, in_channels=1, width=0.5, **DESIGNS[design])


def losses_of(network, precision):
    """The losses of 50 steps, and the types of all gradients."""
    losses, types = [], set()

    def loss(outputs, targets):
        value = cross_entropy(outputs, targets)
        losses.append(value.item())
        return value

    for parameter in network.parameters():
        parameter.register_hook(lambda gradient: types.add(gradient.dtype))
    part = digits().train.take(range(PER_EPOCH * BATCH))
    recipe = Recipe(epochs=STEPS // PER_EPOCH, batch_size=BATCH, lr=0.05, loss=loss)
    fit(network, part, recipe, machine=Machine(precision=precision))
    return torch.tensor(losses), types


@pytest.mark.parametrize("design", DESIGNS)
def test_fifty_steps_in_bfloat16_lose_as_much_as_in_single_precision(design):
    single, mixed = network_of(design), network_of(design)
    (expected, _), (losses, types) = losses_of(single, "32-true"), losses_of(mixed, "bf16-mixed")
    assert len(losses) == STEPS
    assert types == {torch.float32}
    apart = (losses - expected).abs()
    assert 0 < apart[0] < 0.02  # outputs are rounded to 8 bits
    assert apart.mean() < 0.05 * expected.mean()


@pytest.mark.parametrize("design", DESIGNS)
def test_statistics_and_directions_stay_in_single_precision(design):
    network, directions = network_of(design), []
    layers = [module for module in network.modules() if isinstance(module, GeometricLayer)]
    for layer in layers:
        layer.register_forward_hook(lambda layer, inputs, output: directions.append(layer.direction))
    losses_of(network, "bf16-mixed")
    norms = [m for m in network.modules() if isinstance(m, MeanNorm | nn.BatchNorm2d)]
    assert norms
    for values in (*(norm.running_mean for norm in norms), *directions):
        assert values.dtype == torch.float32
        assert not values.equal(values.bfloat16().float())  # nor were they rounded on the way
    assert all((u.norm(dim=1) - 1).abs().max() < 1e-5 for u in directions)
    assert bool(directions) == (design == "geometric")


def test_a_precision_that_a_device_cannot_do_is_refused_before_training():
    with pytest.raises(ValueError, match="precision 'bf16-mixed' cannot be used on meta"):
        check(Machine(precision="bf16-mixed", accelerator="meta"))
    with pytest.raises(ValueError, match="'8-mixed'"):
        Recipe(epochs=1, precision="8-mixed")
