"""What conversions do to one module each: a recipe is a list of steps, and a twin is changed by the same list."""

from __future__ import annotations

import copy
import math
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

from relucid._torch import BatchNormNd, ConvTransposeNd, registries, unparametrized_class
from relucid.convert._edits import Edits
from relucid.convert.errors import ConversionError
from relucid.convert.layout import Layout
from relucid.convert.modules import BothSigns, Function, Momentum, mixed, plain_class
from relucid.nn import (
    CReLU,
    GeometricConv1d,
    GeometricConv2d,
    GeometricConv3d,
    GeometricLayer,
    GeometricLinear,
    MeanNorm,
    rules,
)
from relucid.nn.affine import affine_after, affine_before, affine_of
from relucid.nn.kinds import is_homogeneous
from relucid.nn.propagation import Propagation
from relucid.nn.sphere import direction

GEOMETRIC: dict[type[nn.Module], Any] = {
    nn.Linear: GeometricLinear,
    nn.Conv1d: GeometricConv1d,
    nn.Conv2d: GeometricConv2d,
    nn.Conv3d: GeometricConv3d,
}
# Plain attributes that follow from the number of channels.
SIZES = {"in_features", "in_channels", "out_features", "out_channels", "groups", "num_features"}
NORMS: dict[int, Any] = {2: nn.BatchNorm1d, 3: nn.BatchNorm1d, 4: nn.BatchNorm2d, 5: nn.BatchNorm3d}
_BLOCK = 1 << 18  # numbers of a weight that are compared at a time


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

        It needs no example: random numbers reach units that are dead on every input. 0 if runs must tell.
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
        edits.become(module, mixed(BothSigns, kind))
        for key, value in ("dim", self.dim), ("groups", self.groups), ("paired", self.paired):
            edits.set(module, f"signs_{key}", value)

    @property
    def modules(self) -> tuple[str, ...]:
        """The names of the modules whose own numbers change."""
        return (self.name,) if self.replace else ()

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
        """Compare W' v with W (C v) for a random v, where C makes the old channels of the new ones."""
        pairs = zip(registries(before), registries(after), strict=True)
        named = all(mine.keys() == others.keys() for mine, others in pairs)
        if not named or not _same_attributes(before, after):
            return math.inf
        if isinstance(before, BatchNormNd | MeanNorm):
            return self._check_norm(before, after)
        if self.carries:
            origin, _ = _filters(before, self.layout)
            leaves = ((getattr(net, leaf) for net in (before, after)) for leaf in ("weight", "bias"))
            return 0.0 if all(_equal(a if a is None else a[origin], b) for a, b in leaves) else math.inf
        if not _equal(before.bias, after.bias):
            return math.inf
        if isinstance(before, ConvTransposeNd):
            return (
                float(not torch.equal(widened(before, self.layout, before.weight), after.weight)) and math.inf
            )
        return self._check_product(before.weight, after.weight, getattr(before, "groups", 1))

    def _check_product(self, weight: Tensor, new: Tensor, groups: int) -> float:
        generator = torch.Generator().manual_seed(0)
        v = torch.randn(len(self.layout.origin), generator=generator, dtype=torch.float64)
        old = torch.zeros(weight.shape[1] * groups, dtype=torch.float64)
        old.index_add_(0, self.layout.origin, v * self.layout.scale)
        # The last factor of the probe is one random number per place of a kernel.
        places = torch.randn(weight.shape[2:].numel(), generator=generator, dtype=torch.float64)
        gap = _product(weight, old, places, groups) - _product(new, v, places, groups)
        size = _product(weight, old.abs(), places.abs(), groups, absolute=True)
        copied = bool(((self.layout.scale == 0) | (self.layout.scale.abs() == 1)).all())
        rounding = 1e-12 if copied else 4 * torch.finfo(weight.dtype).eps
        return _largest(gap.abs() / size.clamp(min=1e-300)) / rounding

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
                worst, _largest((x - y)[kept].abs() / (x[kept].abs() + x.abs().max()).clamp(min=1e-300))
            )
        return worst / (8 * torch.finfo(after.running_mean.dtype).eps)  # type: ignore[arg-type]


@dataclass(frozen=True, eq=False)
class Geometric(Step):
    """A layer described by directions, offsets and scales, with its ReLU inside or not."""

    relu: str | None = None

    def apply(self, edits: Edits) -> None:
        """Change the module, and the ReLU after it."""
        layer: Any = edits.model.get_submodule(self.name)
        new = GEOMETRIC[plain_class(layer)].from_standard(layer, nn.ReLU() if self.relu else None)
        if isinstance(layer, BothSigns):
            vars(new).update({key: v for key, v in vars(layer).items() if key.startswith("signs_")})
            kind: Any = type(new)
            new.__class__ = mixed(BothSigns, kind)
        edits.turn(self.name, new)
        if self.relu is not None:
            edits.turn(self.relu, nn.Identity())

    @property
    def modules(self) -> tuple[str, ...]:
        """The names of all modules that change."""
        return (self.name,) if self.relu is None else (self.name, self.relu)

    @torch.no_grad()
    def check(self, before: Any, after: Any) -> float:
        """Compare the rows r u with w, relative to their lengths, and the biases."""
        if not isinstance(after, GeometricLayer) or (self.relu is None) != (after.activation is None):
            return math.inf
        if any(getattr(before, key) != getattr(after, key) for key in after.arguments):
            return math.inf
        pairs: list[tuple[Any, Any]] = [
            (before.weight, after.latitudes),
            (before.weight, after.scale),
            (before.bias, after.offset),
        ]
        if any(
            (a is None) != (b is None) or (a is not None and a.requires_grad != b.requires_grad)
            for a, b in pairs
        ):
            return math.inf
        rows, worst = before.weight.flatten(1), 0.0
        lengths = torch.empty(len(rows), dtype=torch.float64, device=rows.device)
        size = max(1, _BLOCK // rows.shape[1])
        for old, new, length in zip(
            rows.split(size), _weights_of(after, size), lengths.split(size), strict=True
        ):
            length.copy_(torch.linalg.vector_norm(old, dim=1, dtype=torch.float64))
            gap = torch.linalg.vector_norm(old - new, dim=1, dtype=torch.float64)
            worst = max(worst, _largest(gap / length.clamp(min=1e-300)))
        eps = torch.finfo(after.latitudes.dtype).eps
        worst /= 2 + 0.7 * math.sqrt(rows.shape[1])
        if before.bias is not None:
            gap = (before.bias.double() - after.scale.double() * after.offset.double()).abs()  # type: ignore[union-attr]
            worst = max(worst, _largest(gap / before.bias.double().abs().maximum(lengths)) / 4)
        return worst / eps


@dataclass(frozen=True, eq=False)
class HeavyBall(Step):
    """Momentum: in a sequence of residual blocks beta_k (x_k - x_{k-1}), beta_k = 0; or by rule, in a `Propagation`."""

    steps: tuple[int, ...] = ()  #: the positions in a sequence of the blocks that get a beta

    def apply(self, edits: Edits) -> None:
        """Change the module."""
        module: Any = edits.model.get_submodule(self.name)
        own = list(module.parameters())
        like = next(iter(own), torch.empty(0))
        if isinstance(module, Propagation):
            depth = module.depth
            rule = rules.HeavyBall(beta1=[1.0] * depth, beta2=[0.0] * depth, learnable=True)
            new = Propagation(
                *(module.transforms, rule),
                first=module.get_submodule("0") if module.has_first else None,
                after=module.after,
                start=module.start,
                state_dtype=module.state_dtype,
                device=like.device,
                dtype=like.dtype,
            )
            edits.turn(self.name, new)
            edits.follow(own, list(new.parameters(recurse=False)), drop=False)
            return
        kind: Any = type(module)
        edits.become(module, mixed(Momentum, kind))
        edits.set(module, "steps", self.steps)
        betas = nn.Parameter(torch.zeros(len(self.steps), dtype=like.dtype, device=like.device))
        edits.add(module, "betas", betas, beside=own)

    @torch.no_grad()
    def check(self, before: nn.Module, after: Any) -> float:
        """Compare the parameters, and what the new ones begin with."""
        mine, others = dict(before.named_parameters()), dict(after.named_parameters())
        new = [float(p.abs().max()) for name, p in others.items() if name not in mine and "beta2" not in name]
        starts = 1.0 if isinstance(after, Propagation) else 0.0
        same = all(name in others and torch.equal(p, others[name]) for name, p in mine.items())
        return 0.0 if same and all(value == starts for value in new) else math.inf


@dataclass(frozen=True, eq=False)
class Plain(Step):
    """A standard layer in place of a geometric one, with its activation after it; plain weights for parametrized ones.

    Negative scales are left out: the layers that read it must take them, or a batch norm.
    """

    scale: tuple[float, ...] = ()  #: what a batch norm multiplies the channels by
    dims: int = 0  #: of the value that it multiplies

    def apply(self, edits: Edits) -> None:
        """Change the module."""
        module: Any = edits.model.get_submodule(self.name)
        if parametrize.is_parametrized(module):
            edits.turn(self.name, _unparametrized(copy.deepcopy(module)))
            return
        layer: Any = copy.deepcopy(module)
        activation, layer.activation = layer.activation, None
        if activation is not None and layer.scale is not None:
            kept = nn.Parameter(layer.scale.detach().abs())
            layer.scale = kept if is_homogeneous(activation) else None
        new: nn.Module = layer.to_standard()
        if activation is not None:
            after: Any = activation if isinstance(activation, nn.Module) else Function(activation)
            new = nn.Sequential(OrderedDict(layer=new, activation=after))
        if self.scale:
            like = next(new.parameters())
            norm = NORMS[self.dims](len(self.scale), eps=0.0).to(like)
            norm.weight.data.copy_(torch.tensor(self.scale, dtype=torch.float64))
            new.add_module("scale", norm)
        if isinstance(module, BothSigns):
            vars(new).update({key: v for key, v in vars(module).items() if key.startswith("signs_")})
            kind: Any = type(new)
            new.__class__ = mixed(BothSigns, kind)
        edits.turn(self.name, new)


@dataclass(frozen=True, eq=False)
class Fold(Step):
    """A norm becomes part of the layer before it, or after it, or a batch norm of unit variance."""

    layer: str = ""  #: "" for a batch norm
    layout: Layout | None = (
        None  #: how the norm's channels reach the layer after it; None for the layer before it
    )
    dims: int = 0  #: of the value of a mean norm that becomes a batch norm

    @property
    def modules(self) -> tuple[str, ...]:
        """The names of the modules whose own numbers change."""
        return (self.name, self.layer) if self.layer else (self.name,)

    def apply(self, edits: Edits) -> None:
        """Change the modules."""
        norm: Any = edits.model.get_submodule(self.name)
        new: nn.Module = nn.Identity()
        if not self.layer:
            fixed: Any = NORMS[self.dims](norm.num_features, eps=0.0, affine=False).to(norm.running_mean)
            fixed.running_mean.copy_(-affine_of(norm)[1])
            new = fixed
        else:
            layer: Any = edits.model.get_submodule(self.layer)
            if self.layout is None:
                weight, bias = affine_after(layer, *affine_of(norm))
            else:
                # For every input of the layer, the channel of the norm: flatten repeats each for its places.
                origin = self.layout.origin
                maps = (x.cpu()[origin // (len(origin) // len(x))] for x in affine_of(norm))
                weight, bias = affine_before(layer, *(x.to(layer.weight.device) for x in maps))
            edits.parameter(f"{self.layer}.weight", weight)
            if layer.bias is not None:
                edits.parameter(f"{self.layer}.bias", bias)
            else:
                bias = nn.Parameter(bias.to(layer.weight), layer.weight.requires_grad)
                edits.add(layer, "bias", bias, beside=[layer.weight])
            if self.layout is None and isinstance(norm, BothSigns):
                signs = {key: v for key, v in vars(norm).items() if key.startswith("signs_")}
                kind: Any = type(layer)
                edits.become(layer, mixed(BothSigns, kind))
                for key, value in signs.items():
                    edits.set(layer, key, value)
        edits.turn(self.name, new)


@dataclass(frozen=True, eq=False)
class Share(Step):
    """A layer in which some pairs of opposite filters are one; a CReLU after it gives both."""

    pairs: tuple[tuple[int, int], ...]

    def apply(self, edits: Edits) -> None:
        """Change the module."""
        layer: Any = edits.model.get_submodule(self.name)
        weight, bias, *_ = shared(layer.weight.detach().double(), bias_of(layer), self.pairs)
        edits.parameter(f"{self.name}.weight", weight)
        if layer.bias is not None:
            edits.parameter(f"{self.name}.bias", bias)
        edits.set(layer, "out_features" if isinstance(layer, nn.Linear) else "out_channels", len(weight))


def bias_of(layer: Any) -> Tensor:
    """The bias of a layer in float64; zeros if it has none."""
    weight: Tensor = layer.weight.detach()
    zeros = weight.new_zeros(len(weight), dtype=torch.float64)
    return zeros if layer.bias is None else layer.bias.detach().double()


def shared(
    weight: Tensor, bias: Tensor, pairs: Sequence[Sequence[int]]
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Replace each pair of units by one that is nearest to both.

    For units that computed y and z and are now (c, -r c), the nearest c is (y - r z) / (1 + r^2).

    Args:
        weight: (units, ...).
        bias: (units,).
        pairs: The two units of each pair.

    Returns:
        (filters, ...), the weight, the shared ones first; (filters,), the bias; which unit each channel after CReLU
        is, and the factor for it, (filters + pairs,); and (filters, units), the combination of old values that each
        filter comes nearest to.
    """
    rows = torch.cat((weight.flatten(1), bias.unsqueeze(1)), 1)
    first, second, ratios = [], [], []
    for pair in pairs:
        # The larger one first: it is divided by.
        i, j = sorted(pair, key=lambda k: -float(rows[k].norm()))
        rows[i], ratio = rank_one(rows[i], rows[j])
        first.append(i)
        second.append(j)
        ratios.append(ratio)
    rest = [k for k in range(len(rows)) if k not in {*first, *second}]
    kept, r = rows[first + rest], torch.tensor(ratios, dtype=torch.float64)
    mix = torch.eye(len(rows), dtype=torch.float64)[first + rest]
    mix[range(len(first)), first] = 1 / (1 + r.square())
    mix[range(len(first)), second] = -r / (1 + r.square())
    scale = torch.cat((torch.ones(len(kept), dtype=torch.float64), r))
    filters = kept[:, :-1].unflatten(1, weight.shape[1:])
    return filters, kept[:, -1], torch.tensor(first + rest + second), scale, mix


def rank_one(a: Tensor, b: Tensor) -> tuple[Tensor, float]:
    """The c and the ratio r for which (c, -r c) is nearest to (a, b).

    >>> c, r = rank_one(torch.tensor([2.0, 4.0]), torch.tensor([-1.0, -2.0]))
    >>> [round(x, 4) for x in (*c.tolist(), r)]
    [2.0, 4.0, 0.5]
    """
    gram = torch.stack((a, b)) @ torch.stack((a, b)).T
    p, q = torch.linalg.eigh(gram)[1][:, 1].tolist()  # the eigenvector of the larger eigenvalue
    return p * (p * a + q * b), -q / p


def _unparametrized(module: Any) -> nn.Module:
    """The module with plain weights in place of parametrized ones."""
    training, module = module.training, module.eval()  # spectral norm iterates in training
    lists = dict(module.parametrizations.named_children())
    weights = {key: getattr(module, key).detach() for key in lists}
    trained = {key: any(p.requires_grad for p in m.parameters()) for key, m in lists.items()}
    # Torch's own removal changes the class, which the original shares.
    del module.parametrizations
    module.__class__ = unparametrized_class(module)
    for key, weight in weights.items():
        module.register_parameter(key, nn.Parameter(weight, trained[key]))
    plain: nn.Module = module.train(training)
    return plain


def _weights_of(layer: Any, size: int) -> Iterable[Tensor]:
    """The rows of a geometric layer's weight, in float32 or better, some at a time."""
    wide = torch.promote_types(layer.latitudes.dtype, torch.float32)
    for start in range(0, len(layer.latitudes), size):
        part = slice(start, start + size)
        scale = None if layer.scale is None else layer.scale[part].to(wide)
        rows = direction(layer.latitudes[part].to(wide), scale)
        yield rows if layer.sign is None else rows * layer.sign[part]


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
    for into, part, own, factor in parts:
        for start, stop, first in runs(own, factor):
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


def _product(weight: Tensor, x: Tensor, places: Tensor, groups: int, absolute: bool = False) -> Tensor:
    """W or |W| times x in float64, through one block of memory: blocks from malloc would pile up."""
    found = torch.empty(len(weight), dtype=torch.float64)
    size = max(1, _BLOCK // max(1, weight.shape[1:].numel()))
    scratch = torch.empty(size, weight.shape[1:].numel(), dtype=torch.float64)
    parts = zip(weight.unflatten(0, (groups, -1)), x.view(groups, -1), found.view(groups, -1), strict=True)
    for block, own, into in parts:
        probe = (own.view(-1, 1) * places).flatten()
        for rows, y in zip(block.flatten(1).split(size), into.split(size), strict=True):
            some = scratch[: len(rows)].copy_(rows)
            torch.mv(some.abs_() if absolute else some, probe, out=y)
    return found


def _same_attributes(before: nn.Module, after: nn.Module) -> bool:
    """Whether the plain attributes of two modules are equal, up to sizes."""
    for key, value in vars(before).items():
        plain = value is None or isinstance(value, int | float | str | tuple)
        if plain and not key.startswith("_") and key not in SIZES and vars(after).get(key) != value:
            return False
    return True


def _equal(a: Tensor | None, b: Tensor | None) -> bool:
    return a is b or (a is not None and b is not None and torch.equal(a, b))


def _largest(x: Tensor) -> float:
    """The largest of some numbers, infinite if one is NaN; 0 if there are none."""
    return float(x.nan_to_num(math.inf, math.inf).max()) if x.numel() else 0.0
