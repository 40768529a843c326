"""How often a unit that fires on an image fires at the same place on a transformed image (crelu Appendix D)."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from relucid.inspect._trace import Rectified, trace
from relucid.inspect.batches import batches_of
from relucid.inspect.execution import Arguments, Method, Run, running
from relucid.inspect.recorder import Node
from relucid.printing import Summarized

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

Transform = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class LayerInvariance(Summarized):
    """Firing rates of the units of one layer. Vectors have one entry per unit."""

    threshold: Tensor  #: a unit fires above it
    firing_rate: Tensor  #: G, how often it fires: the chosen rate, or less if fewer responses are positive
    local_rate: Tensor  #: L, how often it still fires when the image is transformed; nan if it never fires

    @property
    def score(self) -> float:
        """Mean of L / G over the units that fire (Goodfellow et al. 2009)."""
        return float((self.local_rate / self.firing_rate).nanmean())

    def summary(self) -> str:
        """A summary in one sentence."""
        return f"score {self.score:.1f}, fires again {float(self.local_rate.nanmean()):.0%}"


@dataclass(frozen=True)
class Invariance(Summarized):
    """Invariance of every layer, in order of execution."""

    layers: Mapping[str, LayerInvariance]
    transforms: tuple[str, ...]

    def summary(self) -> str:
        """One line per layer."""
        return "\n".join(f"{name}: {layer.summary()}" for name, layer in self.layers.items())

    def figure(self) -> Figure:
        """Plot the score by layer (crelu Fig. 4)."""
        import plotly.graph_objects as go

        line = go.Scatter(x=list(self.layers), y=[layer.score for layer in self.layers.values()])
        return go.Figure(line, {"xaxis_title": "layer", "yaxis_title": "invariance score"})


def invariance(
    model: nn.Module,
    images: Tensor | Iterable[Any],
    layers: Sequence[str] | None = None,
    *,
    rate: float = 0.01,
    crop: int | None = None,
    transforms: Mapping[str, Transform] | None = None,
    call: Method | None = None,
) -> Invariance:
    """Measure how invariant each layer's units are to flips, rotation and translation.

    Each unit gets the threshold that a share ``rate`` of its responses exceeds. It is exact: one pass over the data
    counts the responses, and a second keeps the largest of each unit, so memory grows with ``rate`` and the data
    (10,000 images, 64 units with 50 x 50 places each, a rate of 0.01: 64 MB). The response of a ReLU unit is its
    positive part, that of a CReLU or AVR unit the absolute value. A unit must fire again at the same place.

    Args:
        model: A network that takes images.
        images: (n, channels, height, width), or an iterable of such batches, with or without labels, that can be
            iterated more than once.
        layers: Names of layers or rectifications (see `trace`); all by default.
        rate: The global firing rate.
        crop: If given, images are cropped to this size at the centre, and translated images at the four corners
            (ImageNet); otherwise, translation shifts by 3 pixels in four directions (CIFAR).
        transforms: Transforms by name, replacing the standard ones.
        call: How the network is used, if not through its forward: a method's name, or a function of both.

    >>> net = nn.Sequential(nn.Conv2d(1, 4, 3, padding=1), nn.ReLU())
    >>> measured = invariance(net, torch.randn(8, 1, 8, 8), transforms={"none": lambda x: x})
    >>> measured.layers["0"].local_rate        # an unchanged image fires every unit again
    tensor([1., 1., 1., 1.], dtype=torch.float64)
    """
    if isinstance(images, Iterator):
        raise ValueError(
            "images are iterated several times: give a tensor, a list or a loader instead of an iterator"
        )
    changes, origin = dict(transforms or _standard(crop)), _origin(crop)
    first = next(_batches(images, model))
    if transforms is None and first.dim() != 4:
        shape = tuple(first.shape)
        raise ValueError(
            f"inputs of shape {shape} are not images (n, channels, height, width): give transforms"
        )
    chosen = _chosen(model, origin(first), layers, call)
    with running(model, call=call) as (run, _):

        def responses(change: Transform) -> Iterator[dict[str, Tensor]]:
            return (_responses(run, change(x), chosen) for x in _batches(images, model))

        thresholds = _thresholds(lambda: responses(origin), rate)
        bounds = {name: values.unsqueeze(1) for name, values in thresholds.items()}
        total = dict.fromkeys(thresholds, 0)
        fired = {name: torch.zeros(len(t), dtype=torch.float64) for name, t in thresholds.items()}
        again = {name: torch.zeros_like(f) for name, f in fired.items()}
        for x in _batches(images, model):
            fires = {name: r > bounds[name] for name, r in _responses(run, origin(x), chosen).items()}
            for name, mask in fires.items():
                total[name] += mask.shape[1]
                fired[name] += mask.sum(1)
            for change in changes.values():
                for name, response in _responses(run, change(x), chosen).items():
                    again[name] += ((response > bounds[name]) & fires[name]).sum(1)
    results = {
        name: LayerInvariance(
            thresholds[name], fired[name] / total[name], again[name] / len(changes) / fired[name]
        )
        for name in thresholds
    }
    return Invariance(results, tuple(changes))


def _thresholds(passes: Callable[[], Iterator[dict[str, Tensor]]], rate: float) -> dict[str, Tensor]:
    """The smallest value, for every unit, that at most a share ``rate`` of its responses exceed."""
    total: Counter[str] = Counter()
    for responses in passes():
        total.update({name: response.shape[1] for name, response in responses.items()})
    if not total:
        raise ValueError("there are no images or no layers to measure")
    largest: dict[str, Tensor] = {}  # as many as may exceed the threshold, and the threshold
    for responses in passes():
        for name, response in responses.items():
            # No response is below the 0 that each unit begins with; with rate=1, it is the threshold.
            kept = largest.get(name, response.new_zeros(len(response), 1))
            seen = torch.cat([kept, response], dim=1)
            count = min(math.floor(rate * total[name]) + 1, seen.shape[1])
            largest[name] = seen.topk(count, sorted=False).values
    return {name: kept.amin(1) for name, kept in largest.items()}


def _responses(run: Run, x: Tensor, chosen: Mapping[str, Rectified]) -> dict[str, Tensor]:
    """The non-negative responses (units, places) of the chosen rectifications."""
    parts: dict[str, list[Tensor]] = {}

    def observe(node: Node, value: Tensor, _: Tensor) -> None:
        if node.kind and node.name in chosen:
            units = chosen[node.name].by_unit(value)
            one_sided = chosen[node.name].activation.phases == 1
            response = (units.relu() if one_sided else units.abs()).float().cpu()
            parts.setdefault(chosen[node.name].layer, []).append(response)

    run(x, observe=observe)
    return {name: torch.cat(responses, 1) for name, responses in parts.items()}


def _chosen(
    model: nn.Module, example: Tensor, layers: Sequence[str] | None, call: Method | None
) -> dict[str, Rectified]:
    """The rectifications with these names."""
    # Those without a batch dimension have no dimension of units.
    rectified = [r for r in trace(model, example, call=call).rectified if len(r.shape) > 1]
    known = {name for r in rectified for name in (r.name, r.layer)}
    if layers is not None and (unknown := set(layers) - known):
        raise ValueError(
            f"there is no rectified layer {', '.join(sorted(unknown))}; the layers are {', '.join(sorted(known))}"
        )
    wanted = [r for r in rectified if layers is None or r.name in layers or r.layer in layers]
    return {name: r for r in wanted for name in r.calls}


def _batches(images: Tensor | Iterable[Any], model: nn.Module) -> Iterator[Tensor]:
    """Yield the images, on the device and with the dtype of the network."""
    like = next((p.detach() for p in model.parameters() if p.is_floating_point()), torch.zeros(0))
    for batch in batches_of(images, Arguments((like,))):
        yield batch.args[0]


def _standard(crop: int | None) -> dict[str, Transform]:
    """The transforms of crelu Appendix D."""
    origin = _origin(crop)
    moves: dict[str, Transform]
    if crop:
        places = ("top left", "top right", "bottom left", "bottom right")
        moves = {place: partial(_crop, size=crop, place=place) for place in places}
    else:
        steps = {"right": (3, 0), "left": (-3, 0), "down": (0, 3), "up": (0, -3)}
        moves = {f"3 pixels {way}": partial(_shift, right=x, down=y) for way, (x, y) in steps.items()}
    return {"flip": lambda x: origin(x).flip(-1), "rotate 15°": lambda x: _rotate(origin(x), 15), **moves}


def _origin(crop: int | None) -> Transform:
    """What is done to every image before it is transformed."""
    return partial(_crop, size=crop, place="centre") if crop else lambda x: x


def _rotate(x: Tensor, degrees: float) -> Tensor:
    """Rotate images about their centre, filling with zeros."""
    cos, sin = math.cos(math.radians(degrees)), math.sin(math.radians(degrees))
    height, width = x.shape[-2:]
    matrix = x.new_tensor([[cos, -sin * height / width, 0], [sin * width / height, cos, 0]])
    grid = F.affine_grid(matrix.expand(len(x), 2, 3), list(x.shape), align_corners=False)
    return F.grid_sample(x, grid, align_corners=False)


def _shift(x: Tensor, right: int, down: int) -> Tensor:
    """Shift images by whole pixels, filling with zeros."""
    return F.pad(x, (right, -right, down, -down))


def _crop(x: Tensor, size: int, place: str) -> Tensor:
    """Crop a square of the given size at a place: "centre", "top left" and so on."""
    height, width = x.shape[-2:]
    if min(height, width) < size:
        raise ValueError(f"images of {height} x {width} cannot be cropped to {size}")
    top = 0 if "top" in place else height - size if "bottom" in place else (height - size) // 2
    left = 0 if "left" in place else width - size if "right" in place else (width - size) // 2
    return x[..., top : top + size, left : left + size]
