"""What all measurements have in common.

A measurement is a frozen dataclass that holds what was found of one rectified layer. Its class knows how to measure:
from the weights at once, or by a `Gauge` that watches the layer while data passes. A network runs once for all gauges.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Self, TypeVar

from torch import Tensor, nn

from relucid.printing import Summarized

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

    from relucid.inspect.execution import Batch
    from relucid.inspect.findings import Finding
    from relucid.inspect.trace import Rectified

T = TypeVar("T")


@dataclass(frozen=True)
class Network:
    """What is examined, for measurements that need more than one layer and one pass."""

    model: nn.Module
    example: Batch
    data: Any = None
    _made: dict[Any, Any] = field(default_factory=dict)

    def once(self, make: Callable[[Network], T]) -> T:
        """Return what ``make`` makes of the network; it is made once, however many layers ask for it."""
        if make not in self._made:
            self._made[make] = make(self)
        made: T = self._made[make]
        return made


@dataclass(frozen=True)
class Seen:
    """What one batch gives to a rectified layer. Nothing of it may be kept: memory must not grow with the data."""

    value: Tensor  #: of the layer's shape; its units switch at 0 and are active above
    dim: int  #: the dimension of ``value`` that holds the units
    inputs: int  #: how many inputs the batch has
    first: int  #: the number of the first of them, in all of the data
    labels: Tensor | None  #: (inputs,)
    shell: tuple[float, float] | None  #: the least and the largest length of what the layer's weight is given

    @property
    def by_unit(self) -> Tensor:
        """(units, places), all inputs' positions one after the other."""
        return self.value.movedim(self.dim, 0).flatten(1)

    @property
    def by_input(self) -> Tensor | None:
        """(inputs, units, positions); None where inputs are not told apart."""
        value = self.value.movedim(self.dim, -1)
        elsewhere = value.dim() > 2 and len(value) != self.inputs == value.shape[1]
        if value.dim() < 2 or len(value) % self.inputs or elsewhere:
            return None
        return value.reshape(self.inputs, -1, value.shape[-1]).transpose(1, 2)


class Gauge(ABC):
    """Watches one layer while data passes."""

    wants_shell: bool = False  #: whether `Seen.shell` should be worked out

    @abstractmethod
    def see(self, seen: Seen) -> None:
        """Take in a batch."""

    @abstractmethod
    def result(self) -> Measurement | None:
        """Return what was found; None if nothing was seen."""


class Measurement(Summarized, ABC):
    """What was found of one rectified layer."""

    columns: ClassVar[Mapping[str, str]] = {}  #: of the table: the heading, and what stands below it

    @classmethod
    @abstractmethod
    def measure(cls, layer: Rectified, network: Network) -> Self | Gauge | None:
        """Return the measurement of a layer, a gauge that will have it, or None where it does not apply."""

    @abstractmethod
    def summary(self) -> str:
        """Return it in a sentence."""

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain lists, numbers and strings, ready for JSON."""
        found: dict[str, Any] = plain(self)
        return found

    def row(self) -> dict[str, str]:
        """Return what stands in the table, by heading."""
        return {}

    def figures(self) -> dict[str, Figure]:
        """Return its figures, by title; Plotly is imported here and nowhere else."""
        return {}

    def findings(self, layer: Rectified) -> Iterator[Finding]:
        """Yield what is conspicuous."""
        return iter(())


def plain(value: Any) -> Any:
    """Return tensors as lists, dataclasses as dictionaries, and nan or infinity, which JSON lacks, as None.

    >>> plain({"x": (1.0, float("nan"))})
    {'x': [1.0, None]}
    """
    if isinstance(value, Tensor):
        return plain(value.tolist())
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, list | tuple):
        return [plain(v) for v in value]
    if isinstance(value, Mapping):
        return {k: plain(v) for k, v in value.items()}
    if hasattr(value, "__dataclass_fields__"):
        return {name: plain(getattr(value, name)) for name in value.__dataclass_fields__}
    return value


def indices(mask: Tensor) -> list[int]:
    """Return where a mask is True."""
    found: list[int] = mask.nonzero().flatten().tolist()
    return found
