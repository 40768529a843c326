"""Norms with fixed statistics are affine maps: fold them into the layers around them."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from relucid._torch import BatchNormNd, ConvNd, ConvTransposeNd
from relucid.convert.channels import Layout, channel_dims, flow
from relucid.convert.conversion import Subject, calls_of
from relucid.convert.surgery import Surgery, columns
from relucid.nn import MeanNorm
from relucid.nn.affine import affine_of
from relucid.nn.meannorm import pads_with_zeros


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
        calls = [call for call in recording.calls if call.module == name]
        values = {node for call in calls for node in call.outputs}
        if not calls or values & set(recording.outputs):
            return None
        # The innermost module that is given the value, for each operation that reads it.
        given = [c for c in recording.calls if values & set(c.inputs) and not name.startswith(f"{c.module}.")]
        leaves = {c.module for c in given if not any(_is_in(o.module, c.module) for o in given)}
        for node in recording.nodes:
            if values & set(node.upstream) and not any(
                _is_in(node.module, leaf, same=True) for leaf in leaves
            ):
                return None
        found |= leaves - {""}
    return found


def _is_in(name: str, other: str, *, same: bool = False) -> bool:
    """Whether a module is part of another."""
    return (same and name == other) or (name != other and (not other or name.startswith(f"{other}.")))


def norm_after(subject: Subject, name: str) -> str | None:
    """The norm that alone reads a layer's value, and nothing else; None if there is none."""
    found, counts = readers_of(subject, name), calls_of(subject.recordings)
    if found is None or len(found) != 1:
        return None
    norm = next(iter(found))
    layer = subject.modules[name]
    if not is_fixed(subject.modules.get(norm)) or not is_plain(layer) or counts[norm] > 1 or counts[name] > 1:
        return None
    if subject.shared(name) or subject.shared(norm):
        return None
    rank = next(len(c.outputs[0].shape) for r in subject.recordings for c in r.calls if c.module == name)
    # The norm's channels are in dimension 1, a linear layer's in the last.
    return None if isinstance(layer, nn.Linear) and rank > 2 else norm


@torch.no_grad()
def fold(surgery: Surgery, norm: str, layer: str) -> None:
    """Fold a norm into the layer before it."""
    own: Any = surgery.model.get_submodule(layer)
    weight, bias = absorbed(own, surgery.model.get_submodule(norm))
    surgery.resize(f"{layer}.weight", shape=list(weight.shape), value=weight)
    surgery.bias(layer, value=bias)
    surgery.identity(norm)


@torch.no_grad()
def absorbed(layer: nn.Module, norm: nn.Module) -> tuple[Tensor, Tensor]:
    """The weight and bias of a layer with the norm that follows it folded in, in float64."""
    assert isinstance(layer, nn.Linear | ConvNd)
    scale, shift = affine_of(norm)
    weight, groups = layer.weight.double(), getattr(layer, "groups", 1)
    if isinstance(layer, ConvTransposeNd):
        parts = weight.unflatten(0, (groups, -1))
        weight = (parts * scale.view(groups, 1, -1, *[1] * (weight.dim() - 2))).flatten(0, 1)
    else:
        weight = weight * scale.view(-1, *[1] * (weight.dim() - 1))
    return weight, shift if layer.bias is None else layer.bias.double() * scale + shift


def layer_after(subject: Subject, norm: str) -> tuple[str, Layout] | None:
    """The layer that alone reads a norm's value, and how the norm's channels reach it; None if there is none.

    A zero-padded convolution cannot take a norm: its zeros would have to be normalized too.
    """
    (recording,) = subject.recordings
    values = [call.outputs[0] for call in recording.calls if call.module == norm]
    if len(values) != 1 or subject.shared(norm):
        return None
    dim = channel_dims(recording.nodes).get(values[0], 1)
    size = values[0].shape[dim]
    # A factor of 2 travels only where a scale can be moved.
    start = Layout(dim, torch.arange(size), torch.full((size,), 2.0, dtype=torch.float64), frozenset([norm]))
    found = flow(recording, {values[0]: start}, subject.modules)
    if found.stuck or len(found.reads) != 1:
        return None
    name, layout = next(iter(found.reads.items()))
    layer = subject.modules[name]
    shifts = any(n.op.startswith(("max_pool", "avg_pool", "constant_pad", "relu")) for n in found.layouts)
    plain = is_plain(layer) and not isinstance(layer, ConvTransposeNd) and not pads_with_zeros(layer)
    if shifts or not plain or subject.shared(name) or calls_of([recording])[name] > 1:
        return None
    return name, layout


@torch.no_grad()
def fold_forward(surgery: Surgery, norm: str, name: str, layout: Layout) -> None:
    """Fold a norm into the layer that reads its value: layer(scale * x + shift)."""
    layer = surgery.model.get_submodule(name)
    assert isinstance(layer, nn.Linear | ConvNd)
    scale, shift = (x.cpu()[_unit(layout, len(x))] for x in affine_of(surgery.model.get_submodule(norm)))
    weight = layer.weight.double()
    sums = weight.flatten(2).sum(2) if weight.dim() > 2 else weight
    groups = getattr(layer, "groups", 1)
    added = (shift.to(weight).view(groups, 1, -1) * sums.view(groups, -1, sums.shape[1])).sum(2).flatten()
    bias = added if layer.bias is None else layer.bias.double() + added
    scaled = columns(layer, Layout(1, torch.arange(len(scale)), scale), weight)
    surgery.resize(f"{name}.weight", shape=list(scaled.shape), value=scaled)
    surgery.bias(name, value=bias)
    surgery.identity(norm)


def _unit(layout: Layout, channels: int) -> Tensor:
    """For every input of a layer, the channel of the norm that it comes from: flatten repeats each for its places."""
    return layout.origin // (len(layout.origin) // channels)


def padding_of(layer: nn.Module) -> list[int]:
    """A convolution's own padding, as ``F.pad`` takes it: the last dimension first, before and after.

    >>> padding_of(nn.Conv2d(1, 1, (3, 4), padding="same")), padding_of(nn.Conv2d(1, 1, 3, padding=(1, 2)))
    ([1, 2, 1, 1], [2, 2, 1, 1])
    """
    assert isinstance(layer, ConvNd)
    found: list[int] = []
    for k, size in reversed(list(enumerate(layer.kernel_size))):
        if isinstance(layer.padding, str):
            total = 0 if layer.padding == "valid" else layer.dilation[k] * (size - 1)
            found += [total // 2, total - total // 2]
        else:
            found += [layer.padding[k]] * 2
    return found
