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
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from relucid._torch import (
    DispatchMode,
    hook_counts,
    parameter_hooks,
    registries,
    schema_of,
    tree_leaves,
    tree_map_only,
)
from relucid.convert._recipe import RECIPE
from relucid.convert.copies import ResettableCopy, tensors_of
from relucid.convert.errors import ConversionError
from relucid.convert.examples import Example
from relucid.convert.modules import BothSigns, differing_attribute, equal
from relucid.inspect.execution import Method, function_of, in_mode
from relucid.nn import GeometricLayer
from relucid.printing import first_line
from relucid.randomness import seeded

Key = tuple[str, int]  # a module, and which of its calls
# How far a layer's value may be from the original's, on the scale of its own rounding; gradients 30 times as far, but
# no farther than a fifth.
LOCAL = {torch.float64: 1e-11, torch.float32: 3e-5, torch.float16: 1e-2, torch.bfloat16: 1e-1}
GRADIENTS, FARTHEST = 30, 0.2
DROPOUTS = (nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d, nn.AlphaDropout, nn.FeatureAlphaDropout)


@dataclass
class Tape:
    """What a network computes in one run: its outputs, what its layers return, and the gradients that come back."""

    values: dict[Key, Tensor] = field(default_factory=dict)
    gradients: dict[Key, Tensor] = field(default_factory=dict)
    outputs: list[Tensor] = field(default_factory=list)
    others: list[Any] = field(default_factory=list)  #: outputs that are numbers or words
    inputs: list[Tensor | None] = field(default_factory=list)  #: gradients of the inputs
    buffers: dict[str, Tensor] = field(default_factory=dict)  #: after the run
    multiply_adds: int = 0  #: how many products of a weight and an input were computed

    @property
    def is_finite(self) -> bool:
        """Whether outputs can be compared: some of the real or complex numbers are finite, or there are none."""
        real = [x for x in self.outputs if x.is_floating_point() or x.is_complex()]
        return any(bool(x.isfinite().any()) for x in real) or not real


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


def recorded(
    net: ResettableCopy,
    example: Example,
    call: Method | None,
    *,
    training: bool,
    backward: bool,
    layers: bool = True,
    also: Iterable[str] = (),
    count: bool = False,
) -> Tape:
    """Run a network.

    Args:
        net: The network.
        example: Its input.
        call: How it is used.
        training: In which mode.
        backward: Whether to compute gradients.
        layers: Whether to keep what its layers return.
        also: Further modules to keep the values of.
        count: Whether to count multiply-adds.
    """
    tape, model = Tape(), net.fresh()
    wanted = dict(points(model)) | {name: model.get_submodule(name) for name in also} if layers else {}
    with _shown(wanted, lambda key, module, args, value: _keep(tape, key, value, backward)):
        _run(model, example, call, training, tape, backward=backward, count=count)
    return tape


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
    found, tape, model = Comparison(), Tape(), net.fresh()

    def judge(key: Key, module: nn.Module, args: Any, value: Tensor) -> Tensor | None:
        other = same.get(key[0], key[0]), key[1]
        old = before.values.get(other)
        if old is None or old.shape != value.shape or old.dtype != value.dtype:
            return None
        found.note(found.values, key[0], distance(old, value.detach(), _floor(module, args)))
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
            found.note(found.gradients, key[0], distance(gradient, g, whole))
            return gradient

        forced.register_hook(back)
        return forced

    def known(key: Key) -> Tensor | None:
        return before.values.get((same.get(key[0], key[0]), key[1]))

    with _guarded(model, known, found, tape), _shown(dict(points(model)), judge):
        _run(model, example, call, training, tape, backward=backward, count=not backward)
    return tape, found


def points(model: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """The modules that compute with tensors of their own."""
    for name, module in model.named_modules():
        parameters, buffers, _ = registries(module)
        if name and (parameters or any(b is not None for key, b in buffers.items() if key != RECIPE)):
            yield name, module


def _keep(tape: Tape, key: Key, value: Tensor, backward: bool) -> Tensor | None:
    tape.values[key] = value.detach().clone()  # a ReLU in place may overwrite it
    forced = None
    if backward and torch.is_grad_enabled() and not value.requires_grad:
        value = forced = value.detach().requires_grad_() * 1
    if value.requires_grad:
        value.register_hook(lambda g: tape.gradients.__setitem__(key, g))
    return forced


@contextmanager
def _shown(modules: Mapping[str, nn.Module], see: Callable[..., Tensor | None]) -> Iterator[None]:
    """Show what every module returns; ``see`` may replace it. A copy is hooked, not the user's network."""
    count: Counter[str] = Counter()

    def seen(name: str, module: nn.Module, args: Any, value: Any) -> Any:
        if isinstance(value, Tensor) and value.is_floating_point():
            count[name] += 1
            return see((name, count[name]), module, args, value)
        return None

    with ExitStack() as stack:
        for name, module in modules.items():
            if not isinstance(module, torch.jit.ScriptModule):
                stack.enter_context(module.register_forward_hook(partial(seen, name)))
        yield


@contextmanager
def _guarded(
    model: nn.Module, known: Callable[[Key], Tensor | None], found: Comparison, tape: Tape
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
                others = {n: f"{n} fails: {what}" for n, what in found.failures.items()}
                raise ConversionError(sentence, {**others, name: sentence}) from error
            found.failures.setdefault(name, first_line(error))
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


def _run(
    model: nn.Module,
    example: Example,
    call: Method | None,
    training: bool,
    tape: Tape,
    *,
    backward: bool,
    count: bool = False,
) -> None:
    """Run a network, with dropouts that drop nothing, and compute the gradients of a fixed sum of its outputs."""
    example = tree_map_only(Tensor, lambda x: x.detach().clone(), example)
    leaves = [x for x in tree_leaves(example) if isinstance(x, Tensor) and x.is_floating_point()]
    for x in leaves:
        x.requires_grad_(backward)
    args, kwargs = tree_map_only(Tensor, lambda x: x * 1 if x.requires_grad else x, example)
    given = {id(x) for x in tree_leaves((args, kwargs))} | {id(module) for module in model.modules()}
    counter = Counting() if count else None
    gradients = torch.set_grad_enabled(backward)
    with in_mode(model, training), seeded(), gradients, counter or nullcontext(), _Halving():
        for module in model.modules():
            if isinstance(module, DROPOUTS):  # a checkpoint repeats the forward pass where no mode is seen
                module.training = False
            if isinstance(
                module, GeometricLayer
            ):  # in evaluation, each would keep its weight for the next time
                module.training = True
        answer = function_of(model, call)(*args, **kwargs)
        outputs = list(tensors_of((answer, args, kwargs), given))
        tape.outputs = [x.detach() for x in outputs]
        total = _total(outputs) if backward else None
        if total is not None:
            try:
                tape.inputs = list(torch.autograd.grad(total, leaves, allow_unused=True)) if leaves else []
                if not leaves:
                    total.backward()
            except RuntimeError:  # a network for inference only
                tape.inputs = []
    tape.others = [x for x in tree_leaves(answer) if isinstance(x, int | float | str)]
    tape.buffers = {
        name: b.detach().clone() for name, b in model.named_buffers() if name.rpartition(".")[2] != RECIPE
    }
    tape.multiply_adds = 0 if counter is None else counter.products


def _total(outputs: list[Tensor]) -> Tensor | None:
    """A fixed random combination of all outputs; None if it has no gradients."""
    generator = torch.Generator().manual_seed(0)
    total = None
    for x in outputs:
        if x.requires_grad:
            x = x.abs() if x.is_complex() else x
            factors = torch.randn(x.shape, generator=generator, dtype=torch.float64)
            term = (x * factors.to(x)).sum()
            total = term if total is None else total + term.to(total)
    return total if total is not None and total.requires_grad else None


FUNCTIONS: set[Any] = {
    *(F.dropout, F.dropout1d, F.dropout2d, F.dropout3d, F.alpha_dropout, F.feature_alpha_dropout),
    *(torch.dropout, torch.alpha_dropout, torch.feature_dropout, torch.dropout_),
}
# What `scaled_dot_product_attention` takes by position after query, key, value and mask.
AFTER_MASK = ("dropout_p", "is_causal")


class _Halving(TorchFunctionMode):
    """Makes functional dropouts halve everything: with other channels, a network would drop other entries."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func in FUNCTIONS:
            given = dict(zip(("input", "p", "train"), args, strict=False)) | kwargs
            x = given["input"]
            # Functions in `torch` say `train`; those in `torch.nn.functional` arrive with `training` by keyword.
            if not given.get("training", given.get("train")):
                return x
            return x.mul_(0.5) if given.get("inplace", func is torch.dropout_) else x * 0.5
        if func is F.scaled_dot_product_attention:
            kwargs = dict(zip(AFTER_MASK, args[4:], strict=False)) | kwargs | {"dropout_p": 0.0}
            args = args[:4]
        return func(*args, **kwargs)


class Counting(DispatchMode):
    """Counts products of weights and inputs."""

    def __init__(self) -> None:
        super().__init__()
        self.products = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        output = func(*args, **(kwargs or {}))
        name = schema_of(func).name
        if name == "aten::convolution":
            x, weight, transposed = args[0], args[1], args[6]
            self.products += (x if transposed else output).numel() * weight[0].numel()
        elif name in ("aten::mm", "aten::addmm"):
            self.products += output.numel() * len(args[-1])
        return output


# Distances


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


# Structure


def check_structure(before: nn.Module, after: nn.Module, changed: Iterable[str], *, hooks: bool) -> None:
    """Compare what no run shows: modules that were not changed are identical, what is frozen or tied stays so.

    Args:
        before: The original.
        after: The converted network, which may share its memory.
        changed: The modules that steps have changed; whether these are right, the steps check.
        hooks: Whether hooks on the gradients of changed parameters would be lost.
    """
    faults = dict(_different_modules(before, after, set(changed)))
    for name, fault in _different_parameters(before, after, hooks):
        faults.setdefault(name, fault)
    if faults:
        raise ConversionError(next(iter(faults.values())), faults)


def _different_modules(before: nn.Module, after: nn.Module, changed: set[str]) -> Iterator[tuple[str, str]]:
    """Yield the modules that differ, with what is wrong; of those that were changed, hooks and mode."""
    now = dict(after.named_modules())
    for name, module in before.named_modules():
        below = any(name.startswith(f"{parent}.") for parent in changed)
        other = now.get(name)
        if other is None:
            if not below:
                yield name, f"{name} is missing"
        elif module.training != other.training:
            yield name, f"{name} is in another mode"
        elif hook_counts(module) != hook_counts(other):
            yield name, f"{name} has other hooks"
        elif name not in changed and not below and (fault := _difference(module, other)):
            yield name, f"{name or 'the network'} {fault}"


def _difference(module: nn.Module, other: nn.Module) -> str:
    """How a module differs that nothing was to change; "" if it does not."""
    if not isinstance(other, type(module)):  # what returns both signs has a subclass
        return f"is a {type(other).__name__}, not a {type(module).__name__}"
    if key := differing_attribute(module, other):
        return f"has {key}={vars(other).get(key)}, not {vars(module)[key]}"
    for mine, others in list(zip(registries(module), registries(other), strict=True))[:2]:
        names = mine.keys() - {RECIPE}
        if names != others.keys() - {RECIPE} or not all(equal(mine[key], others[key]) for key in names):
            return "has other numbers"
    return ""


def _different_parameters(before: nn.Module, after: nn.Module, hooks: bool) -> Iterator[tuple[str, str]]:
    """Yield layers with what is trained in one network alone, or tied, or has a hook that would be lost."""
    now = dict(after.named_parameters(remove_duplicate=False))
    places: dict[nn.Parameter, list[str]] = {}
    for name, p in before.named_parameters(remove_duplicate=False):
        places.setdefault(p, []).append(name)
        if name in now and now[name].requires_grad != p.requires_grad:
            yield _layer(name), f"{name} is trained in one network and frozen in the other"
    for p, names in places.items():
        there = [now[name] for name in names if name in now]
        if any(q is not there[0] for q in there[1:]):
            yield _layer(names[0]), f"{' and '.join(names)} are one weight in one network alone"
        moved = any(name not in now or now[name].shape != p.shape for name in names)
        if hooks and moved and parameter_hooks(p):
            what = "has a hook on its gradient, which a copy would lose; inplace=True keeps it"
            yield _layer(names[0]), f"{names[0]} {what}"


def _layer(parameter: str) -> str:
    return parameter.rpartition(".")[0]
