"""Which classes each unit is active on."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from relucid.inspect.evidence import Sample
from relucid.inspect.findings import Finding
from relucid.inspect.measurement import ExaminedNetwork, Gauge, Measurement, Seen, indices

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

    from relucid.inspect.trace import Rectified


@dataclass(frozen=True)
class ClassActivity(Measurement):
    """How often each unit is active on the inputs of each class."""

    labels: tuple[int, ...]
    inputs: Tensor  #: (classes,): number of inputs seen
    active: Tensor  #: (units, classes): share of places where the unit is above its boundary

    @classmethod
    def measure(cls, layer: Rectified, network: ExaminedNetwork) -> Gauge | None:
        """A counter; without labels in the data it measures nothing."""
        return _ClassGauge() if len(layer.shape) > 1 else None

    @property
    def selectivity(self) -> Tensor:
        """(a - b) / (a + b) per unit: its rate a on its most active class, mean rate b on the others; nan if dead."""
        most = self.active.amax(1)
        others = (self.active.sum(1) - most) / max(len(self.labels) - 1, 1)
        return (most - others) / (most + others)

    @property
    def one_class(self) -> Tensor:
        """Mask of the units that are active on one class only."""
        return (self.active > 0).sum(1) == 1

    def summary(self) -> str:
        """A summary in one sentence."""
        mean = float(self.selectivity.nanmean())
        count = int(self.one_class.sum())
        return f"{len(self.labels)} classes: mean selectivity {mean:.2f}, {count} units are active on one class only"

    def figures(self) -> dict[str, Figure]:
        """Draw the activity of units by class."""
        import plotly.graph_objects as go

        heat = go.Heatmap(
            z=self.active.float().numpy(), x=[str(label) for label in self.labels], zmin=0, zmax=1
        )
        return {"activity by class": go.Figure(heat, {"xaxis_title": "class", "yaxis_title": "unit"})}

    def findings(self, layer: Rectified) -> Iterator[Finding]:
        """Yield the units that are active on one class only, if enough inputs of every class were seen."""
        least = int(self.inputs.min())
        if len(self.labels) < 2 or not Sample(least, least).enough:
            return
        if units := indices(self.one_class):
            what = f"{len(units)} of {len(self.active)} units are active on one of {len(self.labels)} classes only"
            share, evidence = len(units) / len(self.active), {"units": units, "inputs": least}
            yield Finding(layer.layer, "one class", f"{layer.layer}: {what}", evidence, share=share)


class _ClassGauge(Gauge):
    """Counter by label, whose memory grows only with the number of classes."""

    def __init__(self) -> None:
        self.inputs: dict[int, int] = {}
        self.active: dict[int, Tensor] = {}

    def see(self, seen: Seen) -> None:
        """Add each input's share of active places to its class."""
        values = seen.by_input
        if values is None or seen.labels is None:
            return
        shares = (values > 0).double().mean(2).cpu()  # (inputs, units)
        for label in seen.labels.unique().tolist():
            own = shares[(seen.labels == label).cpu()]
            self.inputs[label] = self.inputs.get(label, 0) + len(own)
            self.active[label] = self.active.get(label, 0) + own.sum(0)

    def result(self) -> ClassActivity | None:
        """The means by class; None if there were no labels."""
        if not self.inputs:
            return None
        labels = tuple(sorted(self.inputs))
        inputs = torch.tensor([self.inputs[label] for label in labels])
        active = torch.stack([self.active[label] for label in labels], 1) / inputs
        return ClassActivity(labels, inputs, active)
