"""How able a layer is to learn on: dormant units, the rank of its features, and the norms of weights and gradients."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from torch import Tensor, nn

from relucid.inspect._statistics import Sample
from relucid.inspect.activity import REMEDY, remedy
from relucid.inspect.features import Features, effective_rank, stable_rank
from relucid.inspect.findings import Finding
from relucid.inspect.measurement import LayerBatch, Measurement, StreamingMeasure, indices

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
    def measure(cls, layer: Rectified, network: nn.Module) -> StreamingMeasure | None:
        """What adds outputs up; None if the layer has no dimension of units."""
        return StreamingPlasticity(layer, network) if len(layer.shape) > 1 else None

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
        values = {
            "effective rank": self.effective_rank,
            "stable rank": self.stable_rank,
            "weight norm": self.weight,
            "gradient norm": self.gradient,
        }
        return {name: value for name, value in values.items() if value is not None}

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
        figures = {"activity relative to the layer": activity}
        if self.singular is not None and bool(self.singular.any()):
            axes = {"xaxis_title": "number", "yaxis_title": "singular value / largest", "yaxis_type": "log"}
            positive = self.singular[self.singular > 0]
            figures["singular values of the outputs"] = go.Figure(
                go.Scatter(y=(positive / positive[0]).float().numpy(), mode="markers"), axes
            )
        return figures

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


class StreamingPlasticity(StreamingMeasure):
    """The features of a layer, and the norms of its weights and gradients."""

    def __init__(self, layer: Rectified, network: nn.Module) -> None:
        self.features = Features(layer.units + layer.doubled, layer.doubled)
        self.weight, self.gradient = _norms(layer, network)
        self.noun = layer.noun

    def update(self, batch: LayerBatch) -> None:
        """Add the outputs of a batch."""
        assert batch.output is not None
        outputs = batch.output.movedim(batch.dim, 0).flatten(1)
        self.features.update(outputs, batch.inputs)

    def compute(self) -> Plasticity | None:
        """The measurement; None if nothing was seen."""
        features = self.features
        if not features.places:
            return None
        sample = Sample(min(features.inputs, features.places), features.places, self.noun)
        return Plasticity(features.activity, features.singular, self.weight, self.gradient, sample)


def _norms(layer: Rectified, network: nn.Module) -> tuple[float, float | None]:
    """The norms of the weights that feed a layer, and of the gradients of their parameters."""
    weight = sum(float(source.weight.detach().double().square().sum()) for source in layer.sources) ** 0.5
    parameters = dict(network.named_parameters(remove_duplicate=False))
    names = {name for source in layer.sources for name in source.parameters}
    gradients = [parameters[name].grad for name in names if name in parameters]
    known = [float(gradient.double().square().sum()) for gradient in gradients if gradient is not None]
    return weight, sum(known) ** 0.5 if known else None
