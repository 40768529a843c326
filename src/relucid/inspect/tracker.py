"""Track how far boundaries move and turn at each step of training (gmp Fig. 2c, 3)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.utils.hooks import RemovableHandle

from relucid.inspect._boundary import Boundary, boundary
from relucid.inspect._trace import trace
from relucid.inspect.execution import Given
from relucid.nn import GeometricLayer
from relucid.printing import Summarized

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

Tracked = tuple[nn.Module, nn.Module | None]  # a layer and the norm after it
POOLS = nn.MaxPool1d | nn.MaxPool2d | nn.MaxPool3d  # they leave boundaries where they are


@dataclass(frozen=True)
class Evolution(Summarized):
    """Record of a `BoundaryTracker`. One entry per sampled step."""

    steps: tuple[int, ...]
    moved: dict[str, Tensor]  #: by layer: max_i |phi_i(t) - phi_i(t - 1)|
    turned: dict[str, Tensor]  #: by layer: largest angle between u_i(t) and u_i(t - 1), from 0 to pi
    skipped: dict[str, str]  #: layers that are not tracked, and why

    def summary(self) -> str:
        """One line per layer."""
        return "\n".join(
            f"{name}: moves by at most {float(moved.max()):.3g} per step, "
            f"turns by at most {float(self.turned[name].max().rad2deg()):.3g}°"
            for name, moved in self.moved.items()
            if len(moved)
        )

    def figure(self) -> Figure:
        """Plot the largest movement per step (gmp Fig. 2c)."""
        import plotly.graph_objects as go

        lines = [go.Scatter(x=self.steps, y=moved.tolist(), name=name) for name, moved in self.moved.items()]
        axes = {"xaxis_title": "step", "yaxis_title": "largest |Δφ|", "yaxis_type": "log"}
        return go.Figure(lines, axes)


class BoundaryTracker:
    """Tracker of a network's boundaries in any training loop.

    Call `step` after every optimizer step, or `attach` the tracker to the optimizer. Changes are always those of a
    single step, even if only every tenth step is sampled.

    Args:
        model: The network.
        example: An input. With it, the tracker follows the rectified layers, including the norms after them;
            without it, all linear and convolution layers on their own.
        every: Sample every so many steps.

    >>> net = nn.Sequential(nn.Linear(2, 8), nn.ReLU(), nn.Linear(8, 1))
    >>> optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    >>> tracker = BoundaryTracker(net, torch.zeros(1, 2)).attach(optimizer)
    >>> for _ in range(3):
    ...     net(torch.ones(4, 2)).sum().backward()
    ...     optimizer.step()
    >>> evolution = tracker.result()
    >>> evolution.steps, evolution.moved["0"].shape
    ((1, 2, 3), torch.Size([3]))
    """

    def __init__(self, model: nn.Module, example: Given | None = None, *, every: int = 1) -> None:
        if every < 1:
            raise ValueError(f"every must be at least 1 step; got {every}")
        self.model, self.every = model, every
        self.layers, self.skipped = (
            _all_layers(model) if example is None else _rectified_layers(model, example)
        )
        self.time = 0
        self.steps: list[int] = []
        self.moved: dict[str, list[Tensor]] = {name: [] for name in self.layers}
        self.turned: dict[str, list[Tensor]] = {name: [] for name in self.layers}
        self.before = self._look() if every == 1 else {}
        self._handles: list[RemovableHandle] = []

    def attach(self, optimizer: Optimizer) -> BoundaryTracker:
        """Make the optimizer call `step` after each of its own steps, until `detach`."""
        self._handles.append(optimizer.register_step_post_hook(lambda *_: self.step()))
        return self

    def detach(self) -> None:
        """Let go of every optimizer it was attached to."""
        for handle in self._handles:
            handle.remove()

    @torch.no_grad()
    def step(self) -> None:
        """Record what the optimizer's step changed, if this step is to be sampled."""
        self.time += 1
        if self.time % self.every == 0:
            after = self._look()
            self.steps.append(self.time)
            for name, now in after.items():
                if now.vector.shape != self.before[name].vector.shape:
                    raise _changed(name)
                moved, turned = change(self.before[name], now)
                self.moved[name].append(moved.nan_to_num(0).max().cpu())
                self.turned[name].append(turned.nan_to_num(0).max().cpu())
            self.before = after
        elif (self.time + 1) % self.every == 0:
            self.before = self._look()

    def result(self) -> Evolution:
        """The record so far."""
        moved, turned = (
            {name: torch.stack(values) if values else torch.empty(0) for name, values in by_layer.items()}
            for by_layer in (self.moved, self.turned)
        )
        return Evolution(tuple(self.steps), moved, turned, dict(self.skipped))

    def _look(self) -> dict[str, Boundary]:
        modules = set(self.model.modules())
        for name, layer in self.layers.items():
            if not modules.issuperset(filter(None, layer)):
                raise _changed(name)
        return {name: boundary(*layer) for name, layer in self.layers.items()}


def _changed(name: str) -> RuntimeError:
    return RuntimeError(
        f"{name} has been converted since it is tracked: detach, and make a new BoundaryTracker"
    )


def change(before: Boundary, after: Boundary) -> tuple[Tensor, Tensor]:
    """(|phi' - phi|, angle between u and u') per unit; nan if there is no boundary before or after.

    With d = |u' - u|, the angle is 2 asin(d/2), and |phi' - phi|^2 = (lambda' - lambda)^2 + lambda lambda' d^2.
    Both stay accurate for small changes.
    """
    chord = (after.direction - before.direction).norm(dim=1)
    squared = (after.radius - before.radius).square() + before.radius * after.radius * chord.square()
    turned = 2 * (chord / 2).clamp(max=1).asin()
    return squared.clamp_min(0).sqrt(), turned.masked_fill(~(before.defined & after.defined), torch.nan)


def _all_layers(model: nn.Module) -> tuple[dict[str, Tracked], dict[str, str]]:
    kinds = nn.Linear | nn.Conv1d | nn.Conv2d | nn.Conv3d | GeometricLayer
    return {name: (m, None) for name, m in model.named_modules() if isinstance(m, kinds)}, {}


def _rectified_layers(model: nn.Module, example: Given) -> tuple[dict[str, Tracked], dict[str, str]]:
    """({name: (layer, norm after it)}, {name: why it cannot be tracked})."""
    modules = dict(model.named_modules())
    layers: dict[str, Tracked] = {}
    skipped: dict[str, str] = {}
    for r in trace(model, example).rectified:
        if r.scale is None:
            skipped[r.layer] = r.obstacle
            continue
        path = [r.sources[0].name, *(t for t in r.sources[0].through if "max_pool" not in t)]
        path = [name for name in path if not isinstance(modules.get(name), POOLS)]
        if len(path) > 2 or not set(path) <= set(modules):
            skipped[r.layer] = f"only a layer with at most one norm can be tracked: {' -> '.join(path)}"
        else:
            layers[r.layer] = modules[path[0]], modules[path[1]] if len(path) > 1 else None
    return layers, skipped
