"""The interface of all measurements.

A measurement is a frozen dataclass that holds the results for one rectified layer. Its class knows how to measure:
directly from the weights, or with a `StreamingMeasure` that is updated while data pass. The network runs over the data
once for all of them.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Self

from torch import Tensor, nn

from relucid.printing import Summarized

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

    from relucid.inspect._trace import Rectified
    from relucid.inspect.findings import Finding


@dataclass(frozen=True)
class LayerBatch:
    """What passes a rectified layer in one batch. Do not keep references: memory must not grow with the data."""

    value: Tensor  #: pre-activations in the layer's shape; units switch at 0 and are active above it
    dim: int  #: the dimension of ``value`` that holds the units
    inputs: int  #: number of inputs in the batch
    output: Tensor | None = None  #: what the activation made of them; the second phases of a CReLU come last
    shell: tuple[float, float] | None = None  #: smallest and largest norm of the inputs of the layer's weight

    @property
    def by_unit(self) -> Tensor:
        """``value`` as (units, places), the positions of all inputs in a row."""
        return self.value.movedim(self.dim, 0).flatten(1)


class StreamingMeasure(ABC):
    """Measure of one layer that is updated while data pass."""

    wants_shell: bool = False  #: whether to compute `LayerBatch.shell`

    @abstractmethod
    def update(self, batch: LayerBatch) -> None:
        """Add a batch."""

    @abstractmethod
    def compute(self) -> Measurement | None:
        """The measurement; None if nothing was seen."""


class Measurement(Summarized, ABC):
    """Base class of the results for one rectified layer."""

    columns: ClassVar[Mapping[str, str]] = {}  #: headings of its columns in the table, with their meanings

    @classmethod
    @abstractmethod
    def measure(cls, layer: Rectified, network: nn.Module) -> Self | StreamingMeasure | None:
        """The measurement of a layer, what will compute it from the data, or None if it does not apply."""

    @abstractmethod
    def summary(self) -> str:
        """A summary in one sentence."""

    def to_dict(self) -> dict[str, Any]:
        """Plain lists, numbers and strings, ready for JSON."""
        return plain_fields(self)

    def row(self) -> dict[str, str]:
        """Its cells of the table, by heading."""
        return {}

    def figures(self) -> dict[str, Figure]:
        """Its figures, by title; import Plotly here and nowhere else."""
        return {}

    def findings(self, layer: Rectified) -> Iterator[Finding]:
        """Yield the notable facts."""
        return iter(())


def plain(value: Any) -> Any:
    """Convert tensors to lists, dataclasses to dictionaries, and nan and infinity, which JSON lacks, to None.

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
        return plain_fields(value)
    return value


def plain_fields(result: Any) -> dict[str, Any]:
    """The fields of a dataclass as plain values."""
    return {name: plain(getattr(result, name)) for name in result.__dataclass_fields__}


def indices(mask: Tensor) -> list[int]:
    """The indices at which a mask is True."""
    return [int(index) for index in mask.nonzero()]
