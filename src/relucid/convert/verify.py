"""Whether a converted network does what the original does: layer by layer, so that rounding has no depth to grow in.

Both networks run on the same input. Where a layer with tensors of its own returns a value of the same shape in both,
the values are compared on the scale of that layer's own rounding, and the converted network goes on with the
original's; gradients on their way back are treated alike. A difference is therefore that of one layer, however deep the
network, and it has a name. No gradient of a weight is computed: it is a function of values that have been compared.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from relucid.convert.difference import LOOSER, by_column, difference, tolerance_of
from relucid.convert.errors import ConversionError
from relucid.convert.examples import Example, sizes_of
from relucid.convert.modules import BothSigns
from relucid.convert.tape import Key, Tape, points, run, shown
from relucid.inspect.execution import Method
from relucid.nn import GeometricLayer
from relucid.printing import first_line

# How far a layer's value may be from the original's, on the scale of its own rounding; gradients 30 times as far, but
# no farther than a fifth.
LOCAL = {torch.float64: 1e-11, torch.float32: 3e-5, torch.float16: 1e-2, torch.bfloat16: 1e-1}
GRADIENTS, FARTHEST = 30, 0.2


def check(
    model: nn.Module,
    example: Example,
    before: Tape,
    call: Method | None = None,
    same: Mapping[str, str] | None = None,
    *,
    training: bool = False,
    backward: bool = False,
    layers: bool = True,
    tolerance: float | None = None,
) -> Tape:
    """Raise an error if a converted copy does something else on an example than the original, of which there is a tape.

    Args:
        model: The copy.
        example: The input.
        before: What the original has computed; in training, values are let go of once they have been compared.
        call: How the network is used.
        same: By module of the copy, the original's that returns the same; by default its namesake.
        training: In which mode.
        backward: Whether gradients are compared.
        layers: Whether layers are compared one by one; otherwise outputs alone.
        tolerance: The largest relative difference of outputs; by default that of their precision.
    """
    case = f"{'in training' if training else 'in evaluation'} on {sizes_of(example)}"
    try:
        after = beside(model, example, before, call, same, training=training, backward=backward)
    except ConversionError:
        raise
    except Exception as raised:  # the original takes the same input
        name = type(model).__name__
        raise ConversionError(
            f"the converted network fails {case}, where {name} does not: {raised}"
        ) from raised
    dtypes = [p.dtype for p in model.parameters() if p.dtype in LOCAL]
    local = max((LOCAL[dtype] for dtype in dtypes), default=LOCAL[torch.float32])
    limit = max(local, tolerance or 0.0) if layers else math.inf
    judge(after, limit, case)
    usual = tolerance_of(before.outputs)
    loose = LOOSER * max(usual, tolerance or 0.0)
    _judge_outputs(
        before,
        after,
        loose if training or before.values else usual if tolerance is None else tolerance,
        case,
    )
    if backward and layers:
        _judge_inputs(before, after, min(max(loose, 1e-8), max(FARTHEST, limit)), case)
    if training and (name := differing_buffer(before, after, max(loose, 1e-8))):
        raise ConversionError(f"the converted network updates {name} differently {case}")
    return after


def beside(
    model: nn.Module,
    example: Example,
    before: Tape,
    call: Method | None = None,
    same: Mapping[str, str] | None = None,
    *,
    training: bool,
    backward: bool,
) -> Tape:
    """Run a converted copy beside a tape of the original.

    A layer goes on with what the original's returned, one that fails as well, so that one run names all.
    """
    tape = Tape()

    def original(key: Key) -> Key:
        return (same or {}).get(key[0], key[0]), key[1]

    def see(key: Key, module: nn.Module, args: Any, value: Tensor) -> Tensor | None:
        old = before.values.pop(original(key), None) if training else before.values.get(original(key))
        if old is None or old.shape != value.shape or old.dtype != value.dtype:
            return None
        _note(tape.apart, key[0], distance(old, value.detach(), _floor(module, args)))
        if not backward or not torch.is_grad_enabled():
            return old.clone()
        forced = value + (old - value.detach()) if bool(old.isfinite().all()) else value
        if not forced.requires_grad:
            forced = forced.detach().requires_grad_() * 1
        forced.register_hook(partial(_returned, tape, key[0], before, original(key)))
        return forced

    layers = dict(points(model)) if before.values else {}
    with _guarded(model, before, tape, original), shown(layers, see):
        run(model, example, call, training, tape, backward=backward)
    return tape


def _returned(tape: Tape, name: str, before: Tape, key: Key, g: Tensor) -> Tensor | None:
    """Compare a gradient with the original's, which goes on in its place."""
    gradient = before.gradients.get(key)
    if gradient is None or gradient.shape != g.shape:
        return None
    whole = gradient.square().mean().sqrt().expand(gradient.shape[_dim(gradient)])
    _note(tape.gradients_apart, name, distance(gradient, g, whole))
    return gradient


@contextmanager
def _guarded(model: nn.Module, before: Tape, tape: Tape, original: Callable[[Key], Key]) -> Iterator[None]:
    """Let a layer that fails return what the original's did, and note its name."""
    count: Counter[str] = Counter()
    modules: dict[str, Any] = dict(list(model.named_modules())[1:])
    layers = {name for name, module in points(model) if not list(module.children())}

    def forward(name: str, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        count[name] += 1
        try:
            return function(*args, **kwargs)
        except Exception as error:
            # A checkpoint stops its second run by an error.
            if isinstance(error, ConversionError) or tape.outputs:
                raise
            value = before.values.get(original((name, count[name])))
            sentence = f"{name} fails: {first_line(error)}"
            if value is None or name not in layers:
                others = {n: f"{n} fails: {what}" for n, what in tape.failures.items()}
                raise ConversionError(sentence, {**others, name: sentence}) from error
            tape.failures.setdefault(name, first_line(error))
            signs = isinstance(modules[name], BothSigns)
            return modules[name].both_signs(value) if signs else value.clone()

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


def judge(tape: Tape, limit: float, case: str) -> None:
    """Raise an error that names the layers which are too far from the original's, or fail."""
    loose = min(GRADIENTS * limit, max(FARTHEST, limit))
    wrong = {n: f"fails: {error}" for n, error in tape.failures.items()}
    for name, far in tape.apart.items():
        if not far <= limit:
            wrong.setdefault(name, f"returns something else: {far:.1e} of its scale")
    if not wrong:  # otherwise gradients follow from values
        far_back = {n: far for n, far in tape.gradients_apart.items() if not far <= loose}
        wrong = {n: f"gets another gradient: {far:.1e} of its scale" for n, far in far_back.items()}
    if wrong:
        sentences = {name: f"{name} {what} {case}" for name, what in wrong.items()}
        raise ConversionError(next(iter(sentences.values())), sentences)


def _judge_outputs(before: Tape, after: Tape, limit: float, case: str) -> None:
    _, relative = difference(before.outputs, after.outputs)
    if not relative <= limit or before.others != after.others:
        raise ConversionError(
            f"the converted network differs by {relative:.2g} of the largest output {case}, more than {limit:.2g}"
        )
    columns = by_column(before.outputs, after.outputs)
    if not columns <= LOOSER * limit:
        raise ConversionError(f"a column of the outputs differs by {columns:.2g} of its own size {case}")


def _judge_inputs(before: Tape, after: Tape, limit: float, case: str) -> None:
    """Compare the gradients of the inputs."""
    same = [x is None for x in before.inputs] == [x is None for x in after.inputs]
    pairs = zip(before.inputs, after.inputs, strict=False)
    far = [difference([a], [b])[1] for a, b in pairs if a is not None and b is not None]
    if not same or not all(d <= limit for d in far):
        raise ConversionError(f"gradients of the inputs differ {case}")


def _note(where: dict[str, float], name: str, far: float) -> None:
    """Note a distance, unless a larger one is known."""
    if not far <= where.get(name, 0.0):
        where[name] = far


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
    elif hasattr(module, "parametrizations"):  # spectral norm takes a step whenever its weight is read
        return None
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
