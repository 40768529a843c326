"""Whole networks: written by others, with the weights that their packages ship, and of our own designs."""

import copy
import warnings
from pathlib import Path

import pytest
import torch
from torch import nn

from relucid.inspect import examine, trace
from relucid.models import create


@pytest.fixture(scope="module")
def segmentation():
    """DeepSea's cell segmentation: batch norm, in-place ReLUs, residual sums, concatenations."""
    import deepsea
    from deepsea.model import DeepSeaSegmentation

    net = DeepSeaSegmentation(n_channels=1, n_classes=2)
    path = Path(deepsea.__file__).parent / "trained_models" / "segmentation.pth"
    net.load_state_dict(torch.load(path, map_location="cpu", weights_only=True))
    return net


def cells(count):
    """Blobs on a grey ground."""
    y, x = torch.meshgrid(torch.arange(64.0), torch.arange(64.0), indexing="ij")
    places = torch.rand(count, 12, 2, 1, 1) * 64
    distance = (y - places[:, :, 0]).square() + (x - places[:, :, 1]).square()
    return (
        (0.5 + (-distance / 20).exp().sum(1) - 0.5 * (-distance / 60).exp().sum(1)).unsqueeze(1).clamp(0, 1)
    )


@pytest.mark.needs("deepsea")
def test_a_published_network_is_examined_without_a_change_to_it(segmentation):
    segmentation.train()
    before = copy.deepcopy(segmentation.state_dict())
    images = cells(4)
    examination = examine(segmentation, images[:1], list(images.split(2)))
    assert segmentation.training
    assert all(torch.equal(value, before[name]) for name, value in segmentation.state_dict().items())
    blocks = [f"res{i}" for i in range(1, 6)]
    assert [layer.name for layer in examination.layers] == [
        name for b in blocks for name in (f"{b}.double_conv.0", f"{b}.double_conv.4 + {b}.conv1d")
    ]
    assert [layer.rectified.name for layer in examination.layers] == [
        name for b in blocks for name in (f"{b}.double_conv.2", f"{b}.relu")
    ]
    assert examination.unattributed == (("conv3", "feeds the output"), ("conv4", "feeds the output"))


@pytest.mark.needs("deepsea")
def test_sides_of_a_published_network_are_those_that_hooks_see(segmentation):
    images = cells(4)
    shares = {}
    handles = [
        module.register_forward_pre_hook(
            lambda _, args, name=name: shares.update({name: (args[0] > 0).double().mean((0, 2, 3))})
        )
        for name, module in segmentation.named_modules()
        if isinstance(module, nn.ReLU)
    ]
    with torch.no_grad():
        segmentation.eval()(images)
    for handle in handles:
        handle.remove()
    examination = examine(segmentation, images)
    assert len(shares) == 10
    for name, share in shares.items():
        torch.testing.assert_close(examination[name].activity.active, share)


@pytest.mark.needs("silero_vad")
def test_a_published_torchscript_network_is_seen_through():
    from silero_vad import load_silero_vad

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # TorchScript is deprecated, but this is how it is published
        net = load_silero_vad()
        examination = trace(net, (torch.randn(1, 512), 16_000))
    encoder = [f"_model.encoder.{i}.reparam_conv" for i in range(4)]
    assert [r.layer for r in examination.rectified] == [*encoder, "relu#5"]
    assert all(r.obstacle == "" for r in examination.rectified[:4])
    assert "no weight feeds it" in examination.rectified[4].obstacle  # it follows a recurrent cell


@pytest.mark.parametrize("activation", ["relu", "avr", "crelu"])
@pytest.mark.parametrize(
    "weights, norm", [("standard", "batch"), ("weightnorm", "mean"), ("geometric", "input_mean")]
)
@pytest.mark.parametrize(
    "name, propagation", [("vgg6", None), ("resnet8", "residual"), ("resnet8", "heavy_ball")]
)
def test_every_rectification_of_our_own_designs_is_attributed(name, activation, weights, norm, propagation):
    choices = {"activation": activation, "weights": weights, "norm": norm, "propagation": propagation}
    net = create(name, num_classes=3, width=0.25, **choices)
    examination = trace(net, torch.randn(1, 3, 32, 32))
    assert examination.rectified
    assert {r.kind for r in examination.rectified} <= {activation, "relu"}
    assert activation in {r.kind for r in examination.rectified}
    assert all(r.sources for r in examination.rectified)
    assert all(reason.startswith("feeds") for _, reason in examination.unattributed)  # a sum, or the output


@pytest.mark.slow
def test_every_rectification_of_a_resnet_50_is_examined():
    examination = examine(create("resnet50", num_classes=1000), torch.randn(8, 3, 224, 224))
    assert len(examination.layers) == 49
    assert all(layer.activity is not None and layer.pairing for layer in examination.layers)
