"""Whether the layer after a CReLU treats the two phases of a unit differently."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch.nn.functional as F
from torch import Tensor, nn

from relucid.inspect.findings import Finding
from relucid.inspect.measurement import Measurement, plain
from relucid.printing import Summarized

if TYPE_CHECKING:
    from relucid.inspect._trace import Rectified

ALIKE = 0.99  # from this mean |cosine| of the outgoing weights on, a layer treats both phases alike


@dataclass(frozen=True)
class PhaseCorrelation(Summarized):
    """Cosines between the outgoing weights of positive and negative phases (crelu Table 6)."""

    pair: tuple[float, float]  #: mean and standard deviation of |cosine| over the two phases of the same unit
    non_pair: tuple[float, float]  #: the same over phases of different units; nan if there is only one unit
    cosines: Tensor  #: (units, units), signed: positive phase of unit i with negative phase of unit j

    def summary(self) -> str:
        """A summary in one sentence, like a row of Table 6."""
        return "pair {:.3f} ± {:.3f}, non-pair {:.3f} ± {:.3f}".format(*self.pair, *self.non_pair)


@dataclass(frozen=True)
class PhaseCorrelations(Measurement):
    """How each layer that reads a CReLU treats the two phases."""

    by_reader: dict[str, PhaseCorrelation]

    @classmethod
    def measure(cls, layer: Rectified, network: nn.Module) -> PhaseCorrelations | None:
        """Measure every layer that reads both phases of all units; None if there is none."""
        channels = 2 * layer.units
        readers = [s for s in layer.readers if s.groups == 1 and s.weight.shape[1] % channels == 0]
        if layer.doubled != layer.units or not readers:
            return None
        return cls({s.name: phase_correlation(s.weight, channels) for s in readers})

    def summary(self) -> str:
        """One line per reader."""
        return "\n".join(f"{name}: {correlation.summary()}" for name, correlation in self.by_reader.items())

    def to_dict(self) -> dict[str, Any]:
        """Means and standard deviations, by reader."""
        return {
            name: {"pair": plain(p.pair), "non_pair": plain(p.non_pair)} for name, p in self.by_reader.items()
        }

    def findings(self, layer: Rectified) -> Iterator[Finding]:
        """Yield the readers that undo the split."""
        for reader, correlation in self.by_reader.items():
            if correlation.pair[0] >= ALIKE:
                what = f"{reader} gives both phases the same weights up to sign"
                evidence = {"reader": reader, "pair": correlation.pair[0]}
                yield Finding(layer.layer, "undone split", f"{layer.layer}: {what}", evidence)


def phase_correlation(weight: Tensor, channels: int | None = None) -> PhaseCorrelation:
    """Measure how similar the outgoing weights of a unit's positive and negative phase are.

    1 means that the next layer undoes the split: it sees only x or only |x| of each unit. We average absolute
    values. So must crelu Table 6: signed cosines of different units would average about 0, not 0.080 to 0.165.

    Args:
        weight: (out, 2 x units, ...), the weight of the layer after CReLU, positive phases first.
        channels: 2 x units, needed if the layer is linear and follows a flattened map: (out, channels x places).

    >>> import torch
    >>> weight = torch.tensor([[1.0, 0.0, -1.0, 0.0], [0.0, 1.0, 0.0, 0.0], [0.0, 0.0, 0.0, 1.0]])
    >>> print(phase_correlation(weight).summary())
    pair 0.500 ± 0.707, non-pair 0.000 ± 0.000
    """
    inputs = weight.shape[1] if weight.dim() > 1 else 0
    channels = inputs if channels is None else channels
    if not inputs or channels % 2 or inputs % channels:
        raise ValueError(
            f"phase_correlation needs weights (out, 2 x units, ...) of a layer after CReLU; "
            f"got {tuple(weight.shape)} with channels={channels}"
        )
    outgoing = weight.detach().float().unflatten(1, (channels, -1)).transpose(0, 1).flatten(1)
    positive, negative = F.normalize(outgoing, dim=1).chunk(2)
    cosines = positive @ negative.T
    size = cosines.abs()
    same_unit = size.diagonal()
    others = size.flatten()[:-1].view(len(size) - 1, len(size) + 1)[:, 1:].flatten()  # off the diagonal
    return PhaseCorrelation(_mean_and_deviation(same_unit), _mean_and_deviation(others), cosines)


def _mean_and_deviation(values: Tensor) -> tuple[float, float]:
    if not len(values):
        return float("nan"), float("nan")
    return float(values.mean()), float(values.std(correction=min(1, len(values) - 1)))
