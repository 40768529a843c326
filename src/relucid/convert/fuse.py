"""A network in plain layers again: geometric layers, parametrizations and norms become part of their weights."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

from relucid._torch import has_hooks, unparametrized_class
from relucid.convert.conversion import Conversion, Status, conversion
from relucid.convert.copies import copied
from relucid.convert.examples import Batch
from relucid.convert.flow import flow
from relucid.convert.layout import Layout, channel_dims
from relucid.convert.modules import Centered
from relucid.convert.norms import fold, fold_forward, is_fixed, layers_after, norm_after
from relucid.convert.reading import read
from relucid.convert.subject import Subject, working
from relucid.convert.surgery import NORMS, Surgery
from relucid.nn import GeometricLayer, MeanNorm
from relucid.nn.kinds import is_homogeneous
from relucid.nn.rectify import of_channels


@conversion
def fuse(model: nn.Module, example: Batch | list[Batch], *, tolerance: float | None = None) -> Conversion:
    """The same function in plain ``nn.Linear`` and ``nn.ConvNd``, for evaluation.

    Geometric layers and parametrized weights become ordinary weights. Batch norms and mean norms become part
    of the layer before or after them, and an ``nn.Identity`` stands in their place; a mean norm that cannot becomes a
    batch norm of unit variance. A scale r outside an activation moves forward into the layers that read it, since
    r relu(s) is not relu(r s) where r is negative; scales that cannot move become a batch norm of unit variance.

    Args:
        model: Any network.
        example: Its input: a tensor, a tuple of positional or a mapping of keyword arguments, or a list of several.
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
    subject = Subject(model, example, training=False)
    subject.report.weighted = subject.report.rectified = "plain already"
    plain = _Plain(subject)
    between = Surgery(copied(model))
    plain.perform(between)  # norms are looked for in the network that has plain layers already
    folds = _folds(Subject(between.model, example, training=False))

    def perform(names: list[str], surgery: Surgery) -> None:
        plain.perform(surgery)
        for each in (folds[name] for name in names):
            each.perform(surgery)

    def attempt(names: list[str], dropped: Mapping[str, str]) -> Conversion:
        subject.report.forget()
        plain.note()
        for name, reason in dropped.items():
            subject.report.note(name, "kept", reason, "norm")
        for each in (folds[name] for name in names):
            subject.report.note(*each.note(subject.modules))
        return subject.finish(partial(perform, names), tolerance=tolerance, training=False)

    return working(folds, attempt)


class _Plain:
    """The geometric layers and parametrizations of a network, and where the scales of the layers go."""

    def __init__(self, subject: Subject) -> None:
        self.subject = subject
        self.parametrized = [n for n, m in subject.modules.items() if parametrize.is_parametrized(m)]
        self.centered = [n for n, m in subject.modules.items() if isinstance(m, Centered)]
        self.layers = [n for n, m in subject.modules.items() if isinstance(m, GeometricLayer)]
        self.scales = {
            name: scale
            for name in self.layers
            if (scale := remaining_scale(subject.modules[name])) is not None
        }
        self.stuck: dict[str, str] = {}
        # Scales that become a batch norm: dimensions of the value, and (channels,).
        self.own: dict[str, tuple[int, Tensor]] = {}
        for name in [name for name in self.scales if has_hooks(subject.modules[name])]:
            self._keep(name, "hooks see its value")
        self.flows = self._moved()

    def note(self) -> None:
        """Report on every layer that becomes plain, or cannot."""
        report, modules = self.subject.report, self.subject.modules
        for name, reason in self.stuck.items():
            report.note(name, "kept", f"its scales cannot move on: {reason}", type(modules[name]).__name__)
        for name in self.parametrized:
            report.note(name, "changed", "plain weights", unparametrized_class(modules[name]).__name__)
        for name in self.layers:
            moved = "; its negative scales move into the layers that read it" if name in self.scales else ""
            moved = "; its negative scales become a batch norm" if name in self.own else moved
            module: Any = modules[name]
            report.note(name, "changed", f"plain {module.standard.__name__}{moved}", type(module).__name__)

    def _moved(self) -> list[Any]:
        """Follow the scales that the layers cannot absorb; a layer whose scales cannot be read stays geometric."""
        while True:
            flows = [
                flow(r, self._starts(r), self.subject.modules, self.layers) for r in self.subject.recordings
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
        values = [c.outputs[0] for r in self.subject.recordings for c in r.calls if c.module == name]
        scale = self.scales.pop(name)
        module: Any = self.subject.modules[name]
        dims = {len(value.shape) for value in values}
        if len(dims) == 1 and dims <= NORMS.keys() and (module.spatial or dims == {2}):
            self.own[name] = dims.pop(), of_channels(scale, module.activation, values[0].shape[1])
        else:
            self.layers.remove(name)
            self.stuck[name] = reason

    def _starts(self, recording: Any) -> dict[Any, Layout]:
        dims, starts = channel_dims(recording.nodes), {}
        for call in recording.calls:
            scale = self.scales.get(call.module)
            if scale is not None:
                node = call.outputs[0]
                module: Any = self.subject.modules[call.module]
                dim = len(node.shape) - 1 if module.spatial == 0 else dims.get(node, 1)
                phases = of_channels(scale, module.activation, node.shape[dim])
                starts[node] = Layout(dim, torch.arange(len(phases)), phases, frozenset([call.module]))
        return starts

    def perform(self, surgery: Surgery) -> None:
        for name in self.parametrized:
            surgery.unparametrize(name)
        for name in self.layers:
            surgery.standard(name)
        for name, (dims, scale) in self.own.items():
            surgery.scaled(name, dims=dims, features=len(scale), value=scale)
        for name in self.centered:
            surgery.uncenter(name)
        for found in self.flows:
            for name, layout in found.reads.items():
                read(surgery, _inner(surgery.model, name), layout)


def _inner(model: nn.Module, name: str) -> str:
    """The layer itself, where a module was made of it and its activation."""
    module = model.get_submodule(name)
    return f"{name}.layer" if isinstance(getattr(module, "layer", None), nn.Module) else name


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


@dataclass(frozen=True, eq=False)
class _Fold:
    """What becomes of a norm: part of the layer before or after it, or a batch norm."""

    norm: str
    layer: str = ""  #: "" for a batch norm
    layout: Layout | None = None  #: how the norm's channels reach the layer after it
    dims: int = 0  #: of the norm's value

    def perform(self, surgery: Surgery) -> None:
        if not self.layer:
            surgery.batch_norm(self.norm, dims=self.dims)
        elif self.layout is None:
            fold(surgery, self.norm, self.layer)
        else:
            fold_forward(surgery, self.norm, self.layer, self.layout)

    def note(self, modules: Mapping[str, nn.Module]) -> tuple[str, Status, str, str]:
        """What to report, by the names of the network as it was: a layer of a geometric one was not there."""
        if not self.layer:
            return self.norm, "changed", "a batch norm of unit variance", "MeanNorm"
        name = self.layer if self.layer in modules else self.layer.removesuffix(".layer")
        return name, "changed", f"{self.norm} is folded into it", ""


def _folds(subject: Subject) -> dict[str, _Fold]:
    """What becomes of every norm that can be folded, by name."""
    found: dict[str, _Fold] = {}
    before = {
        n: name for name in subject.modules if name in subject.counts and (n := norm_after(subject, name))
    }
    norms = [n for n, module in subject.modules.items() if is_fixed(module) and n in subject.counts]
    rest = [norm for norm in norms if norm not in before]
    after = layers_after(subject, rest) if rest and len(subject.recordings) == 1 else {}
    taken: set[str] = set()
    for norm in norms:
        if norm in before:
            found[norm] = _Fold(norm, before[norm])
        elif norm in after and after[norm][0] not in taken:
            taken.add(after[norm][0])
            found[norm] = _Fold(norm, *after[norm])
        elif isinstance(subject.modules[norm], MeanNorm):
            value = subject.recordings[0].calls_of[norm][0].outputs[0]
            found[norm] = _Fold(norm, dims=len(value.shape))
    return found
