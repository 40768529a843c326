"""The inputs that excite each unit most."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import Tensor

from relucid.inspect.measurement import ExaminedNetwork, Gauge, Measurement, Seen

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

    from relucid.inspect.trace import Rectified

COUNT = 9  # inputs kept per unit


@dataclass(frozen=True)
class TopInputs(Measurement):
    """Inputs on which each unit has its largest pre-activations, largest first."""

    value: Tensor  #: (units, k)
    index: Tensor  #: (units, k): index of the input in the data
    position: Tensor  #: (units, k): flat position in the layer's map

    @classmethod
    def measure(cls, layer: Rectified, network: ExaminedNetwork) -> Gauge | None:
        """A gauge that keeps the indices of inputs, not the inputs themselves."""
        return _TopGauge() if len(layer.shape) > 1 else None

    def summary(self) -> str:
        """A summary in one sentence."""
        best = int(self.value[:, 0].argmax())
        value, index = float(self.value[best, 0]), int(self.index[best, 0])
        return f"unit {best} has the largest pre-activation, {value:.3g} on input {index}"

    def figure(self, images: Any, units: int = 16) -> Figure:
        """Draw the images that excite the first units most, one row per unit.

        Args:
            images: The examined data: (inputs, channels, height, width), or a dataset of such images, with or without
                labels.
            units: Number of units to draw.
        """
        import plotly.graph_objects as go

        rows = [torch.cat([_image(images, i) for i in row], 2) for row in self.index[:units].tolist()]
        grid = torch.cat(rows, 1).permute(1, 2, 0)
        picture = go.Image(z=(grid * 255).round().to(torch.uint8).numpy())
        return go.Figure(picture, {"xaxis_visible": False, "yaxis_visible": False})


def _image(images: Any, number: int) -> Tensor:
    """One image as (3, height + 1, width + 1), scaled to [0, 1], with a margin."""
    item = images[number]
    image = torch.as_tensor(item[0] if isinstance(item, tuple | list) else item).detach().float().cpu()
    if image.dim() != 3 or image.shape[0] not in (1, 3):
        raise ValueError(
            f"an image must have the shape (1 or 3 channels, height, width); this one has {tuple(image.shape)}"
        )
    low, high = image.aminmax()
    image = (image - low) / (high - low).clamp_min(1e-30)
    return F.pad(image.expand(3, -1, -1), (0, 1, 0, 1), value=1.0)


class _TopGauge(Gauge):
    """Running top k of each unit's pre-activations, with their places."""

    def __init__(self) -> None:
        self.value: Tensor | None = None
        self.where = torch.zeros(0)

    def see(self, seen: Seen) -> None:
        """Merge the inputs of a batch into the top k."""
        values = seen.by_input
        if values is None:
            return
        best, place = values.max(2)  # (inputs, units)
        numbers = torch.arange(seen.first, seen.first + seen.inputs, device=best.device)
        number = numbers.unsqueeze(1).expand_as(place)
        best, where = best.T, torch.stack([number.T, place.T], 2)
        if self.value is not None:
            best, where = torch.cat([self.value, best], 1), torch.cat([self.where, where], 1)
        self.value, order = best.topk(min(COUNT, best.shape[1]), 1)
        self.where = where.gather(1, order.unsqueeze(2).expand(-1, -1, 2))

    def result(self) -> TopInputs | None:
        """The top k; None if inputs could not be distinguished."""
        if self.value is None:
            return None
        return TopInputs(self.value.cpu(), *self.where.cpu().unbind(2))
