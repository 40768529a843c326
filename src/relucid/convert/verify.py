"""Whether a converted network does what the original does: layer by layer, so that rounding has no depth to grow in.

Both networks run on the same input. Where a layer with tensors of its own returns a value of the same shape in both,
the values are compared on the scale of that layer's own rounding, and the converted network goes on with the
original's; gradients on their way back are treated alike. A difference is therefore that of one layer, however deep the
network, and it has a name. No gradient of a weight is computed: it is a function of values that have been compared.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from relucid.convert.copies import ResettableCopy
from relucid.convert.errors import ConversionError
from relucid.convert.examples import Example
from relucid.convert.modules import BothSigns
from relucid.convert.tape import Key, Tape, points, run, shown
from relucid.inspect.execution import Method
from relucid.nn import GeometricLayer
from relucid.printing import first_line

# How far a layer's value may be from the original's, on the scale of its own rounding; gradients 30 times as far, but
# no farther than a fifth.
LOCAL = {torch.float64: 1e-11, torch.float32: 3e-5, torch.float16: 1e-2, torch.bfloat16: 1e-1}
GRADIENTS, FARTHEST = 30, 0.2


@dataclass
class Comparison:
    """How far layers of a network are from those of another: their values, gradients, and those that fail."""

    values: dict[str, float] = field(default_factory=dict)
    gradients: dict[str, float] = field(default_factory=dict)
    failures: dict[str, str] = field(default_factory=dict)

    def note(self, where: dict[str, float], name: str, distance: float) -> None:
        """Note a distance, unless a larger one is known."""
        if not distance <= where.get(name, 0.0):
            where[name] = distance

    def judge(self, limit: float, mode: str) -> None:
        """Raise an error that names the layers which are too far from the original's, or fail."""
        far = {
            n: f"returns something else: {d:.1e} of its scale"
            for n, d in self.values.items()
            if not d <= limit
        }
        loose = min(GRADIENTS * limit, max(FARTHEST, limit))
        back = {
            n: f"gets another gradient: {d:.1e} of its scale"
            for n, d in self.gradients.items()
            if not d <= loose
        }
        failures = {n: f"fails: {error}" for n, error in self.failures.items()}
        if wrong := back | far | failures:
            sentences = {name: f"{name} {what} {mode}" for name, what in (failures | far or wrong).items()}
            raise ConversionError(next(iter(sentences.values())), sentences)

    @property
    def largest(self) -> tuple[float, float]:
        """The largest differences of a value and of a gradient."""
        return max(self.values.values(), default=0.0), max(self.gradients.values(), default=0.0)


def compared(
    net: ResettableCopy,
    example: Example,
    call: Method | None,
    before: Tape,
    same: Mapping[str, str],
    *,
    training: bool,
    backward: bool,
) -> tuple[Tape, Comparison]:
    """Run a converted network beside a tape of the original.

    A layer that fails goes on with what the original's returned, so that one run names all that do.

    Args:
        net: The converted network.
        example: Its input.
        call: How it is used.
        before: What the original computes.
        same: By module of the converted network, the original's that returns the same; by default its namesake.
        training: In which mode.
        backward: Whether to compare gradients.
    """
    comparison, tape, model = Comparison(), Tape(), net.fresh()

    def judge(key: Key, module: nn.Module, args: Any, value: Tensor) -> Tensor | None:
        other = same.get(key[0], key[0]), key[1]
        old = before.values.get(other)
        if old is None or old.shape != value.shape or old.dtype != value.dtype:
            return None
        comparison.note(comparison.values, key[0], distance(old, value.detach(), _floor(module, args)))
        if not backward or not torch.is_grad_enabled():
            return old.clone()
        forced = value + (old - value.detach()) if bool(old.isfinite().all()) else value
        if not forced.requires_grad:
            forced = forced.detach().requires_grad_() * 1
        gradient = before.gradients.get(other)

        def back(g: Tensor) -> Tensor | None:
            if gradient is None or gradient.shape != g.shape:
                return None
            whole = gradient.square().mean().sqrt().expand(gradient.shape[_dim(gradient)])
            comparison.note(comparison.gradients, key[0], distance(gradient, g, whole))
            return gradient

        forced.register_hook(back)
        return forced

    def known(key: Key) -> Tensor | None:
        return before.values.get((same.get(key[0], key[0]), key[1]))

    with _guarded(model, known, comparison, tape), shown(dict(points(model)), judge):
        run(model, example, call, training, tape, backward=backward, count=not backward)
    return tape, comparison


@contextmanager
def _guarded(
    model: nn.Module, known: Callable[[Key], Tensor | None], comparison: Comparison, tape: Tape
) -> Iterator[None]:
    """Let a layer that fails return what the original's did, and note its name."""
    count: Counter[str] = Counter()
    modules: dict[str, Any] = dict(list(model.named_modules())[1:])
    layers = {name for name, module in points(model) if not list(module.children())}

    def forward(name: str, original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        count[name] += 1
        try:
            return original(*args, **kwargs)
        except Exception as error:
            if (
                isinstance(error, ConversionError) or tape.outputs
            ):  # a checkpoint stops its second run by an error
                raise
            value, sentence = known((name, count[name])), f"{name} fails: {first_line(error)}"
            if value is None or name not in layers:
                others = {n: f"{n} fails: {what}" for n, what in comparison.failures.items()}
                raise ConversionError(sentence, {**others, name: sentence}) from error
            comparison.failures.setdefault(name, first_line(error))
            if isinstance(modules[name], BothSigns):
                return modules[name].both_signs(value)
            return value.clone()

    own = {m: vars(m)["forward"] for m in modules.values() if "forward" in vars(m)}
    try:
        for name, module in modules.items():
            if not isinstance(module, torch.jit.ScriptModule):
                vars(module)["forward"] = partial(forward, name, module.forward)
        yield
    finally:
        for module in modules.values():
            vars(module).pop("forward", None)
            vars(module).update({"forward": own[module]} if module in own else {})


def tolerance(dtypes: Iterable[torch.dtype]) -> float:
    """How far a layer's value may be from the original's, given the coarsest precision."""
    return max((LOCAL[dtype] for dtype in dtypes if dtype in LOCAL), default=LOCAL[torch.float32])


def distance(old: Tensor, new: Tensor, floor: Tensor | None = None) -> float:
    """The largest difference, channel by channel, on the scale of that channel; infinite where only one is finite.

    Args:
        old: (N, C, ...) or (..., C).
        new: Of the same shape.
        floor: (C,), the least scale of each channel; by default the median of all.
    """
    finite = old.isfinite()
    if not bool(finite.all()):
        if not torch.equal(finite, new.isfinite()) or not torch.equal(
            *(x[~finite].nan_to_num(7.0) for x in (old, new))
        ):
            return math.inf
        old, new = old.masked_fill(~finite, 0), new.masked_fill(~finite, 0)
    elif not bool(new.isfinite().all()):
        return math.inf
    if not old.numel():
        return 0.0
    dim, wide = _dim(old), torch.promote_types(old.dtype, torch.float32)
    rest = [d for d in range(old.dim()) if d != dim]
    size, error = (
        x.to(wide).square().mean(rest).sqrt() if rest else x.to(wide).abs() for x in (old, old - new)
    )
    if floor is not None and floor.shape == size.shape:
        scale = size.maximum(floor.to(size))
    else:
        scale = size.maximum(size.median()) if size.numel() else size
    scale = torch.where(scale == 0, size.max(), scale)
    return float(torch.where(error == 0, 0.0, error / scale).max())


def _dim(x: Tensor) -> int:
    """The dimension that holds the channels of a layer's value, more likely than not."""
    return 1 if x.dim() in (2, 4, 5) else max(x.dim() - 1, 0)


def _floor(module: nn.Module, args: Any) -> Tensor | None:
    """What a unit's products amount to if they do not cancel: the scale of its rounding, (units,)."""
    x = args[0] if args and isinstance(args[0], Tensor) and args[0].is_floating_point() else None
    if x is None or not x.numel():
        return None
    if isinstance(module, GeometricLayer):
        lengths = (
            module.latitudes.new_ones(len(module.latitudes))
            if module.scale is None
            else module.scale.detach().abs()
        )
        fan = module.weight_shape[1:].numel()
    elif isinstance(module, nn.Linear | nn.Conv1d | nn.Conv2d | nn.Conv3d):
        lengths, fan = module.weight.detach().flatten(1).norm(dim=1), module.weight.shape[1:].numel()
    else:
        return None
    return lengths * x.detach().square().mean().sqrt() * math.sqrt(fan) * 0.1


def differing_buffer(before: Tape, after: Tape, limit: float) -> str:
    """A buffer that both networks have and that differs by more than ``limit`` of its layer's largest number; or ""."""
    sizes: dict[str, float] = {}
    for name, value in before.buffers.items():
        if value.is_floating_point() and value.numel():
            layer = name.rpartition(".")[0]
            sizes[layer] = max(sizes.get(layer, 0.0), float(value.nan_to_num(0, 0, 0).abs().max()))
    for name, value in before.buffers.items():
        other = after.buffers.get(name)
        if other is None or other.shape != value.shape:
            continue
        if not value.is_floating_point():
            if not torch.equal(value, other):
                return name
        elif value.numel():
            gap = (value - other).masked_fill((value == other) | (value.isnan() & other.isnan()), 0)
            if not float(gap.abs().max()) <= limit * max(sizes.get(name.rpartition(".")[0], 0.0), 1e-30):
                return name
    return ""
