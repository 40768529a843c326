"""A thousand layers in constant memory: ordinary, checkpointed in segments, and reversible heavy ball."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from statistics import median
from time import process_time

import torch
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks
from torch.utils.checkpoint import checkpoint

from relucid.nn import Propagation

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
        kept, before = [], x
        for begin in range(0, len(self.layers), self.length):
            kept += [x, before]
            x, before = self.segment(begin, x, before)
        return kept

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
    return torch.cat([gradient.flatten() for gradient in torch.autograd.grad(loss, [*stage.parameters()])])


def kept(function: Callable[[Tensor], object], x: Tensor, parameters: Iterable[Tensor]) -> int:
    """Count the bytes that a forward pass keeps for the backward pass, without these parameters."""
    without = {parameter.untyped_storage().data_ptr() for parameter in parameters}
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
    parameters = [*stage.parameters()]
    if isinstance(stage, Checkpointed):
        return size(stage.ends(x)) + kept(lambda value: stage.segment(0, value, value.clone()), x, parameters)
    assert isinstance(stage, Propagation)
    recomputed = kept(stage.transforms[0], x, parameters) if stage.reversible else 0
    return kept(stage, x, parameters) + recomputed


def run(layers: int, channels: int, batch: int, steps: int, seeds: Sequence[int]) -> dict[str, list[float]]:
    """Measure the three ways in one process, alternating step by step."""
    measured: dict[str, list[float]] = {}
    for seed in seeds:
        torch.manual_seed(seed)
        sides = stages(transforms(layers, channels))
        x = torch.randn(batch, channels, 8, 8)
        gradients = {side: step(stage, x) for side, stage in sides.items()}
        seconds = _interleaved({side: partial(step, stage, x) for side, stage in sides.items()}, steps)
        expected = gradients["ordinary"]
        values = {f"kept {side}": needed(stage, x) / MEGABYTE for side, stage in sides.items()}
        values |= {f"step {side}": 1000 * seconds[side] for side in sides}
        values["gradients"] = float((gradients["reversible"] - expected).norm() / expected.norm())
        for name, value in values.items():
            measured.setdefault(name, []).append(value)
    return measured


def _interleaved(sides: Mapping[str, Callable[[], object]], steps: int) -> dict[str, float]:
    """Measure the median time of each side on the processor, which others may share, with the sides taking turns."""
    times: dict[str, list[float]] = {side: [] for side in sides}
    for _ in range(steps):
        for side, function in sides.items():
            begun = process_time()
            function()
            times[side].append(process_time() - begun)
    return {side: median(seconds) for side, seconds in times.items()}
