"""Layers that read changed channels: a column, filter or entry for each new channel."""

from __future__ import annotations

import functools

import torch
from torch import Tensor, nn

from relucid._torch import BatchNormNd, ConvNd, ConvTransposeNd
from relucid.convert.layout import Layout
from relucid.convert.surgery import Surgery
from relucid.nn import MeanNorm


def read(surgery: Surgery, name: str, layout: Layout, *, carries: bool = False) -> None:
    """Let a layer or norm read changed channels: one column, filter or entry for each.

    Args:
        surgery: The network.
        name: A linear or convolution layer, a batch norm or a mean norm.
        layout: How its input has changed.
        carries: Whether it is a depthwise convolution that passes every channel on.
    """
    module = surgery.model.get_submodule(name)
    if isinstance(module, BatchNormNd | MeanNorm):
        _read_by_norm(surgery, name, module, layout)
    elif carries:
        assert isinstance(module, ConvNd)
        _carry_on(surgery, name, module, layout)
    else:
        assert isinstance(module, nn.Linear | ConvNd)
        new = columns(module, layout)
        survives = Layout(layout.dim, layout.origin, (layout.scale == 1).double())
        carry = functools.partial(columns, module, survives)
        surgery.resize(f"{name}.weight", shape=list(new.shape), value=new, carry=carry)
        size = "in_features" if isinstance(module, nn.Linear) else "in_channels"
        surgery.attribute(name, key=size, value=len(layout.origin))


@torch.no_grad()
def columns(module: nn.Linear | ConvNd, layout: Layout, weight: Tensor | None = None) -> Tensor:
    """The weight with an entry per new channel: the old channel's entry times the scale.

    Args:
        module: The layer.
        layout: How its input has changed.
        weight: What to take in place of the layer's own weight, of the same shape.
    """
    weight = module.weight if weight is None else weight
    origin, scale = layout.origin.to(weight.device), layout.scale.to(weight.device, weight.dtype)
    if isinstance(module, ConvTransposeNd):
        return weight[origin] * scale.view(-1, *[1] * (weight.dim() - 1))
    groups = module.groups if isinstance(module, ConvNd) else 1
    shape = (1, -1, *[1] * (weight.dim() - 2))
    if groups == 1:
        return weight[:, origin] * scale.view(shape)
    local = origin.view(groups, -1) % weight.shape[1]
    parts = zip(weight.unflatten(0, (groups, -1)), local, scale.view(groups, -1), strict=True)
    return torch.cat([part[:, index] * s.view(shape) for part, index, s in parts])


@torch.no_grad()
def _carry_on(surgery: Surgery, name: str, module: ConvNd, layout: Layout) -> None:
    """Give a depthwise convolution a filter per new channel: that of the old one."""
    times = module.out_channels // module.groups
    origin = (layout.origin.view(-1, 1) * times + torch.arange(times)).flatten().to(module.weight.device)
    old = layout.scale.repeat_interleave(times).to(module.weight.device) != 0
    for leaf in ("weight", "bias"):
        value = getattr(module, leaf)
        if value is not None:
            carry = functools.partial(_entries, origin=origin, kept=old, fill=0.0)
            new = value.detach()[origin]
            surgery.resize(f"{name}.{leaf}", shape=list(new.shape), value=new, carry=carry)
    size = len(layout.origin)
    for key, value in ("groups", size), ("in_channels", size), ("out_channels", size * times):
        surgery.attribute(name, key=key, value=value)


@torch.no_grad()
def _read_by_norm(surgery: Surgery, name: str, module: nn.Module, layout: Layout) -> None:
    """Give a norm an entry per new channel; new channels with a scale of 0 pass unchanged in evaluation."""
    neutral = {"weight": 1.0, "bias": 0.0, "running_mean": 0.0, "running_var": 1.0}
    for leaf, fill in neutral.items():
        value = getattr(module, leaf, None)
        if not isinstance(value, Tensor):
            continue
        origin, scale = layout.origin.to(value.device), layout.scale.to(value)
        new = _entries(value.detach(), origin, scale != 0, fill)
        factor = torch.where(scale == 0, 1, scale)
        if leaf == "running_mean" or (leaf == "bias" and isinstance(module, MeanNorm)):
            new = new / factor
        elif leaf == "weight":  # not the variance, to which epsilon is added
            new = new * factor
        carry = functools.partial(_entries, origin=origin, kept=scale != 0, fill=0.0)
        surgery.resize(f"{name}.{leaf}", shape=list(new.shape), value=new, carry=carry)
    surgery.attribute(name, key="num_features", value=len(layout.origin))


def _entries(value: Tensor, origin: Tensor, kept: Tensor, fill: float) -> Tensor:
    """``value[origin]`` where ``kept``, and ``fill`` elsewhere."""
    shape = (-1, *[1] * (value.dim() - 1))
    return torch.where(kept.view(shape), value[origin], fill)
