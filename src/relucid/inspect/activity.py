"""On which side of each unit's boundary the inputs lie: which units are dead, and which are never off."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import Tensor, nn

from relucid.inspect._statistics import NEEDED, Sample, interval, threads, wide
from relucid.inspect.findings import Finding, Suggestion
from relucid.inspect.measurement import LayerBatch, Measurement, StreamingMeasure, indices, plain

if TYPE_CHECKING:
    from relucid.inspect._trace import Rectified

NEARLY = 0.01  # a unit that is off on at most this share of the inputs is nearly linear
BLOCK = 1 << 18  # values counted per thread at a time: few enough to stay in its core's cache
SHORT = 32  # inner dimensions shorter than this are slow to reduce


@dataclass(frozen=True)
class Activity(Measurement):
    """How often each unit is on either side of its boundary. Vectors have one entry per unit."""

    columns: ClassVar[dict[str, str]] = {
        "dead": "units that are constant on all inputs",
        "always on": "units that are linear on all inputs",
        "nearly linear": f"units that are off on at most {NEARLY:.0%} of the inputs",
        "outside the data": "units whose boundary is farther from the origin than any input",
        "one phase": "units that pass both phases on, but lie on one side of their boundary on all inputs",
    }

    active: Tensor  #: share of places where the unit is above its boundary
    inactive: Tensor  #: share of places where it is below
    saturated: Tensor  #: share of places where it is above its second boundary, beyond which it is constant
    outside: Tensor | None  #: True where the boundary is farther from the origin than any input
    shell: tuple[float, float] | None  #: smallest and largest norm of an input
    finite: Tensor  #: False where the unit received nan or infinity
    sample: Sample  #: how many inputs were seen
    phases: int = 1  #: 2 if units pass on both sides of their boundary

    @classmethod
    def measure(cls, layer: Rectified, network: nn.Module) -> StreamingMeasure | None:
        """What counts the sides; None if the layer has no dimension of units."""
        if len(layer.shape) < 2:
            return None
        radius = None if layer.scale is None else layer.planes[0]
        first, *rest = layer.activation.boundaries
        ceiling = rest[0] - first if rest else None
        return StreamingActivity(layer.units, radius, ceiling, layer.activation.phases, layer.noun)

    @property
    def inputs(self) -> int:
        """Number of inputs seen."""
        return self.sample.inputs

    @property
    def dead(self) -> Tensor:
        """Units that were constant: never above their first boundary, or always above their second."""
        return ((self.active == 0) | (self.saturated == 1)) & self.finite

    @property
    def always_on(self) -> Tensor:
        """Units that were linear on this data: never off, and not always 0."""
        return (self.inactive == 0) & (self.saturated == 0) & ~self.dead & self.finite

    @property
    def nearly_linear(self) -> Tensor:
        """Units that were off on at most 1% of the inputs."""
        return (self.inactive > 0) & (self.inactive <= NEARLY) & (self.saturated == 0) & self.finite

    def interval(self) -> tuple[Tensor, Tensor]:
        """The 95% confidence interval of each unit's rate of activity."""
        return interval(self.active, self.inputs)

    def kinds(self) -> dict[str, Tensor]:
        """Masks of the notable units, by kind; empty if too few inputs were seen to judge."""
        if not self.sample.enough:
            return {}
        if self.phases == 2:
            return {"one phase": self.dead | self.always_on}
        masks = {"dead": self.dead, "always on": self.always_on, "nearly linear": self.nearly_linear}
        return masks if self.outside is None else masks | {"outside the data": self.outside}

    def summary(self) -> str:
        """A summary in one sentence."""
        if not self.sample.enough:
            noun = self.sample.noun
            return (
                f"too few {noun} to judge which units are dead: {self.sample}; at least {NEEDED} {noun} are needed: "
                "give them as data"
            )
        counts = [f"{int(mask.sum())} {name}" for name, mask in self.kinds().items()]
        return f"of {len(self.active)} units on {self.sample}: " + ", ".join(counts)

    def to_dict(self) -> dict[str, Any]:
        """All values, including the confidence intervals of the rates."""
        low, high = self.interval()
        more = {"inputs": self.inputs, "active_low": plain(low), "active_high": plain(high)}
        return super().to_dict() | more

    def row(self) -> dict[str, str]:
        """The number of notable units, by kind."""
        return {name: str(int(mask.sum())) for name, mask in self.kinds().items()}

    def findings(self, layer: Rectified) -> Iterator[Finding]:
        """Yield the notable kinds of units, each with a remedy if there is one."""
        seen = Sample(self.inputs, self.inputs, self.sample.noun)
        if broken := indices(~self.finite):
            trouble = (
                f"{layer.layer}: {len(broken)} of {len(self.finite)} units receive nan or infinity on {seen}"
            )
            yield Finding(layer.layer, "not finite", trouble, {"units": broken}, severity="error")
        what = {
            "dead": f"units are dead on {seen}",
            "always on": f"units are never off on {seen}",
            "nearly linear": f"units are off at most 1% of the time on {seen}",
            "outside the data": "units switch only beyond the longest input",
            "one phase": f"units never change sign on {seen}",
        }
        rate_below = float(interval(torch.zeros(()), self.inputs)[1])
        sample = {"inputs": self.inputs, "places": self.sample.places, "rate_below": rate_below}
        for kind, mask in self.kinds().items():
            if units := indices(mask):
                suggestion = remedy(layer) if kind == "dead" else None
                sentence = (
                    f"{layer.layer}: {len(units)} of {len(mask)} {what[kind]}{REMEDY if suggestion else ''}"
                )
                yield Finding(
                    layer.layer,
                    kind,
                    sentence,
                    {"units": units, **sample},
                    suggestion,
                    "warning" if kind == "dead" else "note",
                    share=len(units) / len(mask),
                )


REMEDY = "; to_crelu lets them learn again"


def remedy(layer: Rectified) -> Suggestion | None:
    """CReLU for the dead units of a layer without a norm: with batch norm, it has not helped (docs/choose.md).

    None for what the conversion refuses: a value that is returned or added, an activation inside its layer.
    """
    inside = layer.name.partition(":")[0] in layer.modules
    normed = any(source.through for source in layer.sources)
    if layer.kind != "relu" or not layer.modules or inside or normed or not layer.read_by_layers:
        return None
    return Suggestion("to_crelu", layer.modules, "expand")


class StreamingActivity(StreamingMeasure):
    """Count of the sides of its boundary on which each unit is, in constant memory.

    Args:
        units: Number of units.
        radius: Signed distance of each unit's boundary from the origin; None if there is no fixed one.
        ceiling: The second boundary relative to the first, if there is one.
        phases: 2 if units pass on both sides of their boundary.
        noun: What to call the inputs.

    >>> activity = StreamingActivity(2)
    >>> activity.update(LayerBatch(torch.tensor([[1.0, -1.0], [-2.0, -3.0]]), dim=1, inputs=2))
    >>> activity.compute().active.tolist()
    [0.5, 0.0]
    """

    def __init__(
        self,
        units: int,
        radius: Tensor | None = None,
        ceiling: float | None = None,
        phases: int = 1,
        noun: str = "inputs",
    ) -> None:
        self.radius, self.ceiling, self.phases, self.noun = radius, ceiling, phases, noun
        self.wants_shell = radius is not None
        self.counts = torch.zeros(4, units, dtype=torch.float64)  # as `_counts` returns them
        self.shell: tuple[float, float] | None = None
        self.inputs = self.places = 0

    def update(self, batch: LayerBatch) -> None:
        """Count a batch."""
        values, dim = batch.value, batch.dim
        places = values.numel() // max(values.shape[dim], 1)
        self.places += places
        self.inputs += min(batch.inputs, places)
        if batch.shell is not None:
            low, high = self.shell or batch.shell
            self.shell = min(low, batch.shell[0]), max(high, batch.shell[1])
        if values.numel():
            counts = [_counts(block, self.ceiling) for block in _blocks(values, dim)]
            self.counts += torch.stack(counts).cpu().double().sum(0)

    def compute(self) -> Activity | None:
        """The counts; None if nothing was seen."""
        if not self.places:
            return None
        active, inactive, saturated, total = self.counts / self.places
        return Activity(
            active=active,
            inactive=inactive,
            saturated=saturated,
            outside=None if self.radius is None or self.shell is None else self.radius.abs() > self.shell[1],
            shell=self.shell,
            finite=total.isfinite(),
            sample=Sample(self.inputs, self.places, self.noun),
            phases=self.phases,
        )


def _counts(block: Tensor, ceiling: float | None) -> Tensor:
    """The number of values above 0, below 0 and above a ceiling, and their sum, per unit: (4, units).

    One buffer serves them all: allocating one per comparison would dominate the time.
    """
    buffer = torch.empty_like(block)
    above, below = (_sums(compare(block, 0, out=buffer)) for compare in (torch.gt, torch.lt))
    beyond = torch.zeros_like(above) if ceiling is None else _sums(torch.gt(block, ceiling, out=buffer))
    return torch.stack([above, below, beyond, _sums(block)])


def _sums(block: Tensor) -> Tensor:
    """The sums of (outer, units, inner) by unit; a short inner dimension is slow to reduce, so it comes last."""
    return block.sum(0).sum(1) if block.shape[2] < SHORT else block.sum((0, 2))


def _blocks(values: Tensor, dim: int) -> Iterator[Tensor]:
    """Yield values as wide (outer, units, inner) blocks that fit in the cache, copying only where necessary."""
    units, size = values.shape[dim], BLOCK * threads()
    if values.stride(dim) == 1 or dim == values.dim() - 1:  # the units of a place are contiguous
        rows = values.movedim(dim, -1).reshape(-1, units)
        yield from (wide(block).unsqueeze(2) for block in rows.split(max(1, size // max(units, 1))))
        return
    whole = values.flatten(0, dim - 1) if dim > 0 else values.unsqueeze(0)
    whole = whole.flatten(2) if whole.dim() > 2 else whole.unsqueeze(2)
    for outer in whole.split(max(1, size // max(whole[0].numel(), 1))):
        yield from map(wide, outer.split(max(1, size // max(units, 1)), 2))
