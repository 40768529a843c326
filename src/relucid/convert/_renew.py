"""New values for some entries of parameters, with optimizer state that keeps their first step short."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from relucid._torch import ConvTransposeNd
from relucid.convert._edits import Edits
from relucid.convert._steps import Step
from relucid.nn import GeometricLayer
from relucid.nn.sphere import direction, latitudes_of

# What optimizers of torch call a state that is a size: a mean square, a sum of squares, a largest size, a step size.
SIZES = ("sq", "sum", "square_avg", "inf", "step_size")


@torch.no_grad()
def renew(
    edits: Edits,
    tensor: Tensor,
    dim: int,
    units: Tensor,
    value: Tensor | float,
    rows: slice = slice(None),
) -> None:
    r"""Write entries of a parameter or buffer; their gradients become 0.

    A first moment starts at 0. If a second moment started at 0, too, while Adam's count of steps went on, the first
    step would be (1 - beta1) / sqrt(1 - beta2) = 3.2 times the rate and the tenth 6.5 times, at which units die again.
    It starts at the mean of the living units' instead, entry by entry, but not below the mean of all their entries, as
    few of them may have learned from an input; where no unit lives, all state starts again.

    Args:
        edits: The network that is being changed, and its optimizers.
        tensor: The parameter or buffer.
        dim: The dimension of the units, 0 or 1.
        units: The units whose entries to write.
        value: The new entries.
        rows: With ``dim`` 1, the rows to write, such as those of a group of filters.
    """
    units = units.to(tensor.device)
    at = (rows, units) if dim else (units,)
    edits.write(tensor, at, value)
    if tensor.grad is not None:
        edits.write(tensor.grad, at, 0.0)
    living = torch.ones(tensor.shape[dim], dtype=torch.bool, device=tensor.device)
    living[units] = False
    none = not bool(living.any())
    for optimizer in edits.optimizers:
        state = optimizer.state.get(tensor)
        if not state:
            continue
        entries = {k: v for k, v in state.items() if isinstance(v, Tensor) and v.dim()}
        if (none and rows == slice(None)) or any(v.shape != tensor.shape for v in entries.values()):
            optimizer.state[tensor] = {}  # the edits put the old one back if need be
            continue
        for key, entry in entries.items():
            is_size = key.endswith(SIZES) and not bool((entry < 0).any())
            known = entry[rows].index_select(dim, living.nonzero().flatten()) if not none else entry
            start = known.mean(dim, keepdim=True).clamp(min=known.mean()) if not none else known.mean()
            edits.write(entry, at, start if is_size else 0.0)


def entries_of(model: nn.Module, names: Iterable[str], units: Tensor) -> dict[str, Tensor]:
    """The entries that some units have in the parameters and buffers of their layer and norms, by name."""
    return {
        f"{name}.{leaf}": entries
        for name in names
        for leaf, entries in _entries(model.get_submodule(name), units)
    }


def drawn(model: nn.Module, names: Iterable[str], units: Tensor) -> dict[str, Tensor]:
    """The same entries as the layer and norms draw their first ones, with a bias of 0."""
    entries = {}
    for name in names:
        fresh: Any = copy.deepcopy(model.get_submodule(name))
        fresh.reset_parameters()
        for leaf, values in _entries(fresh, units):
            entries[f"{name}.{leaf}"] = torch.zeros_like(values) if leaf in ("bias", "offset") else values
    return entries


def _entries(module: Any, units: Tensor) -> Iterable[tuple[str, Tensor]]:
    for leaf, value in (*module.named_parameters(recurse=False), *module.named_buffers(recurse=False)):
        if value.dim():
            yield leaf, value.detach().index_select(_dim(module, leaf), units.to(value.device))


def _dim(module: nn.Module, leaf: str) -> int:
    """The dimension of the units in a tensor of their layer."""
    return int(isinstance(module, ConvTransposeNd) and leaf == "weight")


@dataclass(frozen=True, eq=False)
class Revive(Step):
    """New entries for dead units of a layer, and zeros in the weights that read them."""

    units: Tensor
    entries: Mapping[str, Tensor] = field(default_factory=dict)  #: by parameter or buffer
    readers: Mapping[str, Tensor] = field(default_factory=dict)  #: by layer: its inputs that come from them
    norms: tuple[str, ...] = ()  #: between the layer and the ReLU, the last one first

    @property
    def sources(self) -> tuple[str, ...]:
        """The layer and the norms."""
        return (self.name, *self.norms)

    def apply(self, edits: Edits) -> None:
        """Write them; the optimizers' state lets their first step be no longer than a living unit's."""
        for name, values in self.entries.items():
            path, _, leaf = name.rpartition(".")
            module = edits.model.get_submodule(path)
            renew(edits, getattr(module, leaf), _dim(module, leaf), self.units, values)
        for name, columns in self.readers.items():
            _stop_reading(edits, edits.model.get_submodule(name), columns)


def _stop_reading(edits: Edits, module: Any, columns: Tensor) -> None:
    """Make the weights zero that multiply some inputs."""
    if isinstance(module, GeometricLayer):
        _turn_away(edits, module, columns)
        return
    groups = getattr(module, "groups", 1)
    if isinstance(module, ConvTransposeNd):
        renew(edits, module.weight, 0, columns, 0.0)
    elif groups == 1:
        renew(edits, module.weight, 1, columns, 0.0)
    elif module.weight.shape[1] == 1:  # one input per filter
        times = module.out_channels // groups
        rows = (columns.view(-1, 1) * times + torch.arange(times)).flatten()
        renew(edits, module.weight, 0, rows, 0.0)
    else:
        size, filters = module.in_channels // groups, module.out_channels // groups
        for group in range(groups):
            here = columns[columns.div(size, rounding_mode="floor") == group] - group * size
            if len(here):
                rows = slice(group * filters, (group + 1) * filters)
                renew(edits, module.weight, 1, here, 0.0, rows)


@torch.no_grad()
def _turn_away(edits: Edits, layer: Any, columns: Tensor) -> None:
    """Make the weights zero that multiply some inputs of a geometric layer, whose other weights stay."""
    rows = direction(layer.latitudes.double())
    rows = (rows if layer.sign is None else rows * layer.sign).view(layer.weight_shape)
    rows.index_fill_(1, columns.to(rows.device), 0.0)
    flat = rows.flatten(1)
    lengths = flat.norm(dim=1)
    latitudes = latitudes_of(flat / lengths.unsqueeze(1)).to(layer.latitudes)
    edits.write(layer.latitudes, ..., latitudes)
    places = torch.arange(flat.shape[1], device=flat.device).view(1, *rows.shape[1:])
    places = places.index_select(1, columns.to(flat.device)).flatten()
    places = places[places < latitudes.shape[1]]
    renew(edits, layer.latitudes, 1, places, latitudes[:, places])
    if layer.sign is not None:
        edits.write(layer.sign, ..., torch.where(flat < 0, -1.0, 1.0).to(layer.sign))
    edits.write(layer.scale, ..., layer.scale.double() * lengths)
    if layer.offset is not None:
        edits.write(layer.offset, ..., layer.offset.double() / lengths)
