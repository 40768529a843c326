"""A network in plain layers again: geometric layers, parametrizations and norms become part of their weights."""

from __future__ import annotations

import copy
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

from relucid._torch import has_hooks, unparametrized_class
from relucid.convert._edits import Edits
from relucid.convert._recipe import applied
from relucid.convert._steps import Read, Step, signs_of
from relucid.convert.conversion import Conversion, conversion
from relucid.convert.copies import aliased
from relucid.convert.examples import Given
from relucid.convert.flow import follow
from relucid.convert.layout import Layout, channel_dims
from relucid.convert.modules import Function
from relucid.convert.network import Note, RecordedModel
from relucid.convert.norms import is_fixed, layers_after, norm_after
from relucid.convert.search import converted, delivered, largest_valid_subset
from relucid.inspect.execution import Method, Recording
from relucid.nn import GeometricLayer, MeanNorm
from relucid.nn.affine import affine_after, affine_before, affine_of
from relucid.nn.kinds import is_homogeneous
from relucid.nn.rectify import of_channels

NORMS: dict[int, Any] = {2: nn.BatchNorm1d, 3: nn.BatchNorm1d, 4: nn.BatchNorm2d, 5: nn.BatchNorm3d}


@dataclass(frozen=True, eq=False)
class Plain(Step):
    """A standard layer in place of a geometric one, with its activation after it; plain weights for parametrized ones.

    Negative scales are left out: the layers that read it must take them, or a batch norm.
    """

    scale: tuple[float, ...] = ()  #: what a batch norm multiplies the channels by
    dims: int = 0  #: of the value that it multiplies

    def apply(self, edits: Edits) -> None:
        """Change the module."""
        module: Any = edits.model.get_submodule(self.name)
        if parametrize.is_parametrized(module):
            edits.turn(self.name, _unparametrized(copy.deepcopy(module)))
            return
        layer: Any = copy.deepcopy(module)
        activation, layer.activation = layer.activation, None
        if activation is not None and layer.scale is not None:
            kept = nn.Parameter(layer.scale.detach().abs())
            layer.scale = kept if is_homogeneous(activation) else None
        new: nn.Module = layer.to_standard()
        if activation is not None:
            after: Any = activation if isinstance(activation, nn.Module) else Function(activation)
            new = nn.Sequential(OrderedDict(layer=new, activation=after))
        if self.scale:
            like = next(new.parameters())
            norm = NORMS[self.dims](len(self.scale), eps=0.0).to(like)
            norm.weight.data.copy_(torch.tensor(self.scale, dtype=torch.float64))
            new.add_module("scale", norm)
        signs = signs_of(self.name, module)
        edits.turn(self.name, new)
        for step in signs:
            step.apply(edits)


@dataclass(frozen=True, eq=False)
class Fold(Step):
    """A norm becomes part of the layer before it, or after it, or a batch norm of unit variance."""

    layer: str = ""  #: "" for a batch norm
    layout: Layout | None = (
        None  #: how the norm's channels reach the layer after it; None for the layer before it
    )
    dims: int = 0  #: of the value of a mean norm that becomes a batch norm

    @property
    def modules(self) -> tuple[str, ...]:
        """The names of the modules whose own numbers change."""
        return (self.name, self.layer) if self.layer else (self.name,)

    def apply(self, edits: Edits) -> None:
        """Change the modules."""
        norm: Any = edits.model.get_submodule(self.name)
        new: nn.Module = nn.Identity()
        if not self.layer:
            fixed: Any = NORMS[self.dims](norm.num_features, eps=0.0, affine=False).to(norm.running_mean)
            fixed.running_mean.copy_(-affine_of(norm)[1])
            new = fixed
        else:
            layer: Any = edits.model.get_submodule(self.layer)
            if self.layout is None:
                weight, bias = affine_after(layer, *affine_of(norm))
            else:
                # For every input of the layer, the channel of the norm: flatten repeats each for its places.
                origin = self.layout.origin
                maps = (x.cpu()[origin // (len(origin) // len(x))] for x in affine_of(norm))
                weight, bias = affine_before(layer, *(x.to(layer.weight.device) for x in maps))
            edits.parameter(f"{self.layer}.weight", weight)
            if layer.bias is not None:
                edits.parameter(f"{self.layer}.bias", bias)
            else:
                bias = nn.Parameter(bias.to(layer.weight), layer.weight.requires_grad)
                edits.add(layer, "bias", bias, beside=[layer.weight])
            for step in signs_of(self.layer, norm) if self.layout is None else []:
                step.apply(edits)
        edits.turn(self.name, new)


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
    steps, plain = _plain(network)
    # Norms are looked for in the network that has plain layers already.
    between = applied(steps, aliased(model))
    folds = _folds(RecordedModel(between, example, call, training=False))

    def attempt(names: list[str], dropped: Mapping[str, str]) -> Conversion:
        notes = [*plain, *((name, "kept", reason) for name, reason in dropped.items())]
        notes += [_note(network, folds[name]) for name in names]
        chosen = [folds[name] for name in names]
        same = {fold.layer: fold.name for fold in chosen if fold.layer and fold.layout is None}
        moved = {step.name for step in steps} | {fold.layer for fold in chosen}
        return converted(
            *(network, [*steps, *chosen], network.changes(notes, "plain already", "plain already")),
            same={name: same.get(name, "") for name in moved | same.keys()},
            probe=False,
            training=False,
            tolerance=tolerance,
        )

    readers = {name: fold.layer for name, fold in folds.items()}
    fused = largest_valid_subset(
        folds, attempt, lambda layer: {n for n, reader in readers.items() if layer in (n, reader)}
    )
    return delivered(network, fused)


def _note(network: RecordedModel, fold: Fold) -> Note:
    """What becomes of a norm, by the names of the network as it was: a layer of a geometric one was not there."""
    if not fold.layer:
        return fold.name, "changed", "a batch norm of unit variance"
    name = fold.layer if fold.layer in network.modules else fold.layer.removesuffix(".layer")
    return name, "changed", f"{fold.name} is folded into it"


def _plain(network: RecordedModel) -> tuple[list[Step], list[Note]]:
    """Make plain layers of geometric ones and of parametrized weights; the layers that read them take their scales."""
    modules: Mapping[str, Any] = network.modules
    layers = {name: Plain(name) for name, module in modules.items() if isinstance(module, GeometricLayer)}
    notes: list[Note] = []
    scales = {name: scale for name in layers if (scale := remaining_scale(modules[name])) is not None}
    moving = dict(scales)

    def keep(name: str, reason: str) -> None:
        """Leave the scales of a layer after it; without a norm for values of its shape, the layer stays geometric."""
        values = [c.outputs[0] for r in network.recordings for c in r.calls if c.module == name]
        scale, module = moving.pop(name), modules[name]
        dims = {len(value.shape) for value in values}
        if len(dims) == 1 and dims <= NORMS.keys() and (module.spatial or dims == {2}):
            phases = of_channels(scale, module.activation, values[0].shape[1])
            layers[name] = Plain(name, tuple(phases.tolist()), dims.pop())
        else:
            del layers[name]
            notes.append((name, "kept", f"its scales cannot move on: {reason}"))

    def starts(recording: Recording) -> dict[Any, Layout]:
        dims, layouts = channel_dims(recording.nodes), {}
        for call in (call for call in recording.calls if call.module in moving):
            node, module = call.outputs[0], modules[call.module]
            dim = len(node.shape) - 1 if module.spatial == 0 else dims.get(node, 1)
            phases = of_channels(moving[call.module], module.activation, node.shape[dim])
            layouts[node] = Layout(dim, torch.arange(len(phases)), phases, frozenset([call.module]))
        return layouts

    for name in [name for name in moving if has_hooks(modules[name])]:
        keep(name, "hooks see its value")
    flows = follow(network, starts, keep, list(layers))
    parametrized = [Plain(name) for name, module in modules.items() if parametrize.is_parametrized(module)]
    notes += [(step.name, "changed", "plain weights") for step in parametrized]
    for name, step in layers.items():
        where = "become a batch norm" if step.scale else "move into the layers that read it"
        moved = f"; its negative scales {where}" if name in scales else ""
        notes.append((name, "changed", f"plain {modules[name].standard.__name__}{moved}"))
    steps: list[Step] = [*parametrized, *layers.values()]
    for name, layout in (read for one in flows for read in one.reads.items()):
        # A module will be made of a layer and its activation.
        inside = name in layers and modules[name].activation is not None
        steps.append(Read(f"{name}.layer" if inside else name, layout))
    return steps, notes


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
    folds: dict[str, Fold] = {}
    before = {
        n: name for name in network.modules if name in network.counts and (n := norm_after(network, name))
    }
    norms = [n for n, module in network.modules.items() if is_fixed(module) and n in network.counts]
    rest = [norm for norm in norms if norm not in before]
    after = layers_after(network, rest) if rest and len(network.recordings) == 1 else {}
    taken: set[str] = set()
    for norm in norms:
        if norm in before:
            folds[norm] = Fold(norm, before[norm])
        elif norm in after and after[norm][0] not in taken:
            taken.add(after[norm][0])
            folds[norm] = Fold(norm, *after[norm])
        elif isinstance(network.modules[norm], MeanNorm):
            value = network.recordings[0].calls_of[norm][0].outputs[0]
            folds[norm] = Fold(norm, dims=len(value.shape))
    return folds


def _unparametrized(module: Any) -> nn.Module:
    """The module with plain weights in place of parametrized ones."""
    training, module = module.training, module.eval()  # spectral norm iterates in training
    lists = dict(module.parametrizations.named_children())
    weights = {key: getattr(module, key).detach() for key in lists}
    trained = {key: any(p.requires_grad for p in m.parameters()) for key, m in lists.items()}
    # Torch's own removal changes the class, which the original shares.
    del module.parametrizations
    module.__class__ = unparametrized_class(module)
    for key, weight in weights.items():
        module.register_parameter(key, nn.Parameter(weight, trained[key]))
    plain: nn.Module = module.train(training)
    return plain
