"""On which side of each unit's boundary the inputs lie: which units are dead, and which are never off."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import Tensor

from relucid.inspect.blocks import threads, wide
from relucid.inspect.boundary import hyperplanes, planes_of
from relucid.inspect.evidence import NEEDED, Sample, interval
from relucid.inspect.findings import Finding, Suggestion
from relucid.inspect.measurement import ExaminedNetwork, Gauge, Measurement, Seen, indices, plain

if TYPE_CHECKING:
    from relucid.inspect.trace import Rectified

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
    distance: Tensor | None  #: mean distance from the inputs to the boundary
    nearest: Tensor | None  #: smallest such distance
    outside: Tensor | None  #: True where the boundary is farther from the origin than any input
    shell: tuple[float, float] | None  #: smallest and largest norm of an input
    finite: Tensor  #: False where the unit received nan or infinity
    sample: Sample  #: how many inputs were seen
    phases: int = 1  #: 2 if units pass on both sides of their boundary

    @classmethod
    def measure(cls, layer: Rectified, network: ExaminedNetwork) -> Gauge | None:
        """A counter; None if the layer has no dimension of units."""
        return _ActivityGauge(layer, network) if len(layer.shape) > 1 else None

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

    @property
    def silent(self) -> Tensor:
        """Units with a constant output: dead ones, or, if they pass on both phases, those that were always 0."""
        return self.dead if self.phases == 1 else (self.active == 0) & (self.inactive == 0) & self.finite

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
            trouble = f"{len(broken)} of {len(self.finite)} units receive nan or infinity on {seen}"
            yield Finding(
                layer.layer, "not finite", f"{layer.layer}: {trouble}", {"units": broken}, severity="error"
            )
        what = {
            "dead": f"units are dead on {seen}",
            "always on": f"units are never off on {seen}",
            "nearly linear": f"units are off at most 1% of the time on {seen}",
            "outside the data": "units switch only beyond the longest input",
            "one phase": f"units never change sign on {seen}",
        }
        evidence = {
            "inputs": self.inputs,
            "places": self.sample.places,
            "rate_below": float(interval(torch.zeros(()), self.inputs)[1]),
        }
        for kind, mask in self.kinds().items():
            if units := indices(mask):
                suggestion = remedy(layer) if kind == "dead" else None
                words = REMEDY if suggestion else ""
                sentence = f"{layer.layer}: {len(units)} of {len(mask)} {what[kind]}{words}"
                share, severity = len(units) / len(mask), "warning" if kind == "dead" else "note"
                found = {"units": units, **evidence}
                yield Finding(layer.layer, kind, sentence, found, suggestion, severity, share)  # type: ignore[arg-type]


REMEDY = "; to_crelu lets them learn again"


def remedy(layer: Rectified) -> Suggestion | None:
    """CReLU for the dead units of a layer without a norm: with batch norm, it has not helped (docs/choose.md)."""
    inside = layer.name.partition(":")[0] in layer.modules  # the layer contains its activation
    normed = any(source.through for source in layer.sources)
    if layer.kind != "relu" or not layer.modules or inside or normed:
        return None
    return Suggestion("to_crelu", layer.modules, "expand")


class ActivityCounter:
    """Counter that accumulates an `Activity` batch by batch in constant memory.

    Args:
        units: Number of units.
        weight: Weights of the units with norms folded in; without them, distances are not measured.
        bias: Biases of the units.

    >>> counter = ActivityCounter(2)
    >>> counter.update(torch.tensor([[1.0, -1.0], [-2.0, -3.0]]))
    >>> counter.result().active.tolist(), counter.result().dead.tolist()
    ([0.5, 0.0], [False, True])
    """

    def __init__(self, units: int, weight: Tensor | None = None, bias: Tensor | None = None) -> None:
        self.positive, self.negative, self.above, self.total = torch.zeros(4, units, dtype=torch.float64)
        self.least = torch.full((units,), torch.inf, dtype=torch.float64)
        self.planes: tuple[Tensor, Tensor] | None = None
        if weight is not None:
            lengths = weight.flatten(1).double().norm(dim=1).cpu()
            self.planes = hyperplanes(weight, bias).radius.double().cpu(), lengths
        self.shell: tuple[float, float] | None = None
        self.ceiling: float | None = None  # the second boundary, relative to the first
        self.phases = 1
        self.inputs = self.places = 0
        self.noun = "inputs"

    def update(self, values: Tensor, inputs: int | None = None) -> None:
        """Add pre-activations (units, places) of ``inputs`` inputs; by default every place is an input of its own."""
        self.count(values, 0, values.shape[1] if inputs is None else inputs)

    def count(self, values: Tensor, dim: int, inputs: int) -> None:
        """Add pre-activations whose units are in dimension ``dim``."""
        places = values.numel() // max(values.shape[dim], 1)
        self.places += places
        self.inputs += min(inputs, places)
        if not places or not len(self.total):
            return
        found = [_counts(block) for block in _blocks(values, dim)]
        positive, total, least = (torch.stack(each).cpu() for each in zip(*found, strict=True))
        number = positive.double().sum(0)
        self.positive += number
        # Counting negative values takes time; unless some are 0 or nan, they are those that are not positive.
        exact = bool((least > 0).all())
        self.negative += places - number if exact else _number(values, dim, torch.lt, 0)
        self.total += total.double().sum(0)
        torch.minimum(self.least, least.amin(0), out=self.least)
        if self.ceiling is not None:
            self.above += _number(values, dim, torch.gt, self.ceiling)

    def update_shell(self, lengths: Tensor) -> None:
        """Add the norms of some inputs."""
        self.widen(float(lengths.min()), float(lengths.max()))

    def widen(self, low: float, high: float) -> None:
        """Add the smallest and the largest norm of some inputs."""
        self.shell = (
            (low, high) if self.shell is None else (min(low, self.shell[0]), max(high, self.shell[1]))
        )

    def result(self) -> Activity:
        """The activity so far."""
        radius, lengths = (None, None) if self.planes is None else self.planes
        shell = self.shell
        return Activity(
            active=self.positive / self.places,
            inactive=self.negative / self.places,
            saturated=self.above / self.places,
            distance=None if lengths is None else self.total / self.places / lengths,
            nearest=None if lengths is None else self.least / lengths,
            outside=None if radius is None or shell is None else radius.abs() > shell[1],
            shell=shell,
            finite=self.total.isfinite(),
            sample=Sample(self.inputs, self.places, self.noun),
            phases=self.phases,
        )


class _ActivityGauge(Gauge):
    """`ActivityCounter` for a rectified layer."""

    def __init__(self, layer: Rectified, network: ExaminedNetwork) -> None:
        self.counter = ActivityCounter(layer.units)
        if layer.scale is not None:
            radius, lengths = network.once(planes_of, layer)
            self.counter.planes = radius.cpu(), lengths.cpu()
            self.wants_shell = True
        first, *rest = layer.activation.boundaries
        self.counter.ceiling = rest[0] - first if rest else None
        self.counter.phases = layer.activation.phases
        self.counter.noun = "images" if len(layer.shape) == 4 and layer.channel_dim == 1 else "inputs"

    def see(self, seen: Seen) -> None:
        """Count a batch."""
        self.counter.count(seen.value, seen.dim, seen.inputs)
        if seen.shell is not None:
            self.counter.widen(*seen.shell)

    def result(self) -> Activity | None:
        """The counts; None if nothing was seen."""
        return self.counter.result() if self.counter.places else None


def _counts(block: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The number of positive values, the sum of all sizes and the least of them per unit, of a block.

    One buffer serves them all: allocating one per comparison would dominate the time.
    """
    size = torch.abs(block)
    total, least = _by_unit(size, torch.sum), _by_unit(size, torch.amin)
    return _by_unit(torch.gt(block, 0, out=size), torch.sum), total, least


def _number(values: Tensor, dim: int, compare: Callable[..., Tensor], bound: float) -> Tensor:
    """The number of values per unit for which a comparison with ``bound`` holds."""
    blocks = _blocks(values, dim)
    counts = [_by_unit(compare(x, bound, out=torch.empty_like(x)), torch.sum) for x in blocks]
    return torch.stack(counts).cpu().double().sum(0)


def _by_unit(block: Tensor, reduce: Callable[..., Tensor]) -> Tensor:
    """Reduce (outer, units, inner) to (units,); a short inner dimension is slow, so it comes last."""
    return reduce(reduce(block, 0), 1) if block.shape[2] < SHORT else reduce(block, (0, 2))


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
