"""What holds for every conversion of every network."""

import copy
from functools import partial

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from relucid.convert import fuse, to_crelu, to_geometric

from .networks import NETWORKS, example, trained_a_little

CONVERSIONS = {
    "crelu": to_crelu,
    "geometric": to_geometric,
    "geometric, norms folded": partial(to_geometric, norm="fold"),
    "geometric, centred": lambda model, x, **kw: to_geometric(model, x, center=[x, 2 * x], **kw),
    "plain": fuse,
}
every_network = pytest.mark.parametrize("network", NETWORKS)
every_conversion = pytest.mark.parametrize("conversion", CONVERSIONS)


def build(network, dtype=torch.float64):
    return trained_a_little(NETWORKS[network](), dtype), example(dtype)


@every_network
@every_conversion
@pytest.mark.parametrize("dtype, tolerance", [(torch.float64, 1e-10), (torch.float32, 1e-4)])
def test_outputs_stay_the_same_on_other_data_and_another_batch_size(network, conversion, dtype, tolerance):
    model, x = build(network, dtype)
    converted = CONVERSIONS[conversion](model, x).model
    other = torch.randn(7, 3, 8, 8, dtype=dtype)
    difference = (converted(other) - model(other)).abs().max() / model(other).abs().max()
    assert difference <= tolerance


@every_network
@every_conversion
def test_the_original_is_left_as_it_was(network, conversion):
    model, x = build(network)
    model.train()
    state, image = copy.deepcopy(model.state_dict()), x.clone()
    structure = repr(model)
    CONVERSIONS[conversion](model, x)
    assert repr(model) == structure
    assert model.training
    assert torch.equal(x, image)
    assert all(torch.equal(value, state[name]) for name, value in model.state_dict().items())


@every_network
@every_conversion
def test_every_rectified_or_weighted_layer_is_accounted_for(network, conversion):
    model, x = build(network)
    changes = CONVERSIONS[conversion](model, x).changes
    named = {change.name for change in changes}
    weighted = {n for n, m in model.named_modules() if isinstance(m, nn.Linear | nn.modules.conv._ConvNd)}
    assert weighted <= named
    relus = {n for n, m in model.named_modules() if isinstance(m, nn.ReLU)}
    assert relus <= named
    assert all(change.reason and change.status in ("changed", "kept", "refused") for change in changes)


@every_network
@every_conversion
def test_training_goes_on(network, conversion):
    model, x = build(network)
    y = torch.randint(5, (len(x),))
    converted = CONVERSIONS[conversion](model.train(), x).model
    assert converted.training
    optimizer = torch.optim.SGD(converted.parameters(), 0.01)
    losses = []
    for _ in range(20):
        loss = F.cross_entropy(converted(x), y)
        optimizer.zero_grad()
        loss.backward()
        assert all(p.grad is not None for p in converted.parameters())
        optimizer.step()
        losses.append(float(loss.detach()))
    assert losses[-1] < losses[0]


@every_network
def test_weights_for_new_channels_are_zero_and_have_a_gradient(network):
    model, x = NETWORKS[network]().double(), example()
    converted = to_crelu(model, x).model
    converted(x).square().sum().backward()
    before = dict(model.named_parameters())
    grown = [p for name, p in converted.named_parameters() if p.dim() > 1 and p.shape != before[name].shape]
    assert grown
    for p in grown:
        assert p.grad[p == 0].count_nonzero() > 0
    assert sum(p.count_nonzero() for p in converted.parameters()) <= sum(
        p.numel() for p in model.parameters()
    )


@every_network
@every_conversion
def test_fusing_a_converted_network_gives_plain_layers_that_compute_the_same(network, conversion):
    model, x = build(network)
    fused = fuse(CONVERSIONS[conversion](model, x).model, x).model
    with torch.no_grad():
        expected = model(x)
        assert torch.allclose(fused(x), expected, rtol=0, atol=1e-10 * float(expected.abs().max()))
    ours = {type(m).__name__ for m in fused.modules() if type(m).__module__.startswith("relucid")}
    assert ours <= {"CReLU"}
