"""From a ReLU back to the layer whose units it rectifies, where nothing else depends on them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torch import nn

from relucid._torch import BatchNormNd, ConvNd
from relucid.convert.flow import is_within
from relucid.convert.layout import Layout, UnsupportedOpError, channel_dims, display_name, propagate
from relucid.convert.network import RecordedModel
from relucid.inspect.execution import Call, Node, Recording
from relucid.nn import GeometricLayer, MeanNorm

LAYERS = (nn.Linear, ConvNd, GeometricLayer)
NORMS = (BatchNormNd, MeanNorm, nn.GroupNorm, nn.LayerNorm, nn.modules.instancenorm._InstanceNorm)


@dataclass(frozen=True)
class Units:
    """The units that a ReLU rectifies: the layer that computes them, and the norms between, the last one first."""

    layer: str
    norms: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """The layer and the norms."""
        return (self.layer, *self.norms)


def units_of(network: RecordedModel, recording: Recording, relu: Node) -> Units | str:
    """The units that a ReLU rectifies, or why they cannot be changed without changing something else."""
    dims, norms = channel_dims(recording.nodes), list[str]()
    value, readers = relu.rectified, {relu}
    while True:
        if value in recording.outputs:
            return "the network returns what it rectifies"
        if not set(recording.readers.get(value, ())) <= readers:
            return "something else reads the same units before they are rectified"
        call = _call(network, recording, value)
        if call is not None and isinstance(network.modules[call.module], LAYERS):
            return _usable(network, Units(call.module, tuple(norms)))
        if call is not None:
            if len(call.inputs) != 1:
                return f"{call.module} combines several values"
            norms.append(call.module)
            readers = {node for node in recording.nodes if is_within(node.module, call.module)}
            value = call.inputs[0]
            continue
        reason = _obstacle(value, dims)
        if reason:
            return reason
        readers, value = {value}, value.upstream[0]


def _call(network: RecordedModel, recording: Recording, value: Node) -> Call | None:
    """The call of a layer or norm that returns a value."""
    kinds = (*LAYERS, *NORMS)
    calls = (call for call in recording.calls if value in call.outputs)
    return next((call for call in calls if isinstance(network.modules[call.module], kinds)), None)


def _obstacle(value: Node, dims: Mapping[Node, int]) -> str:
    """Why a value cannot be followed back; "" for an operation that treats all channels alike."""
    if value.order < 0:
        return "no layer comes before it"
    if value.has_weight:
        return f"the weight of {value.name} is used outside of a layer"
    if value.op in ("add", "sub"):
        return "it rectifies a sum, whose terms must keep their widths"
    if value.op in ("cat", "stack"):
        return "it rectifies a concatenation, whose parts must keep their widths"
    before = value.upstream[0] if len(value.upstream) == 1 else None
    try:
        if before is None or before not in dims:
            return f"{display_name(value)} comes between it and its layer"
        propagate(value, {before: Layout.same(before.shape[dims[before]], dims[before])})
    except UnsupportedOpError:
        return f"{display_name(value)} comes between it and its layer"
    return ""


def _usable(network: RecordedModel, units: Units) -> Units | str:
    """The units, unless their layer or norms do more than compute them, or are frozen."""
    for name in units.names:
        module: Any = network.modules[name]
        if network.shared(name) or network.counts[name] > 1:
            return f"{name} is used more than once"
        if hasattr(module, "parametrizations"):
            return f"the weight of {name} is computed from others (parametrized)"
        if any(not p.requires_grad for p in module.parameters(recurse=False)):
            return f"{name} is frozen"
    return units
