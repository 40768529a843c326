"""How able a layer is to learn on: dormant units, the rank of its features, and the norms of weights and gradients."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import torch
from torch import Tensor

from relucid.inspect.activity import REMEDY, remedy
from relucid.inspect.blocks import wide
from relucid.inspect.evidence import Sample
from relucid.inspect.features import LARGEST, effective_rank, stable_rank
from relucid.inspect.findings import Finding
from relucid.inspect.measurement import ExaminedNetwork, Gauge, Measurement, Seen, indices
from relucid.nn.kinds import Kind

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

    from relucid.inspect._trace import Rectified

# A unit is dormant if its activity is at most this share of its layer's mean (Sokar et al. 2023).
DORMANT = 0.1
MANY = 0.1  # share of dormant units in a layer from which they are worth a finding


@dataclass(frozen=True)
class Plasticity(Measurement):
    """Signs that a layer is losing its ability to learn."""

    columns: ClassVar[dict[str, str]] = {
        "dormant": f"units with a mean activity of at most {DORMANT:.0%} of their layer's, dead ones included",
        "effective rank": "exponential of the entropy of the singular values of the layer's outputs",
    }

    #: (units,): mean size of the output, relative to the mean over the layer; inf if it received nan or infinity
    activity: Tensor
    #: (channels,): singular values of the outputs, in descending order; None for wide layers and outputs not finite
    singular: Tensor | None
    weight: float  #: Euclidean norm of the weights that feed the layer
    #: that of the gradients of their parameters, biases included; None if there are none
    gradient: float | None
    sample: Sample  #: how many inputs were seen

    @classmethod
    def measure(cls, layer: Rectified, network: ExaminedNetwork) -> Gauge | None:
        """A gauge; None if the layer has no dimension of units, or a slope that is learned."""
        known = len(layer.shape) > 1 and layer.activation.below is not None
        return _PlasticityGauge(layer, network) if known else None

    @property
    def dormant(self) -> Tensor:
        """Units with a mean activity of at most 10% of their layer's; all of them if the layer is silent."""
        return ~(self.activity > DORMANT)

    @property
    def effective_rank(self) -> float | None:
        """Effective rank of the outputs; None if `singular` is, and if all outputs are 0."""
        return self._rank(effective_rank)

    @property
    def stable_rank(self) -> float | None:
        """Stable rank of the outputs; None if `singular` is, and if all outputs are 0."""
        return self._rank(stable_rank)

    def _rank(self, rank: Callable[[Tensor], Tensor]) -> float | None:
        return None if self.singular is None or not bool(self.singular.any()) else float(rank(self.singular))

    def summary(self) -> str:
        """A summary in one sentence."""
        parts = [f"{int(self.dormant.sum())} of {len(self.activity)} units are dormant on {self.sample}"]
        parts += [f"{name} {value:.3g}" for name, value in self.numbers().items()]
        return ", ".join(parts)

    def numbers(self) -> dict[str, float]:
        """Ranks and norms by name, as far as they are known."""
        found = {
            "effective rank": self.effective_rank,
            "stable rank": self.stable_rank,
            "weight norm": self.weight,
            "gradient norm": self.gradient,
        }
        return {name: value for name, value in found.items() if value is not None}

    def row(self) -> dict[str, str]:
        """The number of dormant units, and the effective rank."""
        rank = self.effective_rank
        shown = {} if rank is None else {"effective rank": f"{rank:.3g}"}
        return {"dormant": str(int(self.dormant.sum()))} | shown

    def figures(self) -> dict[str, Figure]:
        """Draw the activity of all units and the singular values of the outputs."""
        import plotly.graph_objects as go

        ordered = self.activity.sort(descending=True).values
        axes = {"xaxis_title": "units, by activity", "yaxis_title": "activity / mean of the layer"}
        activity = go.Figure(go.Bar(y=ordered.float().numpy()), axes)
        activity.add_hline(DORMANT, line_dash="dash", annotation_text="dormant below")
        found = {"activity relative to the layer": activity}
        if self.singular is not None and bool(self.singular.any()):
            axes = {"xaxis_title": "number", "yaxis_title": "singular value / largest", "yaxis_type": "log"}
            positive = self.singular[self.singular > 0]
            found["singular values of the outputs"] = go.Figure(
                go.Scatter(y=(positive / positive[0]).float().numpy(), mode="markers"), axes
            )
        return found

    def findings(self, layer: Rectified) -> Iterator[Finding]:
        """Yield the dormant units, if there are many."""
        units = indices(self.dormant)
        if not self.sample.enough or len(units) <= MANY * len(self.activity):
            return
        suggestion = remedy(layer)
        sentence = (
            f"{layer.layer}: {len(units)} of {len(self.activity)} units are dormant on {self.sample} (active at most "
            f"{DORMANT:.0%} as much as the layer's mean){REMEDY if suggestion else ''}"
        )
        evidence = {"units": units, "inputs": self.sample.inputs, "places": self.sample.places}
        share = len(units) / len(self.activity)
        yield Finding(layer.layer, "dormant", sentence, evidence, suggestion, "warning", share)


class _PlasticityGauge(Gauge):
    """Sums of outputs and of their products, whose memory does not grow with the data."""

    def __init__(self, layer: Rectified, network: ExaminedNetwork) -> None:
        self.kind, self.units, self.doubled = layer.activation, layer.units, layer.doubled
        self.total = torch.zeros(self.units, dtype=torch.float64)
        channels = self.units + self.doubled
        self.products = torch.zeros(channels, channels, dtype=torch.float64) if channels <= LARGEST else None
        self.weight, self.gradient = _norms(layer, network)
        self.noun = layer.noun
        self.inputs = self.places = 0

    def see(self, seen: Seen) -> None:
        """Add the outputs of a batch."""
        values = wide(seen.by_unit)  # products in half precision overflow
        self.inputs += seen.inputs
        self.places += values.shape[1]
        outputs = response(values, self.kind)
        if self.doubled:
            outputs = torch.cat([outputs, response(-values[: self.doubled], self.kind)])
        size = outputs.abs().sum(1, dtype=torch.float64).cpu()
        self.total += size[: self.units]
        self.total[: self.doubled] += size[self.units :]
        if self.products is not None:
            self.products += (outputs @ outputs.T).double().cpu()

    def result(self) -> Plasticity | None:
        """The measurement; None if nothing was seen."""
        if not self.places:
            return None
        singular = None
        if self.products is not None and bool(self.products.isfinite().all()):
            singular = torch.linalg.eigvalsh(self.products).flip(0).clamp_min(0).sqrt()
        finite = self.total.isfinite()
        return Plasticity(
            torch.where(finite, self.total / self.total[finite].mean(), torch.inf),
            singular,
            self.weight,
            self.gradient,
            Sample(self.inputs, self.places, self.noun),
        )


def response(value: Tensor, kind: Kind) -> Tensor:
    """What an activation makes of a value that is relative to its first boundary.

    >>> from relucid.nn.kinds import KINDS
    >>> response(torch.tensor([-1.0, 1.0, 9.0]), KINDS["clipped"])
    tensor([0., 1., 6.])
    """
    first, *rest = kind.boundaries
    assert kind.below is not None
    above = value.clamp(0, rest[0] - first) if rest else value.relu()
    return above - kind.below * (-value).relu() + first


def _norms(layer: Rectified, network: ExaminedNetwork) -> tuple[float, float | None]:
    """The norms of the weights that feed a layer, and of the gradients of their parameters."""
    weight = sum(float(source.weight.detach().double().square().sum()) for source in layer.sources) ** 0.5
    names = {name for source in layer.sources for name in source.parameters}
    found = dict(network.model.named_parameters(remove_duplicate=False))
    gradients = [found[name].grad for name in names if name in found]
    known = [float(each.double().square().sum()) for each in gradients if each is not None]
    return weight, sum(known) ** 0.5 if known else None
