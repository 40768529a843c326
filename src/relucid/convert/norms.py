"""Norms with fixed statistics are affine maps: fold them into the layers around them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import torch
from torch import nn

from relucid._torch import BatchNormNd, ConvNd, ConvTransposeNd
from relucid.convert.flow import flow
from relucid.convert.layout import VIEWS, Layout, channel_dims
from relucid.convert.network import RecordedModel
from relucid.inspect.execution import Call, Node
from relucid.inspect.operations import BATCH_NORMS
from relucid.nn import MeanNorm
from relucid.nn.affine import padding_of

# Ops that commute with scaling but not with a shift.
SHIFTED = ("max_pool", "avg_pool", "constant_pad", "relu", "leaky_relu")
MEAN_NORMS = ("add", "sub")  # what a mean norm ends with


def is_fixed(module: nn.Module | None) -> bool:
    """Whether a module is a norm with running statistics: in evaluation, a fixed affine map."""
    return isinstance(module, BatchNormNd | MeanNorm) and module.running_mean is not None


def is_plain(module: nn.Module | None) -> bool:
    """Whether a module is torch's own linear or convolution layer, with its weight as a parameter."""
    return isinstance(module, nn.Linear | ConvNd) and isinstance(module.weight, nn.Parameter)


def readers_of(network: RecordedModel, name: str) -> set[str] | None:
    """The modules that are called with the value of a module; None if anything else reads it."""
    readers: set[str] = set()
    for recording in network.recordings:
        calls = recording.calls_of.get(name, [])
        values = [node for call in calls for node in call.outputs]
        if not calls or set(values) & set(recording.outputs) or not all(map(_is_bare, calls)):
            return None
        for node in values:
            for reader in recording.readers.get(node, []):
                if not any(node in call.inputs for call in recording.calls_of.get(reader.module, [])):
                    return None
                readers.add(reader.module)
    return readers


def relu_after(network: RecordedModel, name: str) -> str | None:
    """The ReLU that alone reads a module's value, if it is a module called once; None otherwise."""
    reader, *others = readers_of(network, name) or {""}
    is_relu = isinstance(network.modules.get(reader), nn.ReLU)
    return reader if is_relu and not others and network.counts[reader] == 1 else None


def _is_bare(call: Call) -> bool:
    """Whether a layer or norm returns what it computes: no hook, and no forward of a subclass, comes after it."""
    value = call.outputs[0] if call.outputs else None
    while value is not None and value.op in VIEWS:
        value = value.upstream[0] if value.upstream else None
    return value is not None and (value.has_weight or value.op in (*BATCH_NORMS, *MEAN_NORMS))


def norm_after(network: RecordedModel, name: str) -> str | None:
    """The norm that alone reads a layer's value, and nothing else; None if there is none."""
    readers, counts = readers_of(network, name), network.counts
    if readers is None or len(readers) != 1:
        return None
    norm = next(iter(readers))
    layer = network.modules[name]
    if not is_fixed(network.modules.get(norm)) or not is_plain(layer) or counts[norm] > 1 or counts[name] > 1:
        return None
    if network.shared(name) or network.shared(norm):
        return None
    rank = len(network.recordings[0].calls_of[name][0].outputs[0].shape)
    # The norm's channels are in dimension 1, a linear layer's in the last.
    return None if isinstance(layer, nn.Linear) and rank > 2 else norm


def layers_after(network: RecordedModel, norms: Iterable[str]) -> dict[str, tuple[str, Layout]]:
    """By norm, the layer that alone reads its value, and how the norm's channels reach it.

    A zero-padded convolution cannot take a norm: its zeros would have to be normalized too.
    """
    (recording,) = network.recordings
    dims, starts = channel_dims(recording.nodes), dict[Node, Layout]()
    for norm in norms:
        if network.counts[norm] == 1 and not network.shared(norm) and _is_bare(recording.calls_of[norm][0]):
            node = recording.calls_of[norm][0].outputs[0]
            dim = dims.get(node, 1)
            # A factor of 2 travels only where a scale can be moved.
            factor = torch.full((node.shape[dim],), 2.0, dtype=torch.float64)
            starts[node] = Layout(dim, torch.arange(len(factor)), factor, frozenset([norm]))
    way = flow(recording, starts, network.modules)
    stopped = {norm for layout, *_ in way.stuck for norm in layout.sites}
    stopped |= {
        n for node, layout in way.layouts.items() if node.op.startswith(SHIFTED) for n in layout.sites
    }
    reads = [(norm, name, layout) for name, layout in way.reads.items() for norm in layout.sites]
    times = Counter(norm for norm, *_ in reads)
    return {
        norm: (name, layout)
        for norm, name, layout in reads
        if norm not in stopped
        and times[norm] == 1
        and len(layout.sites) == 1
        and _takes_a_norm(network, name)
    }


def _takes_a_norm(network: RecordedModel, name: str) -> bool:
    layer = network.modules[name]
    plain = is_plain(layer) and not isinstance(layer, ConvTransposeNd) and not pads_with_zeros(layer)
    return plain and not network.shared(name) and network.counts[name] == 1


def pads_with_zeros(layer: nn.Module) -> bool:
    """Whether a layer pads its input with zeros.

    >>> pads_with_zeros(nn.Conv2d(1, 1, 3, padding=1)), pads_with_zeros(nn.Conv2d(1, 1, 3, padding="valid"))
    (True, False)
    >>> pads_with_zeros(nn.Conv2d(1, 1, 3, padding=1, padding_mode="reflect"))
    False
    """
    return isinstance(layer, ConvNd) and layer.padding_mode == "zeros" and any(padding_of(layer))
