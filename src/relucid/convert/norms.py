"""Norms with fixed statistics are affine maps: fold them into the layers around them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import torch
from torch import Tensor, nn

from relucid._torch import BatchNormNd, ConvNd, ConvTransposeNd
from relucid.convert.flow import flow
from relucid.convert.layout import VIEWS, Layout, channel_dims
from relucid.convert.subject import Subject
from relucid.convert.surgery import Surgery
from relucid.inspect.execution import Call, Node
from relucid.inspect.operations import BATCH_NORMS
from relucid.nn import MeanNorm
from relucid.nn.affine import affine_after, affine_before, affine_of, padding_of

# Operations that a factor passes, but not a shift.
SHIFTED = ("max_pool", "avg_pool", "constant_pad", "relu", "leaky_relu")
MEAN_NORMS = ("add", "sub")  # what a mean norm ends with


def is_fixed(module: nn.Module | None) -> bool:
    """Whether a module is a norm with running statistics: in evaluation, a fixed affine map."""
    return isinstance(module, BatchNormNd | MeanNorm) and module.running_mean is not None


def is_plain(module: nn.Module | None) -> bool:
    """Whether a module is torch's own linear or convolution layer, with its weight as a parameter."""
    return isinstance(module, nn.Linear | ConvNd) and isinstance(module.weight, nn.Parameter)


def readers_of(subject: Subject, name: str) -> set[str] | None:
    """The modules that are called with the value of a module; None if anything else reads it."""
    found: set[str] = set()
    for recording in subject.recordings:
        calls = recording.calls_of.get(name, [])
        values = [node for call in calls for node in call.outputs]
        if not calls or set(values) & set(recording.outputs) or not all(map(_is_bare, calls)):
            return None
        for node in values:
            for reader in recording.readers.get(node, []):
                if not any(node in call.inputs for call in recording.calls_of.get(reader.module, [])):
                    return None
                found.add(reader.module)
    return found


def _is_bare(call: Call) -> bool:
    """Whether a layer or norm returns what it computes: no hook, and no forward of a subclass, comes after it."""
    value = call.outputs[0] if call.outputs else None
    while value is not None and value.op in VIEWS:
        value = value.upstream[0] if value.upstream else None
    return value is not None and (value.has_weight or value.op in (*BATCH_NORMS, *MEAN_NORMS))


def norm_after(subject: Subject, name: str) -> str | None:
    """The norm that alone reads a layer's value, and nothing else; None if there is none."""
    found, counts = readers_of(subject, name), subject.counts
    if found is None or len(found) != 1:
        return None
    norm = next(iter(found))
    layer = subject.modules[name]
    if not is_fixed(subject.modules.get(norm)) or not is_plain(layer) or counts[norm] > 1 or counts[name] > 1:
        return None
    if subject.shared(name) or subject.shared(norm):
        return None
    rank = len(subject.recordings[0].calls_of[name][0].outputs[0].shape)
    # The norm's channels are in dimension 1, a linear layer's in the last.
    return None if isinstance(layer, nn.Linear) and rank > 2 else norm


def fold(surgery: Surgery, norm: str, layer: str) -> None:
    """Fold a norm into the layer before it."""
    _set(surgery, layer, *absorbed(surgery.model.get_submodule(layer), surgery.model.get_submodule(norm)))
    surgery.identity(norm)


def absorbed(layer: nn.Module, norm: nn.Module) -> tuple[Tensor, Tensor]:
    """The weight and bias of a layer with the norm that follows it folded in, in float64."""
    assert isinstance(layer, nn.Linear | ConvNd)
    return affine_after(layer, *affine_of(norm))


def _set(surgery: Surgery, layer: str, weight: Tensor, bias: Tensor) -> None:
    surgery.resize(f"{layer}.weight", shape=list(weight.shape), value=weight)
    surgery.bias(layer, value=bias)


def layers_after(subject: Subject, norms: Iterable[str]) -> dict[str, tuple[str, Layout]]:
    """By norm, the layer that alone reads its value, and how the norm's channels reach it.

    A zero-padded convolution cannot take a norm: its zeros would have to be normalized too.
    """
    (recording,) = subject.recordings
    dims, starts = channel_dims(recording.nodes), dict[Node, Layout]()
    for norm in norms:
        if subject.counts[norm] == 1 and not subject.shared(norm) and _is_bare(recording.calls_of[norm][0]):
            node = recording.calls_of[norm][0].outputs[0]
            dim = dims.get(node, 1)
            # A factor of 2 travels only where a scale can be moved.
            factor = torch.full((node.shape[dim],), 2.0, dtype=torch.float64)
            starts[node] = Layout(dim, torch.arange(len(factor)), factor, frozenset([norm]))
    found = flow(recording, starts, subject.modules)
    stopped = {norm for layout, _ in found.stuck for norm in layout.sites}
    stopped |= {n for node, each in found.layouts.items() if node.op.startswith(SHIFTED) for n in each.sites}
    reads = [(norm, name, layout) for name, layout in found.reads.items() for norm in layout.sites]
    times = Counter(norm for norm, *_ in reads)
    return {
        norm: (name, layout)
        for norm, name, layout in reads
        if norm not in stopped
        and times[norm] == 1
        and len(layout.sites) == 1
        and _takes_a_norm(subject, name)
    }


def _takes_a_norm(subject: Subject, name: str) -> bool:
    layer = subject.modules[name]
    plain = is_plain(layer) and not isinstance(layer, ConvTransposeNd) and not pads_with_zeros(layer)
    return plain and not subject.shared(name) and subject.counts[name] == 1


def fold_forward(surgery: Surgery, norm: str, name: str, layout: Layout) -> None:
    """Fold a norm into the layer that reads its value: layer(scale * x + shift)."""
    layer = surgery.model.get_submodule(name)
    assert isinstance(layer, nn.Linear | ConvNd)
    scale, shift = (x.cpu()[_unit(layout, len(x))] for x in affine_of(surgery.model.get_submodule(norm)))
    _set(surgery, name, *affine_before(layer, scale, shift))
    surgery.identity(norm)


def _unit(layout: Layout, channels: int) -> Tensor:
    """For every input of a layer, the channel of the norm that it comes from: flatten repeats each for its places."""
    return layout.origin // (len(layout.origin) // channels)


def pads_with_zeros(layer: nn.Module) -> bool:
    """Whether a layer pads its input with zeros.

    >>> pads_with_zeros(nn.Conv2d(1, 1, 3, padding=1)), pads_with_zeros(nn.Conv2d(1, 1, 3, padding="valid"))
    (True, False)
    >>> pads_with_zeros(nn.Conv2d(1, 1, 3, padding=1, padding_mode="reflect"))
    False
    """
    return isinstance(layer, ConvNd) and layer.padding_mode == "zeros" and any(padding_of(layer))
