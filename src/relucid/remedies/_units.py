"""Hidden units: which weights make them, and which layers read them, through norms, pooling and flatten."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from relucid._torch import BatchNormNd, ConvNd, ConvTransposeNd
from relucid.convert._edits import Edits
from relucid.convert._renew import Revive, drawn
from relucid.convert.flow import flow
from relucid.convert.layout import Layout, channel_dims
from relucid.inspect._trace import _walk
from relucid.inspect.batches import parts_of
from relucid.inspect.execution import Method, Node, Recording, record
from relucid.nn import MeanNorm

NORMS = (BatchNormNd, nn.LayerNorm, nn.GroupNorm, MeanNorm)


@dataclass(frozen=True)
class HiddenLayer:
    """A layer with an activation: what makes its units, and what reads them."""

    name: str  #: of the linear or convolution layer
    activation: Node
    dim: int  #: of the units in the activation's output
    units: int
    norms: tuple[str, ...]  #: norms between the layer and its activation
    part: str  #: the part of the network that was run
    modules: dict[str, nn.Module]  #: of that part
    recording: Recording

    def columns(self, units: Tensor) -> dict[str, Tensor] | str:
        """The inputs of every layer that reads some units, by its name, or why these cannot be told from others."""
        scale = torch.ones(self.units, dtype=torch.float64)
        scale[units] = 0.0  # values that nobody listens to travel like this
        start = {self.activation: Layout(self.dim, torch.arange(self.units), scale, frozenset([self.name]))}
        flowed = flow(self.recording, start, self.modules)
        if flowed.stuck:
            return str(flowed.stuck[0][1])
        columns: dict[str, Tensor] = {}
        for name, layout in flowed.reads.items():
            if isinstance(self.modules[name], BatchNormNd):
                return f"{name} normalizes them after the activation"
            if name in flowed.carries or not isinstance(self.modules[name], nn.Linear | ConvNd):
                return f"{name} reads them one by one"
            if len(self.recording.calls_of[name]) > 1:
                return f"{name} is called more than once"
            columns[name] = (layout.scale == 0).nonzero().flatten()
        return columns if columns else "no layer reads them"

    def unit_of_columns(self) -> dict[str, Tensor] | str:
        """The unit that every input of the layers that read them comes from, -1 if from none; or why it is not known.

        Where the inputs from some units lie is known for any choice of units: the binary digits of their numbers tell.
        """
        numbers = torch.arange(self.units)
        columns = self.columns(numbers)
        if isinstance(columns, str):
            return columns
        units = {}
        for name, inputs in columns.items():
            module: Any = self.modules[name]
            count = module.in_features if isinstance(module, nn.Linear) else module.in_channels
            units[name] = torch.full((count,), -1)
            units[name][inputs] = 0
        for digit in range((self.units - 1).bit_length()):
            ones = numbers[(numbers >> digit) & 1 == 1]
            part = self.columns(ones)
            assert not isinstance(part, str)
            for name, inputs in part.items():
                units[name][inputs] += 1 << digit
        return units

    @property
    def prefix(self) -> str:
        """What begins the names of modules in the network."""
        return f"{self.part}." if self.part else ""


def hidden_layers(
    model: nn.Module, inputs: Any, call: Method | None = None
) -> tuple[list[HiddenLayer], dict[str, str]]:
    """The hidden layers that a network runs on the first batch of inputs, and why units of others cannot be changed."""
    layers: list[HiddenLayer] = []
    refused: dict[str, str] = {}
    for part, module, batches in parts_of(model, inputs, call):
        batch = next(iter(batches))
        recording = record(module, batch, call=call if module is model else None)
        dims, modules = channel_dims(recording.nodes), dict(module.named_modules())
        for node in (node for node in recording.nodes if node.is_activation and node.shape):
            layer = _hidden(node, recording, dims, modules)
            name, prefix = node.name or node.module or node.op, f"{part}." if part else ""
            if isinstance(layer, HiddenLayer):
                layers.append(replace(layer, part=part))
            else:
                refused[prefix + name] = layer
    return layers, refused


def _hidden(
    node: Node, recording: Recording, dims: dict[Node, int], modules: dict[str, nn.Module]
) -> HiddenLayer | str:
    """The layer of an activation, or why its units cannot be changed one by one."""
    if node.twin is not None or (node.kind and node.kind.doubled):
        return "its units have both phases (CReLU), which do not die"
    paths, ends = _walk(node.rectified if node.kind else node.upstream[0])
    if len(paths) != 1 or ends:
        return "several layers feed it"
    origin, path = paths[0]
    name = origin.name.partition("#")[0]
    layer = modules.get(name)
    if not isinstance(layer, nn.Linear | ConvNd) or isinstance(layer, ConvTransposeNd) or origin.name != name:
        return f"{origin.name} is not a plain layer that is called once"
    if len(recording.calls_of.get(name, ())) != 1 or hasattr(layer, "parametrizations"):
        return f"{name} is called more than once, or its weights are computed"
    norms = tuple(dict.fromkeys(n.module for n in path if isinstance(modules.get(n.module), NORMS)))
    dim = dims.get(node, len(node.shape) - 1)
    if node.shape[dim] != len(layer.weight):
        return f"its units are not those of {name}"
    return HiddenLayer(name, node, dim, node.shape[dim], norms, "", modules, recording)


def draw(layer: HiddenLayer, units: Tensor, columns: dict[str, Tensor], optimizers: list[Any]) -> None:
    """Give units new incoming weights, as their layer draws its first ones, and outgoing weights of zero."""
    root = layer.modules[""]
    entries = drawn(root, (layer.name, *layer.norms), units)
    Revive(layer.name, units, entries, columns).apply(Edits(root, optimizers))
