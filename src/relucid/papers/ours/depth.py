"""Depth at constant memory: what ordinary and reversible heavy ball keep for the backward pass, and their time."""

from collections.abc import Callable, Mapping
from functools import partial
from statistics import median
from time import perf_counter
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks

from relucid.nn import Propagation
from relucid.studies.run import Result

STEPS = 5  # timed; the median counts
MEGABYTE = 1e6


def transforms(layers: int, channels: int) -> list[nn.Module]:
    """Build layers of a ReLU and a convolution each."""
    return [
        nn.Sequential(nn.ReLU(), nn.Conv2d(channels, channels, 3, padding=1, bias=False))
        for _ in range(layers)
    ]


def step(stage: nn.Module, x: Tensor) -> Tensor:
    """Compute the gradients of the mean square of the outputs in all parameters, concatenated."""
    loss = stage(x).square().mean()
    return torch.cat([each.flatten() for each in torch.autograd.grad(loss, [*stage.parameters()])])


def kept(stage: nn.Module, x: Tensor) -> int:
    """Count the bytes that a forward pass keeps for the backward pass, without parameters."""
    own = {parameter.untyped_storage().data_ptr() for parameter in stage.parameters()}
    sizes: dict[int, tuple[Tensor, int]] = {}

    def note(value: Tensor) -> Tensor:
        storage = value.untyped_storage()
        if storage.data_ptr() not in own:
            sizes[storage.data_ptr()] = (
                value,
                storage.nbytes(),
            )  # kept alive, so that its address is not reused
        return value

    with saved_tensors_hooks(note, lambda value: value):
        _outputs = stage(x)
    return sum(size for _, size in sizes.values())


def run(config: Mapping[str, Any]) -> Result:
    """Measure both sides in one process, alternating step by step."""
    torch.manual_seed(config["seed"])
    shared = transforms(config["layers"], config["channels"])
    for layer in shared:
        layer.get_parameter("1.weight").data.mul_(
            1 / config["layers"]
        )  # states stay of one size at any depth
    x = torch.randn(config["batch"], config["channels"], 8, 8)
    sides = {
        "ordinary": Propagation(shared, "heavy_ball"),
        "reversible": Propagation(shared, "heavy_ball", reversible=True),
    }
    expected, found = (step(stage, x) for stage in sides.values())
    seconds = _interleaved({side: partial(step, stage, x) for side, stage in sides.items()})
    metrics = {f"kept {side}": kept(stage, x) / MEGABYTE for side, stage in sides.items()}
    metrics |= {f"step {side}": 1000 * seconds[side] for side in sides}
    return Result({**metrics, "gradients": float((found - expected).norm() / expected.norm())})


def _interleaved(sides: Mapping[str, Callable[[], object]]) -> dict[str, float]:
    """Measure the median time of each side, with the sides taking turns."""
    times: dict[str, list[float]] = {side: [] for side in sides}
    for _ in range(STEPS):
        for side, function in sides.items():
            begun = perf_counter()
            function()
            times[side].append(perf_counter() - begun)
    return {side: median(each) for side, each in times.items()}
