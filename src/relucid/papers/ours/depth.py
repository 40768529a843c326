"""A thousand layers in constant memory: ordinary, checkpointed in segments, and reversible heavy ball."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from statistics import median
from time import perf_counter
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks
from torch.utils.checkpoint import checkpoint

from relucid.nn import Propagation
from relucid.studies import Result

SIDES = ("ordinary", "checkpointed", "reversible")
MEGABYTE = 1e6


def transforms(layers: int, channels: int) -> list[nn.Module]:
    """Build layers of a ReLU and a convolution each, small enough for states to stay of one size at any depth."""
    made: list[nn.Module] = []
    for _ in range(layers):
        convolution = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        convolution.weight.data.mul_(1 / layers)
        made.append(nn.Sequential(nn.ReLU(), convolution))
    return made


class Checkpointed(nn.Module):
    """Heavy ball with beta = 1 in segments: only their ends are kept, the rest is recomputed.

    Args:
        layers: T_1, ..., T_K.
        length: of a segment; by default sqrt(K), which needs the least memory if each layer is recomputed once.
    """

    def __init__(self, layers: Sequence[nn.Module], length: int | None = None) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layers)
        self.length = length or max(1, round(math.sqrt(len(layers))))

    def forward(self, x: Tensor) -> Tensor:
        """x_K, of the shape of x_0."""
        before = x
        for begin in range(0, len(self.layers), self.length):
            x, before = checkpoint(self.segment, begin, x, before, use_reentrant=False)
        return x

    @torch.no_grad()
    def ends(self, x: Tensor) -> list[Tensor]:
        """The states that a forward pass keeps."""
        found, before = [], x
        for begin in range(0, len(self.layers), self.length):
            found += [x, before]
            x, before = self.segment(begin, x, before)
        return found

    def segment(self, begin: int, x: Tensor, before: Tensor) -> tuple[Tensor, Tensor]:
        """The last two states of a segment."""
        for layer in self.layers[begin : begin + self.length]:
            x, before = layer(x) + x - before, x
        return x, before


def stages(layers: Sequence[nn.Module]) -> dict[str, nn.Module]:
    """The same layers, joined in three ways."""
    return {
        "ordinary": Propagation(layers, "heavy_ball"),
        "checkpointed": Checkpointed(layers),
        "reversible": Propagation(layers, "heavy_ball", reversible=True),
    }


def step(stage: nn.Module, x: Tensor) -> Tensor:
    """Compute the gradients of the mean square of the outputs in all parameters, concatenated."""
    loss = stage(x).square().mean()
    return torch.cat([each.flatten() for each in torch.autograd.grad(loss, [*stage.parameters()])])


def kept(function: Callable[[Tensor], object], x: Tensor, own: Iterable[Tensor]) -> int:
    """Count the bytes that a forward pass keeps for the backward pass, without its `own` parameters."""
    without = {parameter.untyped_storage().data_ptr() for parameter in own}
    seen: list[Tensor] = []  # kept alive, so that no address is reused

    def note(value: Tensor) -> Tensor:
        seen.append(value)
        return value

    with saved_tensors_hooks(note, lambda value: value):
        _outputs = function(x)
    return size(value for value in seen if value.untyped_storage().data_ptr() not in without)


def size(tensors: Iterable[Tensor]) -> int:
    """Count the bytes of tensors, those that share their memory once."""
    storages = [tensor.untyped_storage() for tensor in tensors]
    return sum({storage.data_ptr(): storage.nbytes() for storage in storages}.values())


def needed(stage: nn.Module, x: Tensor) -> int:
    """Count the bytes that the backward pass needs: what was kept, and what it recomputes at a time."""
    own = [*stage.parameters()]
    if isinstance(stage, Checkpointed):
        return size(stage.ends(x)) + kept(lambda value: stage.segment(0, value, value.clone()), x, own)
    assert isinstance(stage, Propagation)
    recomputed = kept(stage.transforms[0], x, own) if stage.reversible else 0
    return kept(stage, x, own) + recomputed


def run(config: Mapping[str, Any]) -> Result:
    """Measure the three ways in one process, alternating step by step."""
    found: dict[str, list[float]] = {}
    for seed in config["seeds"]:
        torch.manual_seed(seed)
        sides = stages(transforms(config["layers"], config["channels"]))
        x = torch.randn(config["batch"], config["channels"], 8, 8)
        gradients = {side: step(stage, x) for side, stage in sides.items()}
        seconds = _interleaved(
            {side: partial(step, stage, x) for side, stage in sides.items()}, config["steps"]
        )
        expected = gradients["ordinary"]
        measured = {f"kept {side}": needed(stage, x) / MEGABYTE for side, stage in sides.items()}
        measured |= {f"step {side}": 1000 * seconds[side] for side in sides}
        measured["gradients"] = float((gradients["reversible"] - expected).norm() / expected.norm())
        for name, value in measured.items():
            found.setdefault(name, []).append(value)
    return Result(found)


def _interleaved(sides: Mapping[str, Callable[[], object]], steps: int) -> dict[str, float]:
    """Measure the median time of each side, with the sides taking turns."""
    times: dict[str, list[float]] = {side: [] for side in sides}
    for _ in range(steps):
        for side, function in sides.items():
            begun = perf_counter()
            function()
            times[side].append(perf_counter() - begun)
    return {side: median(each) for side, each in times.items()}
