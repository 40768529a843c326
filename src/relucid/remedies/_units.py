"""Hidden units: which weights make them, and which layers read them, through norms, pooling and flatten."""

from __future__ import annotations

from dataclasses import dataclass
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
from relucid.inspect.execution import Method, Recording, record
from relucid.inspect.recorder import Node
from relucid.nn import MeanNorm

NORMS = (BatchNormNd, nn.LayerNorm, nn.GroupNorm, MeanNorm)


@dataclass(frozen=True)
class HiddenLayer:
    """A layer with an activation: what makes its units, and what reads them."""

    name: str  #: of the linear or convolution layer
    activation: Node
    dim: int  #: of the units in the activation's output
    norms: tuple[str, ...]  #: norms between the layer and its activation
    modules: dict[str, nn.Module]  #: of the part of the network that was run
    recording: Recording

    @property
    def module(self) -> Any:
        """The layer itself."""
        return self.modules[self.name]

    def columns(self) -> dict[str, Tensor] | str:
        """By layer that reads the units: whose each of its inputs is, -1 for others; or why that is not known."""
        count = self.activation.shape[self.dim]
        # A factor of its own for every unit travels with its values, and tells where they are read.
        factors = torch.arange(2, count + 2, dtype=torch.float64)
        start = {self.activation: Layout(self.dim, torch.arange(count), factors, frozenset([self.name]))}
        flowed = flow(self.recording, start, self.modules)
        if flowed.stuck:
            return str(flowed.stuck[0][1])
        for name in flowed.reads:
            if isinstance(self.modules[name], BatchNormNd):
                return f"{name} normalizes them after the activation"
            if name in flowed.carries or not isinstance(self.modules[name], nn.Linear | ConvNd):
                return f"{name} reads them one by one"
            if len(self.recording.calls_of[name]) > 1:
                return f"{name} is called more than once"
        units = {name: layout.scale.long() - 2 for name, layout in flowed.reads.items()}
        return units if units else "no layer reads them"

    def draw(self, units: Tensor, columns: dict[str, Tensor], optimizers: list[Any]) -> None:
        """Give units new incoming weights, as the layer draws its first ones, and outgoing weights of zero."""
        root = self.modules[""]
        readers = {name: torch.isin(unit, units).nonzero().flatten() for name, unit in columns.items()}
        entries = drawn(root, (self.name, *self.norms), units)
        Revive(self.name, units, entries, readers).apply(Edits(root, optimizers))


def hidden_layers(
    model: nn.Module, inputs: Any, call: Method | None = None
) -> tuple[dict[str, HiddenLayer], dict[str, str]]:
    """The hidden layers that a network runs on the first batch of inputs, and why units of others cannot be changed."""
    layers: dict[str, HiddenLayer] = {}
    refused: dict[str, str] = {}
    for part, module, use, batches in parts_of(model, inputs, call):
        recording = record(module, next(iter(batches)), call=use)
        dims, modules = channel_dims(recording.nodes), dict(module.named_modules())
        prefix = f"{part}." if part else ""
        for node in (node for node in recording.nodes if node.is_activation and node.shape):
            layer = _hidden(node, recording, dims, modules)
            if isinstance(layer, str):
                refused[prefix + (node.name or node.module or node.op)] = layer
            elif prefix + layer.name in layers:
                refused[prefix + layer.name] = "several activations read its units"
            else:
                layers[prefix + layer.name] = layer
    return {name: layer for name, layer in layers.items() if name not in refused}, refused


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
    return HiddenLayer(name, node, dim, norms, modules, recording)
