"""CReLU with half the filters (crelu Section 3): the paper's recipe on any network, to be trained from scratch.

CReLU doubles the half, so that a rectified value has the channels that it had, and nothing after it changes. Only what
lies between a layer and its ReLU does.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from relucid._torch import ConvTransposeNd
from relucid.convert._edits import Edits
from relucid.convert._expand import find_candidates
from relucid.convert._recipe import RECIPE, applied
from relucid.convert._steps import Step
from relucid.convert._twins import signature
from relucid.convert._units import units_of
from relucid.convert.conversion import Conversion
from relucid.convert.copies import aliased
from relucid.convert.errors import ConversionError
from relucid.convert.network import Layers, Note, RecordedModel
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
    """A layer or norm, or half the units of one, drawn again in its own way."""

    half: bool = False

    def apply(self, edits: Edits) -> None:
        """Draw into new tensors, since the old ones may have to be put back."""
        module: Any = edits.model.get_submodule(self.name)
        for leaf, value in _tensors(module):
            new = value.detach()
            if self.half and value.dim():
                dim = 1 if isinstance(module, ConvTransposeNd) and value.dim() > 1 else 0
                new = new.narrow(dim, 0, value.shape[dim] // 2)
            edits.parameter(f"{self.name}.{leaf}", new.clone())
        for key in SIZES if self.half else ():
            size = getattr(module, key, None)
            if isinstance(size, int):
                edits.set(module, key, size // 2)
            elif isinstance(size, tuple):
                edits.set(module, key, (size[0] // 2, *size[1:]))
        if self.half and isinstance(module, GeometricLayer):
            units, *others = module.weight_shape
            edits.set(module, "weight_shape", torch.Size([units // 2, *others]))
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
    candidates, relus, reasons = find_candidates(network, layers)
    obstacles = {relu: _obstacle(network, relu) or why for relu, why in reasons.items()}
    halves: dict[str, tuple[str, ...]] = {}
    for name in candidates:
        try:
            halves[name] = _units(network, relus[name])
            _check_divisible(network.modules, *halves[name])
        except ConversionError as error:
            halves.pop(name, None)
            obstacles |= dict.fromkeys(relus[name], str(error))

    def attempt(names: list[str], dropped: Mapping[str, str]) -> Conversion:
        left_out = {relu: why for name, why in dropped.items() for relu in relus[name]}
        steps: list[Step] = [*_draws(network.modules, [halves[name] for name in names])]
        steps += [candidates[name] for name in names]
        trial = applied(steps, aliased(model))
        _check(network, trial)
        notes: list[Note] = [(relu, "refused", why) for relu, why in (obstacles | left_out).items()]
        for name in names:
            layer = halves[name][0]
            notes += [(relu, "changed", f"CReLU of half the units of {layer}") for relu in relus[name]]
            notes += [(part, "changed", "half the units, drawn again") for part in halves[name]]
        drawn = {step.name for step in steps}
        for name, module in network.modules.items() if names else ():
            if name and name not in drawn and list(module.parameters(recurse=False)):
                notes.append((name, "kept", "its weights are not drawn again"))
        nan, sizes = float("nan"), (count_parameters(model), count_parameters(trial))
        changes, products = network.changes(notes, "not halved", "not chosen"), network.multiply_adds(trial)
        return Conversion(
            *(trial, changes, nan, nan, nan, sizes, products, tuple(steps)), original=signature(model)
        )

    return delivered(network, largest_valid_subset(halves, attempt), inplace, optimizer)


def _obstacle(network: RecordedModel, relu: str) -> str:
    """Why the units of a ReLU cannot be halved; "" if they themselves can."""
    try:
        _units(network, [relu])
    except ConversionError as error:
        return str(error)
    return ""


def _units(network: RecordedModel, relus: Collection[str]) -> tuple[str, ...]:
    """The layer and norms of some ReLUs, the same in all recordings."""
    options: dict[tuple[str, ...], None] = {}
    for recording in network.recordings:
        for node in (node for node in recording.nodes if node.name in relus and node.kind is not None):
            if not _is_read(recording, node):
                raise ConversionError("no layer reads it: its units are the network's outputs")
            options[units_of(network, recording, node)] = None
    if len(options) > 1:
        raise ConversionError("it rectifies several layers")
    return next(iter(options))


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


def _check_divisible(modules: Mapping[str, nn.Module], layer: str, *norms: str) -> None:
    """Refuse units that are not the sum of two equal halves that their layer and norms could compute."""
    module: Any = modules[layer]
    size = module.out_features if hasattr(module, "out_features") else module.out_channels
    if size % 2:
        raise ConversionError(f"{layer} has {size} units, an odd number")
    if (size // 2) % getattr(module, "groups", 1):
        groups = f"{module.groups} groups, into which half of its {size} filters do not divide"
        raise ConversionError(f"{layer} has {groups}")
    for name in norms:
        norm: Any = modules[name]
        if isinstance(norm, nn.GroupNorm) and (size // 2) % norm.num_groups:
            groups = f"{norm.num_groups} groups, into which half of the {size} units do not divide"
            raise ConversionError(f"{name} has {groups}")
        if getattr(norm, "normalized_shape", (size,))[0] != size:
            raise ConversionError(f"{name} normalizes other dimensions than that of the units")


def _draws(modules: Mapping[str, nn.Module], halves: Collection[tuple[str, ...]]) -> list[Draw]:
    """Halve some layers and norms; draw all others that can be drawn and are neither frozen nor computed."""
    half = {name for names in halves for name in names}
    closed = tuple(f"{n}." for n, m in modules.items() if isinstance(m, nn.MultiheadAttention))
    draws = []
    for name, module in modules.items() if halves else ():
        frozen = any(not p.requires_grad for p in module.parameters(recurse=False))
        computed = hasattr(module, "parametrizations") or name.startswith(closed)
        able = hasattr(module, "reset_parameters") and bool(_tensors(module))
        if name in half or (able and not frozen and not computed):
            draws.append(Draw(name, name in half))
    return draws


def _check(network: RecordedModel, trial: nn.Module) -> None:
    """Raise an error unless it runs in both modes, and returns values of the same shapes."""
    try:
        for example, before in zip(network.examples, network.outputs, strict=True):
            tape = recorded(trial, example, network.call, training=False, backward=False, layers=False)
            if [x.shape for x in tape.outputs] != [x.shape for x in before.outputs]:
                raise ConversionError("with half the filters, the outputs have other shapes")
        if network.learned_on is not None:
            recorded(trial, network.learned_on, network.call, training=True, backward=True, layers=False)
    except ConversionError:
        raise
    except Exception as error:
        raise ConversionError(
            f"the network does not run with half the filters: {first_line(error)}"
        ) from error
