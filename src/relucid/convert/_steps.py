"""What conversions do to one module each: a recipe is a list of steps, and a twin is changed by the same list."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from relucid._torch import BatchNormNd, ConvTransposeNd, registries
from relucid.convert._edits import Edits
from relucid.convert.errors import ConversionError
from relucid.convert.layout import Layout
from relucid.convert.modules import BothSigns, differing_attribute, equal, mixed
from relucid.nn import CReLU, MeanNorm
from relucid.nn.affine import affine_of

# Plain attributes that follow from the number of channels.
SIZES = {"in_features", "in_channels", "out_features", "out_channels", "groups", "num_features"}
BLOCK = 1 << 18  # numbers of a weight that are compared at a time


@dataclass(frozen=True, eq=False)
class Step:
    """A change of the module ``name``. Values follow from the module's own weights, so it suits any twin."""

    name: str

    def apply(self, edits: Edits) -> None:
        """Change the module."""
        raise NotImplementedError

    @property
    def modules(self) -> tuple[str, ...]:
        """The names of the modules whose own numbers change."""
        return (self.name,)

    def check(self, before: nn.Module, after: nn.Module) -> float:
        """How far the changed module is from what it should be, as a share of what rounding allows; infinite if wrong.

        It needs no example, and so covers units that are dead on every input. 0 if runs must tell.
        """
        return 0.0

    def to_dict(self) -> dict[str, Any]:
        """The step as plain values."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        plain = {key: v.to_dict() if isinstance(v, Layout) else v for key, v in values.items()}
        return {"step": type(self).__name__, **plain}


def step_of(values: Mapping[str, Any]) -> Step:
    """The step that `Step.to_dict` described.

    >>> step_of(Double("relu", -1).to_dict())
    Double(name='relu', dim=-1, groups=1, paired=None, slopes=None, replace=True)
    """
    kinds = {kind.__name__: kind for kind in Step.__subclasses__()}
    given = dict(values)
    kind = kinds.get(given.pop("step", ""))
    known = {field.name for field in fields(kind)} if kind else set()
    if kind is None or given.keys() - known or not isinstance(given.get("name"), str):
        raise ConversionError(f"no step of a conversion: {str(dict(values))[:200]}")
    if isinstance(given.get("layout"), Mapping):
        given["layout"] = Layout.from_dict(given["layout"])
    arguments: Any = {key: _tuples(value) for key, value in given.items()}
    return kind(**arguments)


def _tuples(value: Any) -> Any:
    return tuple(map(_tuples, value)) if isinstance(value, list) else value


def check_steps(steps: Iterable[Step], before: nn.Module, after: nn.Module) -> None:
    """Compare the weights of every changed module with the old ones: units that no example reaches are seen, too."""
    for step in steps:
        try:
            share = step.check(before.get_submodule(step.name), after.get_submodule(step.name))
        except (AttributeError, RuntimeError, IndexError, TypeError) as error:
            raise ConversionError(f"{step.name} is not what it should be: {error}") from error
        if not share <= 1:
            what = f"{step.name} would compute something else"
            raise ConversionError(what, {step.name: what})


@dataclass(frozen=True, eq=False)
class Double(Step):
    """Both phases of every channel: CReLU in place of an activation, or a module that returns both signs."""

    dim: int
    groups: int = 1
    paired: int | None = None  #: only that many channels have a second phase; by default all
    slopes: tuple[float, ...] | None = None  #: of a PReLU: they are in the weights that read it
    replace: bool = True  #: whether the module is the activation

    def apply(self, edits: Edits) -> None:
        """Change the module."""
        module = edits.model.get_submodule(self.name)
        if self.replace:
            edits.turn(self.name, CReLU(self.dim, paired=self.paired, groups=self.groups))
            return
        kind: Any = type(module)
        edits.set(module, "__class__", mixed(BothSigns, kind))
        for key, value in ("dim", self.dim), ("groups", self.groups), ("paired", self.paired):
            edits.set(module, f"signs_{key}", value)

    @property
    def modules(self) -> tuple[str, ...]:
        """The names of the modules whose own numbers change."""
        return (self.name,) if self.replace else ()

    def layout(self, size: int, dim: int) -> Layout:
        """The layout of the activation's value, which has ``size`` channels in a dimension: -slope for new ones."""
        groups = self.groups if size % self.groups == 0 else 1
        origin = torch.arange(size).view(groups, -1)
        below = torch.tensor(self.slopes or (0.0,), dtype=torch.float64).expand(size).view(groups, -1)
        scale = torch.cat((torch.ones_like(below), -below), 1).flatten() + 0.0
        return Layout(dim, torch.cat((origin, origin), 1).flatten(), scale, frozenset([self.name]))

    def check(self, before: nn.Module, after: Any) -> float:
        """Compare the arguments, and the slopes of a PReLU, which a twin may have learned otherwise."""
        if isinstance(before, nn.PReLU) and tuple(before.weight.tolist()) != self.slopes:
            return math.inf
        wanted = self.dim, self.groups, self.paired
        if self.replace:
            same = isinstance(after, CReLU) and wanted == (after.dim, after.groups, after.paired)
        else:
            signs = getattr(after, "signs_dim", None), getattr(after, "signs_groups", None)
            same = isinstance(after, BothSigns) and wanted == (*signs, after.signs_paired)
        return 0.0 if same else math.inf


def signs_of(name: str, module: nn.Module) -> list[Step]:
    """The step that lets a module return both signs, if another does."""
    if not isinstance(module, BothSigns):
        return []
    return [Double(name, module.signs_dim, module.signs_groups, module.signs_paired, replace=False)]


@dataclass(frozen=True, eq=False)
class Read(Step):
    """A layer or norm that reads changed channels: a column, filter or entry for each."""

    layout: Layout
    carries: bool = False  #: whether it is a depthwise convolution that passes every channel on

    def apply(self, edits: Edits) -> None:
        """Change the module."""
        module: Any = edits.model.get_submodule(self.name)
        if isinstance(module, BatchNormNd | MeanNorm):
            self._norm(edits, module)
        elif self.carries:
            self._depthwise(edits, module)
        else:
            stays = self.layout.kept()
            new = widened(module, self.layout, module.weight)
            edits.parameter(f"{self.name}.weight", new, partial(widened, module, stays))
            size = "in_features" if isinstance(module, nn.Linear) else "in_channels"
            edits.set(module, size, len(self.layout.origin))

    def _depthwise(self, edits: Edits, module: Any) -> None:
        origin, kept = _filters(module, self.layout)
        carry = partial(_entries, origin=origin, kept=kept, fill=0.0)
        for leaf in ("weight", "bias"):
            if (value := getattr(module, leaf)) is not None:
                edits.parameter(f"{self.name}.{leaf}", value.detach()[origin.to(value.device)], carry)
        times, size = module.out_channels // module.groups, len(self.layout.origin)
        for key, number in ("groups", size), ("in_channels", size), ("out_channels", size * times):
            edits.set(module, key, number)

    def _norm(self, edits: Edits, module: nn.Module) -> None:
        """New channels with a scale of 0 pass unchanged in evaluation."""
        origin, scale = self.layout.origin, self.layout.scale
        factor = torch.where(scale == 0, 1, scale)
        carry = partial(_entries, origin=origin, kept=scale != 0, fill=0.0)
        for leaf, fill in (("weight", 1.0), ("bias", 0.0), ("running_mean", 0.0), ("running_var", 1.0)):
            value = getattr(module, leaf, None)
            if not isinstance(value, Tensor):
                continue
            new = _entries(value.detach(), origin, scale != 0, fill)
            if leaf == "running_mean" or (leaf == "bias" and isinstance(module, MeanNorm)):
                new = new / factor.to(new)
            elif leaf == "weight":  # not the variance, to which epsilon is added
                new = new * factor.to(new)
            edits.parameter(f"{self.name}.{leaf}", new, carry)
        edits.set(module, "num_features", len(origin))

    @torch.no_grad()
    def check(self, before: Any, after: Any) -> float:
        """Compare every new column with the old one that it comes from."""
        pairs = zip(registries(before), registries(after), strict=True)
        named = all(mine.keys() == others.keys() for mine, others in pairs)
        if not named or differing_attribute(before, after, SIZES):
            return math.inf
        if isinstance(before, BatchNormNd | MeanNorm):
            return self._check_norm(before, after)
        if self.carries:
            origin, _ = _filters(before, self.layout)
            leaves = ((getattr(net, leaf) for net in (before, after)) for leaf in ("weight", "bias"))
            return 0.0 if all(equal(a if a is None else a[origin], b) for a, b in leaves) else math.inf
        if not equal(before.bias, after.bias):
            return math.inf
        if isinstance(before, ConvTransposeNd):
            return 0.0 if torch.equal(widened(before, self.layout, before.weight), after.weight) else math.inf
        same = self._is_widened(before.weight, after.weight, getattr(before, "groups", 1))
        return 0.0 if same else math.inf

    def _is_widened(self, weight: Tensor, new: Tensor, groups: int) -> bool:
        """Whether a new weight is W C, where C makes the old channels of the new ones; a block of rows at a time."""
        if new.shape != (len(weight), len(self.layout.origin) // groups, *weight.shape[2:]):
            return False
        size = max(1, BLOCK // max(1, new.shape[1:].numel()))
        scale = self.layout.scale.to(weight).view(groups, 1, -1, *[1] * (weight.dim() - 2))
        parts = zip(
            weight.unflatten(0, (groups, -1)),
            new.unflatten(0, (groups, -1)),
            self.layout.origin.view(groups, -1) % weight.shape[1],
            scale,
            strict=True,
        )
        return all(
            torch.equal(rows[:, channels] * factor, wide)
            for old, whole, channels, factor in parts
            for rows, wide in zip(old.split(size), whole.split(size), strict=True)
        )

    def _check_norm(self, before: nn.Module, after: nn.Module) -> float:
        """What a channel keeps: its own affine map."""
        kept, origin = self.layout.scale != 0, self.layout.origin
        worst = 0.0
        for leaf in ("weight", "bias", "running_mean", "running_var"):
            old, new = getattr(before, leaf, None), getattr(after, leaf, None)
            if (old is None) != (new is None):
                return math.inf
        if getattr(before, "running_mean", None) is None:
            return 0.0
        (a, b), (a_, b_) = affine_of(before), affine_of(after)
        for x, y in ((a[origin], a_ / self.layout.scale), (b[origin], b_)):
            worst = max(
                worst, largest((x - y)[kept].abs() / (x[kept].abs() + x.abs().max()).clamp(min=1e-300))
            )
        return worst / (8 * torch.finfo(after.running_mean.dtype).eps)  # type: ignore[arg-type]


@torch.no_grad()
def widened(module: Any, layout: Layout, weight: Tensor) -> Tensor:
    """The weight with an entry per new channel, the old one's times the scale; nothing else of its size is made.

    Args:
        module: The layer.
        layout: How its input has changed.
        weight: The layer's own weight, or another tensor of its shape.
    """
    weight = weight.detach()
    origin, scale = layout.origin.to(weight.device), layout.scale.to(weight.device, weight.dtype)
    if isinstance(module, ConvTransposeNd):
        return weight[origin].mul_(scale.view(-1, *[1] * (weight.dim() - 1)))
    groups = getattr(module, "groups", 1)
    new = weight.new_zeros(len(weight), len(origin) // groups, *weight.shape[2:])
    parts = zip(
        new.unflatten(0, (groups, -1)),
        weight.unflatten(0, (groups, -1)),
        origin.view(groups, -1) % weight.shape[1],
        scale.view(groups, -1),
        strict=True,
    )
    for into, part, channels, factor in parts:
        for start, stop, first in runs(channels, factor):
            into[:, start:stop].copy_(part[:, first : first + stop - start])
        if not bool(((factor == 0) | (factor == 1)).all()):
            into.mul_(factor.view(1, -1, *[1] * (weight.dim() - 2)))
    return new


def runs(origin: Tensor, factor: Tensor) -> list[tuple[int, int, int]]:
    """(start, stop, first): the new channels from start to stop are the old ones from first on; without a factor, none.

    >>> runs(torch.tensor([0, 1, 2, 0, 1, 2]), torch.tensor([1.0, 1, 1, 0, 0, 1]))
    [(0, 3, 0), (5, 6, 2)]
    """
    at = factor.nonzero().flatten()
    if not len(at):
        return []
    breaks = ((at.diff() != 1) | (origin[at].diff() != 1)).nonzero().flatten() + 1
    starts = torch.cat((breaks.new_zeros(1), breaks)).tolist()
    stops = torch.cat((breaks, breaks.new_tensor([len(at)]))).tolist()
    return [(int(at[a]), int(at[b - 1]) + 1, int(origin[at[a]])) for a, b in zip(starts, stops, strict=True)]


def _entries(value: Tensor, origin: Tensor, kept: Tensor, fill: float) -> Tensor:
    """``value[origin]`` where ``kept``, and ``fill`` elsewhere."""
    shape = (-1, *[1] * (value.dim() - 1))
    return torch.where(kept.to(value.device).view(shape), value[origin.to(value.device)], fill)


def _filters(module: Any, layout: Layout) -> tuple[Tensor, Tensor]:
    """For every new filter of a depthwise convolution: which one it was, and whether it was one of a kept channel."""
    times = module.out_channels // module.groups
    origin = (layout.origin.view(-1, 1) * times + torch.arange(times)).flatten()
    return origin, (layout.scale != 0).repeat_interleave(times)


def largest(x: Tensor) -> float:
    """The largest of some numbers, infinite if one is NaN; 0 if there are none."""
    return float(x.nan_to_num(math.inf, math.inf).max()) if x.numel() else 0.0
