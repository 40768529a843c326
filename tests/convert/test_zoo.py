"""Networks written by others; benchmarks/conversions_table.py has more of them."""

import pytest
import torch
from torch import nn

from relucid.convert import ConversionError, fuse, to_crelu, to_geometric, to_heavy_ball


def monai(name, shape, **options):
    nets = pytest.importorskip(
        "monai.networks.nets", reason="needs networks written by others: pip install monai"
    )
    return getattr(nets, name)(**options), torch.randn(shape)


NETWORKS = {
    "DenseNet": ("DenseNet", (4, 1, 32, 32), {"spatial_dims": 2, "in_channels": 1, "out_channels": 3}),
    "ResNet": ("resnet10", (4, 1, 16, 16, 16), {"spatial_dims": 3, "n_input_channels": 1, "num_classes": 3}),
    "UNet": (
        *("UNet", (4, 1, 16, 16)),
        {"spatial_dims": 2, "in_channels": 1, "out_channels": 3, "channels": (4, 8), "strides": (2,)}
        | {"num_res_units": 2, "act": "relu", "norm": "batch"},
    ),
}
SMALL = {"DenseNet": {"init_features": 8, "growth_rate": 4, "block_config": (2, 2)}, "ResNet": {}, "UNet": {}}


@pytest.mark.slow
@pytest.mark.parametrize("network", NETWORKS)
@pytest.mark.parametrize("conversion", [to_crelu, to_geometric, fuse])
def test_outputs_are_kept_and_training_goes_on(network, conversion):
    name, shape, options = NETWORKS[network]
    model, x = monai(name, shape, **options, **SMALL[network])
    found = conversion(model.train(), x)
    assert found.relative_error < 1e-4
    net, target = found.model, torch.zeros_like(model(x))
    optimizer, losses = torch.optim.SGD(net.parameters(), 0.01), []
    for _ in range(20):
        loss = nn.functional.mse_loss(net(x), target)
        optimizer.zero_grad()
        loss.backward()
        assert all(p.grad is not None for p in net.parameters())
        optimizer.step()
        losses.append(float(loss.detach()))
    assert losses[-1] < losses[0]


@pytest.mark.slow
@pytest.mark.parametrize("network", NETWORKS)
def test_networks_without_two_blocks_of_one_shape_in_a_row_have_no_heavy_ball(network):
    name, shape, options = NETWORKS[network]
    model, x = monai(name, shape, **options, **SMALL[network])
    with pytest.raises(ConversionError, match="two residual blocks"):
        to_heavy_ball(model, x)
