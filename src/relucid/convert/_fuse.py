"""A network in plain layers again: geometric layers, parametrizations and norms become part of their weights."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

from relucid._torch import has_hooks, unparametrized_class
from relucid.convert._steps import NORMS, Fold, Plain, Read, Step
from relucid.convert.conversion import Conversion, applied, conversion
from relucid.convert.copies import aliased
from relucid.convert.examples import Given
from relucid.convert.flow import Flow, flow
from relucid.convert.layout import Layout, channel_dims
from relucid.convert.network import RecordedModel
from relucid.convert.norms import is_fixed, layers_after, norm_after
from relucid.convert.search import converted, delivered, largest_valid_subset
from relucid.inspect.execution import Method, Recording
from relucid.nn import GeometricLayer, MeanNorm
from relucid.nn.kinds import is_homogeneous
from relucid.nn.rectify import of_channels


@conversion
def fuse(
    model: nn.Module, example: Given, *, call: Method | None = None, tolerance: float | None = None
) -> Conversion:
    """The same function in plain ``nn.Linear`` and ``nn.ConvNd``, for evaluation.

    Geometric layers and parametrized weights become ordinary weights. Batch norms and mean norms become part
    of the layer before or after them, and an ``nn.Identity`` stands in their place; a mean norm that cannot becomes a
    batch norm of unit variance. A scale r outside an activation moves forward into the layers that read it, since
    r relu(s) is not relu(r s) where r is negative; scales that cannot move become a batch norm of unit variance.

    Args:
        model: Any network.
        example: Its input: a tensor, a tuple of positional or a mapping of keyword arguments, or a list of several.
        call: How the network is used, if not through its forward.
        tolerance: The largest relative difference of outputs; 1e-4 in float32, 1e-10 in float64 by default.

    >>> from relucid.nn import GeometricLinear
    >>> net = nn.Sequential(GeometricLinear(4, 3, activation=nn.ReLU()), MeanNorm(3), nn.Linear(3, 2)).eval()
    >>> _ = net[0].scale.data.copy_(torch.tensor([1.0, -2.0, 3.0]))
    >>> fuse(net, torch.randn(5, 4)).model
    Sequential(
      (0): Sequential(
        (layer): Linear(in_features=4, out_features=3, bias=True)
        (activation): ReLU()
      )
      (1): Identity()
      (2): Linear(in_features=3, out_features=2, bias=True)
    )
    """
    network = RecordedModel(model, example, call, training=False)
    report = network.report
    report.weighted = report.rectified = "plain already"
    plain = _Scales(network)
    steps = plain.steps()
    # Norms are looked for in the network that has plain layers already.
    between = applied(steps, aliased(model))
    folds = _folds(RecordedModel(between, example, call, training=False))

    def attempt(names: list[str], dropped: Mapping[str, str]) -> Conversion:
        report.forget()
        plain.note()
        for name, reason in dropped.items():
            report.note(name, "kept", reason, "norm")
        for name in names:
            _note(network, folds[name])
        chosen = [folds[name] for name in names]
        same = {fold.layer: fold.name for fold in chosen if fold.layer and fold.layout is None}
        moved = {step.name for step in steps} | {fold.layer for fold in chosen}
        return converted(
            *(network, [*steps, *chosen]),
            same={name: same.get(name, "") for name in moved | same.keys()},
            probe=False,
            training=False,
            tolerance=tolerance,
        )

    readers = {name: fold.layer for name, fold in folds.items()}
    found = largest_valid_subset(
        folds, attempt, lambda layer: {n for n, reader in readers.items() if layer in (n, reader)}
    )
    return delivered(network, found)


def _note(network: RecordedModel, fold: Fold) -> None:
    """Report on a norm, by the names of the network as it was: a layer of a geometric one was not there."""
    if not fold.layer:
        network.report.note(fold.name, "changed", "a batch norm of unit variance", "MeanNorm")
        return
    name = fold.layer if fold.layer in network.modules else fold.layer.removesuffix(".layer")
    network.report.note(name, "changed", f"{fold.name} is folded into it")


class _Scales:
    """The geometric layers and parametrizations of a network, and where the scales of the layers go."""

    def __init__(self, network: RecordedModel) -> None:
        self.network = network
        self.parametrized = [n for n, m in network.modules.items() if parametrize.is_parametrized(m)]
        self.layers = [n for n, m in network.modules.items() if isinstance(m, GeometricLayer)]
        self.scales = {
            name: scale
            for name in self.layers
            if (scale := remaining_scale(network.modules[name])) is not None
        }
        self.stuck: dict[str, str] = {}
        # Scales that become a batch norm: dimensions of the value, and (channels,).
        self.own: dict[str, tuple[int, Tensor]] = {}
        for name in [name for name in self.scales if has_hooks(network.modules[name])]:
            self._keep(name, "hooks see its value")
        self.flows = self._moved()

    def note(self) -> None:
        """Report on every layer that becomes plain, or cannot."""
        report, modules = self.network.report, self.network.modules
        for name, reason in self.stuck.items():
            report.note(name, "kept", f"its scales cannot move on: {reason}", type(modules[name]).__name__)
        for name in self.parametrized:
            report.note(name, "changed", "plain weights", unparametrized_class(modules[name]).__name__)
        for name in self.layers:
            moved = "; its negative scales move into the layers that read it" if name in self.scales else ""
            moved = "; its negative scales become a batch norm" if name in self.own else moved
            module: Any = modules[name]
            report.note(name, "changed", f"plain {module.standard.__name__}{moved}", type(module).__name__)

    def _moved(self) -> list[Flow]:
        """Follow the scales that the layers cannot absorb; a layer whose scales cannot be read stays geometric."""
        while True:
            flows = [
                flow(r, self._starts(r), self.network.modules, self.layers) for r in self.network.recordings
            ]
            stuck = {
                name: str(error)
                for found in flows
                for layout, error in found.stuck
                for name in layout.sites & self.scales.keys()
            }
            if not stuck:
                return flows
            for name, reason in stuck.items():
                self._keep(name, reason)

    def _keep(self, name: str, reason: str) -> None:
        """Leave the scales of a layer after it; without a norm for values of its shape, the layer stays geometric."""
        values = [c.outputs[0] for r in self.network.recordings for c in r.calls if c.module == name]
        scale = self.scales.pop(name)
        module: Any = self.network.modules[name]
        dims = {len(value.shape) for value in values}
        if len(dims) == 1 and dims <= NORMS.keys() and (module.spatial or dims == {2}):
            self.own[name] = dims.pop(), of_channels(scale, module.activation, values[0].shape[1])
        else:
            self.layers.remove(name)
            self.stuck[name] = reason

    def _starts(self, recording: Recording) -> dict[Any, Layout]:
        dims, starts = channel_dims(recording.nodes), {}
        for call in recording.calls:
            scale = self.scales.get(call.module)
            if scale is not None:
                node = call.outputs[0]
                module: Any = self.network.modules[call.module]
                dim = len(node.shape) - 1 if module.spatial == 0 else dims.get(node, 1)
                phases = of_channels(scale, module.activation, node.shape[dim])
                starts[node] = Layout(dim, torch.arange(len(phases)), phases, frozenset([call.module]))
        return starts

    def steps(self) -> list[Step]:
        """Make plain layers, and let those that read them take their scales."""
        steps: list[Step] = [Plain(name) for name in self.parametrized]
        for name in self.layers:
            dims, scale = self.own.get(name, (0, torch.empty(0)))
            steps.append(Plain(name, tuple(scale.tolist()), dims))
        reads = {name: layout for found in self.flows for name, layout in found.reads.items()}
        return steps + [Read(self._inner(name), layout) for name, layout in reads.items()]

    def _inner(self, name: str) -> str:
        """The layer itself, where a module will be made of it and its activation."""
        module: Any = self.network.modules[name]
        has_activation = isinstance(module, GeometricLayer) and module.activation is not None
        return f"{name}.layer" if has_activation and name in self.layers else name


def remaining_scale(layer: Any) -> Tensor | None:
    """The scale, (units,) in float64, that a geometric layer's weights cannot absorb; None if they can.

    With a homogeneous activation inside it is the sign alone.
    """
    scale = layer.scale
    if layer.activation is None or scale is None:
        return None
    scale = scale.detach().double().cpu()
    if is_homogeneous(layer.activation):
        return torch.where(scale < 0, -1.0, 1.0).double() if bool((scale < 0).any()) else None
    return torch.where(scale == 0, 1e-30, scale)


def _folds(network: RecordedModel) -> dict[str, Fold]:
    """What becomes of every norm that can be folded, by name."""
    found: dict[str, Fold] = {}
    before = {
        n: name for name in network.modules if name in network.counts and (n := norm_after(network, name))
    }
    norms = [n for n, module in network.modules.items() if is_fixed(module) and n in network.counts]
    rest = [norm for norm in norms if norm not in before]
    after = layers_after(network, rest) if rest and len(network.recordings) == 1 else {}
    taken: set[str] = set()
    for norm in norms:
        if norm in before:
            found[norm] = Fold(norm, before[norm])
        elif norm in after and after[norm][0] not in taken:
            taken.add(after[norm][0])
            found[norm] = Fold(norm, *after[norm])
        elif isinstance(network.modules[norm], MeanNorm):
            value = network.recordings[0].calls_of[norm][0].outputs[0]
            found[norm] = Fold(norm, dims=len(value.shape))
    return found
