"""From a ReLU back to the layer whose units it rectifies, where nothing else depends on them."""

from __future__ import annotations

from collections.abc import Iterable

from torch import nn

from relucid._torch import BatchNormNd, ConvNd
from relucid.convert._expand import is_per_channel
from relucid.convert.errors import ConversionError
from relucid.convert.flow import is_within
from relucid.convert.layout import channel_dims, display_name
from relucid.convert.network import RecordedModel
from relucid.inspect.execution import Call, Node, Recording
from relucid.nn import GeometricLayer, MeanNorm

LAYERS = (nn.Linear, ConvNd, GeometricLayer)
NORMS = (BatchNormNd, MeanNorm, nn.GroupNorm, nn.LayerNorm, nn.modules.instancenorm._InstanceNorm)
TERMS = {
    **dict.fromkeys(("add", "sub"), "it rectifies a sum, whose terms must keep their widths"),
    **dict.fromkeys(("cat", "stack"), "it rectifies a concatenation, whose parts must keep their widths"),
}


def units_of(network: RecordedModel, recording: Recording, relu: Node) -> tuple[str, ...]:
    """The layer that computes the units of a ReLU, and the norms between, the last one first.

    A `ConversionError` says why these cannot be changed without changing something else.
    """
    dims, norms = channel_dims(recording.nodes), list[str]()
    value, readers = relu.rectified, {relu}
    while True:
        if value in recording.outputs:
            raise ConversionError("the network returns what it rectifies")
        if not set(recording.readers.get(value, ())) <= readers:
            raise ConversionError("something else reads the same units before they are rectified")
        call = _call(network, recording, value)
        if call is not None and isinstance(network.modules[call.module], LAYERS):
            names = (call.module, *norms)
            check_own(network, names)
            return names
        if call is not None:
            if len(call.inputs) != 1:
                raise ConversionError(f"{call.module} combines several values")
            norms.append(call.module)
            readers = {node for node in recording.nodes if is_within(node.module, call.module)}
            value = call.inputs[0]
            continue
        if value.order < 0:
            raise ConversionError("no layer comes before it")
        if value.has_weight:
            raise ConversionError(f"the weight of {value.name} is used outside of a layer")
        if value.op in TERMS:
            raise ConversionError(TERMS[value.op])
        if len(value.upstream) != 1 or not is_per_channel(value, dims):
            raise ConversionError(f"{display_name(value)} comes between it and its layer")
        readers, value = {value}, value.upstream[0]


def _call(network: RecordedModel, recording: Recording, value: Node) -> Call | None:
    """The call of a layer or norm that returns a value."""
    kinds = (*LAYERS, *NORMS)
    calls = (call for call in recording.calls if value in call.outputs)
    return next((call for call in calls if isinstance(network.modules[call.module], kinds)), None)


def check_own(network: RecordedModel, names: Iterable[str]) -> None:
    """Refuse layers or norms that do more than compute the units, or are frozen."""
    for name in names:
        module = network.modules[name]
        if network.shared(name) or network.counts[name] > 1:
            raise ConversionError(f"{name} is used more than once")
        if hasattr(module, "parametrizations"):
            raise ConversionError(f"the weight of {name} is computed from others (parametrized)")
        if any(not p.requires_grad for p in module.parameters(recurse=False)):
            raise ConversionError(f"{name} is frozen")
