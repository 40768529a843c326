"""CReLU with half the filters (crelu Section 3): the paper's recipe on any network, to be trained from scratch.

CReLU doubles the half, so that a rectified value has the channels that it had, and nothing after it changes. Only what
lies between a layer and its ReLU does.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from relucid._torch import ConvTransposeNd
from relucid.convert._edits import Edits
from relucid.convert._expand import Candidate, Expansion
from relucid.convert._recipe import RECIPE
from relucid.convert._signature import signature
from relucid.convert._steps import Double, Step
from relucid.convert._units import Units, units_of
from relucid.convert.conversion import Conversion, applied
from relucid.convert.copies import ResettableCopy, aliased
from relucid.convert.errors import ConversionError
from relucid.convert.examples import batch_size
from relucid.convert.network import Layers, RecordedModel
from relucid.convert.search import delivered, largest_valid_subset
from relucid.convert.tape import recorded
from relucid.inspect.execution import Method, Node, Recording
from relucid.models import count_parameters
from relucid.nn import GeometricLayer
from relucid.printing import first_line
from relucid.randomness import users_own

# Where layers and norms keep the number of their units.
SIZES = ("out_features", "out_channels", "num_features", "num_channels", "normalized_shape")


@dataclass(frozen=True, eq=False)
class Draw(Step):
    """A module's tensors, drawn again in its own way."""

    def apply(self, edits: Edits) -> None:
        """Draw into new tensors, since the old ones may have to be put back."""
        _draw(edits, self.name)


@dataclass(frozen=True, eq=False)
class Halve(Step):
    """Half the units of a layer or norm, drawn again in its own way."""

    def apply(self, edits: Edits) -> None:
        """Cut every tensor that has an entry per unit, and draw what is left."""
        module: Any = edits.model.get_submodule(self.name)
        for leaf, value in _tensors(module):
            if value.dim():
                dim = 1 if isinstance(module, ConvTransposeNd) and value.dim() > 1 else 0
                edits.parameter(f"{self.name}.{leaf}", value.detach().narrow(dim, 0, value.shape[dim] // 2))
        for key in SIZES:
            size = getattr(module, key, None)
            if isinstance(size, int):
                edits.set(module, key, size // 2)
            elif isinstance(size, tuple):
                edits.set(module, key, (size[0] // 2, *size[1:]))
        if isinstance(module, GeometricLayer):
            units, *others = module.weight_shape
            edits.set(module, "weight_shape", torch.Size([units // 2, *others]))
        _draw(edits, self.name)


def _draw(edits: Edits, name: str) -> None:
    module: Any = edits.model.get_submodule(name)
    for leaf, value in _tensors(module):
        edits.parameter(f"{name}.{leaf}", value.detach().clone())
    with users_own():
        module.reset_parameters()


def _tensors(module: nn.Module) -> list[tuple[str, Tensor]]:
    named = (*module.named_parameters(recurse=False), *module.named_buffers(recurse=False))
    return [(name, value) for name, value in named if name != RECIPE]


def halve(
    model: nn.Module, example: Any, layers: Layers, call: Method | None, inplace: bool, optimizer: Any
) -> Conversion:
    """``to_crelu`` with mode="halve"; see there."""
    network = RecordedModel(model, example, call)
    network.report.weighted, network.report.rectified = "not halved", "not chosen"
    search = Expansion(network, layers)
    obstacles = {relu: _reason(network, relu) or why for relu, why in search.obstacles.items()}
    halves: dict[str, Units] = {}
    for name, site in search.sites.items():
        units = _halved(network, site)
        if isinstance(units, str):
            obstacles |= dict.fromkeys(site.relus, units)
        else:
            halves[name] = units

    def attempt(names: list[str], dropped: Mapping[str, str]) -> Conversion:
        chosen = [(search.sites[name], halves[name]) for name in names]
        left_out = {relu: why for name, why in dropped.items() for relu in search.sites[name].relus}
        steps = _steps(network, chosen)
        trial = applied(steps, aliased(model))
        products = _check(network, trial)
        _note(network, chosen, obstacles | left_out, {step.name for step in steps})
        nan, sizes = float("nan"), (count_parameters(model), count_parameters(trial))
        return Conversion(
            *(trial, network.report.changes(), nan, nan, nan, sizes, products, tuple(steps)),
            original=signature(model),
        )

    return delivered(network, largest_valid_subset(halves, attempt), inplace, optimizer)


def _halved(network: RecordedModel, site: Candidate) -> Units | str:
    """What to halve before the ReLUs of a site, or why it cannot be."""
    first, *others = _options(network, site.relus)
    if isinstance(first, str):
        return first
    if others:
        return next((o for o in others if isinstance(o, str)), "it rectifies several layers")
    return _divisible(network.modules, first) or first


def _reason(network: RecordedModel, relu: str) -> str:
    """Why the units of a ReLU cannot be halved; "" if they themselves can."""
    return next((option for option in _options(network, (relu,)) if isinstance(option, str)), "")


def _options(network: RecordedModel, relus: Collection[str]) -> list[Units | str]:
    """The units of some ReLUs, or why they cannot be changed, in all recordings."""
    options: dict[Units | str, None] = {}
    for recording in network.recordings:
        for node in (node for node in recording.nodes if node.name in relus and node.kind is not None):
            options[units_of(network, recording, node) if _is_read(recording, node) else OUTPUTS] = None
    return [*options]


OUTPUTS = "no layer reads it: its units are the network's outputs"


def _is_read(recording: Recording, node: Node) -> bool:
    """Whether a layer with weights multiplies what a value becomes."""
    stack, seen = [node], {node}
    while stack:
        for reader in recording.readers.get(stack.pop(), []):
            if reader.has_weight:
                return True
            if reader not in seen:
                seen.add(reader)
                stack.append(reader)
    return False


def _divisible(modules: Mapping[str, nn.Module], units: Units) -> str:
    """Why the units are not the sum of two equal halves that their layer and norms could compute; "" if they are."""
    layer: Any = modules[units.layer]
    size = layer.out_features if hasattr(layer, "out_features") else layer.out_channels
    if size % 2:
        return f"{units.layer} has {size} units, an odd number"
    if (size // 2) % getattr(layer, "groups", 1):
        return f"{units.layer} has {layer.groups} groups, into which half of its {size} filters do not divide"
    for name in units.norms:
        norm: Any = modules[name]
        if isinstance(norm, nn.GroupNorm) and (size // 2) % norm.num_groups:
            return f"{name} has {norm.num_groups} groups, into which half of the {size} units do not divide"
        if getattr(norm, "normalized_shape", (size,))[0] != size:
            return f"{name} normalizes other dimensions than that of the units"
    return ""


def _steps(network: RecordedModel, chosen: Sequence[tuple[Candidate, Units]]) -> list[Step]:
    """Halve layers and norms, draw all others again, and put both phases after the halves."""
    if not chosen:
        return []
    halves = {name for _, units in chosen for name in units.names}
    steps: list[Step] = [
        Halve(name) if name in halves else Draw(name) for name in _drawn(network.modules, halves)
    ]
    return steps + [Double(site.module, site.dim, replace=site.is_activation) for site, _ in chosen]


def _drawn(modules: Mapping[str, nn.Module], halves: Collection[str]) -> list[str]:
    """The modules to draw again: all whose own tensors can be, and that are not frozen or computed from others."""
    closed = tuple(f"{n}." for n, m in modules.items() if isinstance(m, nn.MultiheadAttention))
    names = []
    for name, module in modules.items():
        tensors = list(module.parameters(recurse=False))
        frozen = any(not p.requires_grad for p in tensors)
        computed = hasattr(module, "parametrizations") or name.startswith(closed)
        if name in halves or (
            hasattr(module, "reset_parameters") and _tensors(module) and not (frozen or computed)
        ):
            names.append(name)
    return names


def _check(network: RecordedModel, trial: nn.Module) -> tuple[int, int]:
    """It must run in both modes, and return values of the same shapes; return the multiply-adds before and after."""
    copy, products = ResettableCopy(trial), 0
    try:
        for number, (example, before) in enumerate(zip(network.examples, network.outputs, strict=True)):
            options = {"training": False, "backward": False, "layers": False, "count": number == 0}
            tape = recorded(copy, example, network.call, **options)  # type: ignore[arg-type]
            if [x.shape for x in tape.outputs] != [x.shape for x in before.outputs]:
                raise ConversionError("with half the filters, the outputs have other shapes")
            products = products or tape.multiply_adds
        if network.learned_on is not None:
            recorded(copy, network.learned_on, network.call, training=True, backward=True, layers=False)
    except ConversionError:
        raise
    except Exception as error:
        raise ConversionError(
            f"the network does not run with half the filters: {first_line(error)}"
        ) from error
    copy.fresh(freeze=False)
    size = batch_size(network.examples[0])
    return network.outputs[0].multiply_adds // size, products // size


def _note(
    network: RecordedModel,
    chosen: Sequence[tuple[Candidate, Units]],
    obstacles: Mapping[str, str],
    drawn: Collection[str],
) -> None:
    network.report.forget()
    for relu, reason in obstacles.items():
        network.report.note(relu, "refused", reason)
    for site, units in chosen:
        for relu in site.relus:
            network.report.note(relu, "changed", f"CReLU of half the units of {units.layer}")
        for name in units.names:
            network.report.note(
                name, "changed", "half the units, drawn again", type(network.modules[name]).__name__
            )
    for name in (name for name in network.modules if name and name not in drawn):
        module = network.modules[name]
        if chosen and list(module.parameters(recurse=False)):
            network.report.note(name, "kept", "its weights are not drawn again", type(module).__name__)
