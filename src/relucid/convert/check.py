"""The check that guards every conversion: outputs, gradients and statistics, in both modes, on several sizes."""

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields, is_dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves, tree_map_only

from relucid.convert.examples import batch_size, other_examples
from relucid.convert.graph import Batch, ConversionError, arguments
from relucid.convert.network import doubled, light_copy
from relucid.convert.products import products

# The largest relative difference of outputs, by precision. Gradients, and outputs in training, may differ a hundred
# times as much: there, norms divide by the spread of a few values.
TOLERANCE = {torch.float64: 1e-10, torch.float32: 1e-4, torch.float16: 5e-2, torch.bfloat16: 5e-2}
LOOSER = 100


def tolerance_of(outputs: list[Tensor]) -> float:
    """Return the largest relative difference that is allowed, given the coarsest precision of the outputs."""
    real = [x.real.dtype if x.is_complex() else x.dtype for x in outputs]
    return max((TOLERANCE.get(dtype, 1e-4) for dtype in real if dtype.is_floating_point), default=0.0)


def tensors(value: Any) -> list[Tensor]:
    """Return all tensors in a network's output, including those in containers and dataclasses.

    >>> tensors({"a": torch.ones(1), "b": [None, torch.zeros(1)]})
    [tensor([1.]), tensor([0.])]
    """
    if isinstance(value, Tensor):
        return [value]
    if is_dataclass(value):
        return [x for field in fields(value) for x in tensors(getattr(value, field.name))]
    return [x for leaf in tree_leaves(value) if leaf is not value for x in tensors(leaf)]


def difference(before: list[Tensor], after: list[Tensor]) -> tuple[float, float]:
    """Return the largest difference between two lists of tensors, and the same divided by the largest entry.

    It is infinite if shapes differ, or if NaN and infinities are not in the same places.

    >>> difference([torch.tensor([1.0, 4.0])], [torch.tensor([1.0, 3.0])])
    (1.0, 0.25)
    >>> difference([torch.tensor([1.0, torch.nan])], [torch.tensor([torch.nan, torch.nan])])
    (inf, inf)
    """
    if len(before) != len(after):
        return math.inf, math.inf
    pairs = [_difference(x, y) for x, y in zip(before, after, strict=True)]
    return max((e for e, _ in pairs), default=0.0), max((r for _, r in pairs), default=0.0)


def _difference(x: Tensor, y: Tensor) -> tuple[float, float]:
    if x.shape != y.shape or x.dtype.is_complex != y.dtype.is_complex:
        return math.inf, math.inf
    if x.is_complex():
        x, y = torch.view_as_real(x), torch.view_as_real(y)
    x, y = x.double(), y.double()
    finite = x.isfinite()
    if not torch.equal(finite, y.isfinite()) or not torch.equal(_signs(x), _signs(y)):
        return math.inf, math.inf
    x, y = x[finite], y[finite]
    if not x.numel():
        return 0.0, 0.0
    error, size = float((x - y).abs().max()), float(x.abs().max())
    return error, error / size if size else error


def _signs(x: Tensor) -> Tensor:
    """Return 2 for NaN, -1 and 1 for infinities, 0 elsewhere."""
    return torch.where(x.isnan(), 2, torch.where(x.isinf(), x.sign(), 0))


@dataclass(frozen=True)
class Run:
    """What a network computes on an example in one mode."""

    outputs: list[Tensor]
    others: list[Any]  #: outputs that are not tensors
    inputs: list[Tensor | None]  #: gradients of the inputs
    gradients: dict[str, Tensor | None]  #: of all parameters
    values: dict[str, Tensor]  #: the parameters
    trained: dict[str, bool]  #: which parameters require gradients
    buffers: dict[str, Tensor]  #: after the run
    backward: bool  #: whether gradients could be computed
    multiply_adds: int  #: how many products of a weight and an input were computed

    @property
    def is_finite(self) -> bool:
        """Whether any output can be compared: a finite number, or something else than a tensor."""
        return bool(self.others) or any(bool(x.isfinite().any()) for x in self.outputs)


def run(model: nn.Module, example: Batch, training: bool, *, backward: bool = True) -> Run:
    """Run a copy of a network, with dropouts that halve, and compute the gradients of a fixed sum of its outputs.

    Args:
        model: Any network.
        example: Its input.
        training: In which mode.
        backward: Whether to compute gradients; without, they are all None.
    """
    model, watching = light_copy(model), _Watching()
    if not training:
        model.eval()
    elif not model.training:  # in training already, modules that were put into evaluation by hand stay there
        model.train()
    example = tree_map_only(Tensor, _leaf, example)
    leaves = [x for x in tree_leaves(example) if isinstance(x, Tensor) and x.requires_grad]
    args, kwargs = arguments(tree_map_only(Tensor, lambda x: x.clone() if x.requires_grad else x, example))
    torch.manual_seed(0)
    with torch.enable_grad(), watching:
        answer = model(*args, **kwargs)
    outputs = tensors(answer)
    wanted = {name: p for name, p in model.named_parameters() if p.requires_grad}
    gradients = _gradients(outputs, [*leaves, *wanted.values()]) if backward else None
    given = iter(gradients or ())
    return Run(
        [x.detach() for x in outputs],
        [x for x in tree_leaves(answer) if isinstance(x, int | float | str) and not is_dataclass(x)],
        [next(given, None) for _ in leaves],
        dict(zip(wanted, given, strict=False)),
        {name: p.detach() for name, p in model.named_parameters()},
        {name: p.requires_grad for name, p in model.named_parameters()},
        {name: b.detach() for name, b in model.named_buffers()},
        gradients is not None,
        watching.products,
    )


def _leaf(x: Tensor) -> Tensor:
    x = x.detach().clone()
    return x.requires_grad_() if x.is_floating_point() or x.is_complex() else x


def _gradients(outputs: list[Tensor], of: list[Tensor]) -> list[Tensor | None] | None:
    """Return the gradients of a fixed random combination of all outputs; None if there are none."""
    generator = torch.Generator().manual_seed(0)
    total = torch.zeros((), dtype=torch.float64)
    for x in outputs:
        if x.requires_grad:
            x = x.abs() if x.is_complex() else x
            factors = torch.randn(x.shape, generator=generator, dtype=torch.float64)
            total = total + (x * factors.to(x)).sum().double().cpu()
    if not total.requires_grad or not of:
        return None
    try:
        return list(torch.autograd.grad(total, of, allow_unused=True))
    except RuntimeError:
        return None


DROPOUTS: set[Any] = {
    F.dropout,
    F.dropout1d,
    F.dropout2d,
    F.dropout3d,
    F.alpha_dropout,
    F.feature_alpha_dropout,
}
DROPOUTS |= {torch.dropout, torch.alpha_dropout, torch.feature_dropout, torch.dropout_}


class _Watching(TorchFunctionMode):
    """Counts products of weights and inputs, and makes dropouts halve everything.

    With other channels, a converted network would drop other entries.
    """

    def __init__(self) -> None:
        super().__init__()
        self.products = 0

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func in DROPOUTS:
            given = dict(zip(("input", "p", "training", "inplace"), args, strict=False)) | kwargs
            x = given["input"]
            if not given.get("training", True):
                return x
            return x.mul_(0.5) if given.get("inplace") else x * 0.5
        if func is F.scaled_dot_product_attention:
            kwargs, args = {**kwargs, "dropout_p": 0.0}, args[:4]
        output = func(*args, **kwargs)
        self.products += products(func, args, kwargs, output)
        return output


@dataclass(frozen=True)
class Differences:
    """How far a network is from the original, and the multiply-adds on the example before and after."""

    error: float
    relative: float
    gradient: float
    multiply_adds: tuple[int, int]


class References:
    """What a network computes on an example, and on other sizes that it takes, in both modes."""

    def __init__(self, model: nn.Module, example: Batch) -> None:
        self.model, self.name = model, type(model).__name__
        self.others = other_examples(light_copy(model).eval(), example)
        self.examples = [example, *self.others]
        self._runs: dict[tuple[int, bool], Run | None] = {}

    def _run(self, number: int, training: bool) -> Run | None:
        """Return what the network computes, or None if it does not take the example in this mode."""
        if (number, training) not in self._runs:
            try:
                found = run(
                    self.model, self.examples[number], training, backward=self._backward(number, training)
                )
            except Exception as error:
                if number == 0 and not training:
                    raise ConversionError(f"{self.name} does not take the example: {error}") from error
                found = None
            self._runs[number, training] = found
        return self._runs[number, training]

    def check(self, net: nn.Module, tolerance: float | None, training: bool) -> Differences:
        """Return how far outputs and gradients are from the original's; raise an error if that is too far."""
        error = relative = gradient = 0.0
        counts: list[tuple[int, int]] = []
        for number, mode in self._cases(training):
            before = self._run(number, mode)
            if before is None:
                continue
            case = f"{'in training' if mode else 'in evaluation'} on {_sizes(self.examples[number])}"
            if not before.is_finite and (mode or number == 0):
                raise ConversionError(
                    f"{self.name} has no finite output {case}, so there is nothing to compare; give an example on "
                    "which it has"
                )
            try:
                after = run(net, self.examples[number], mode, backward=self._backward(number, mode))
            except Exception as raised:
                raise ConversionError(
                    f"the converted network fails {case}, where {self.name} does not: {raised}"
                ) from raised
            counts.append((before.multiply_adds, after.multiply_adds))
            try:
                found = _judge(before, after, case, tolerance, mode)
            except ConversionError:
                if not mode or tolerance is not None or (wide := self._in_float64(net, number)) is None:
                    raise
                found = wide
            error, relative, gradient = map(max, (error, relative, gradient), found)
        return Differences(error, relative, gradient, counts[0])

    def _in_float64(self, net: nn.Module, number: int) -> tuple[float, float, float] | None:
        """Return the differences in training on the user's example in float64; None if networks differ there, too.

        Norms of a few values amplify rounding layer by layer, until deep networks that are equal seem to differ. In
        float64 their outputs agree on the example with this number, and all else on the user's own, of more values.
        """
        try:
            networks = doubled(self.model), doubled(net)
            before, after = _in_training(networks, self.examples[number], backward=False)
            if not difference(before.outputs, after.outputs)[1] <= LOOSER * TOLERANCE[torch.float32]:
                return None
            before, after = _in_training(networks, self.examples[0], backward=True)
            return _judge(before, after, "in float64", None, training=True)
        except Exception:  # the difference found before stands
            return None

    def _backward(self, number: int, training: bool) -> bool:
        """Return whether to compare gradients: in each mode on one example, not the user's if there are others."""
        return training or number == min(1, len(self.others))

    def _cases(self, training: bool) -> Iterator[tuple[int, bool]]:
        """Yield every example in evaluation; in training, the first one that works, of another size if there is one."""
        yield from ((number, False) for number in range(len(self.examples)))
        if training:
            numbers = [*range(1, len(self.examples)), 0]
            # Norms centre a batch of one on their shift: a gate that averages it would rectify rounding errors.
            numbers.sort(key=lambda number: batch_size(self.examples[number]) == 1)
            runs = ((n, self._run(n, True)) for n in numbers)
            yield next(((n, True) for n, found in runs if found is not None and found.is_finite), (0, True))


def _in_training(networks: Iterable[nn.Module], example: Batch, *, backward: bool) -> list[Run]:
    """Return what networks in float64 compute in training."""
    wide = tree_map_only(Tensor, lambda x: x.double() if x.is_floating_point() else x, example)
    return [run(each, wide, training=True, backward=backward) for each in networks]


def _sizes(example: Batch) -> str:
    """Return the sizes of an example in words."""
    found = [x for x in tree_leaves(arguments(example)) if isinstance(x, Tensor)]
    return "an input of " + " and ".join("x".join(map(str, x.shape)) or "one number" for x in found[:3])


def _judge(
    before: Run, after: Run, case: str, tolerance: float | None, training: bool
) -> tuple[float, float, float]:
    """Return the differences between two runs; raise an error if they are too large."""
    error, relative = difference(before.outputs, after.outputs)
    limit = tolerance_of(before.outputs) if tolerance is None else tolerance
    allowed = LOOSER * limit if training and tolerance is None else limit
    if not relative <= allowed or before.others != after.others:
        raise ConversionError(
            f"the converted network differs by {relative:.2g} of the largest output {case}, more than "
            f"{allowed:.2g}; it is not handed over"
        )
    gradient = gradient_difference(before, after, case)
    if tolerance is None and not gradient <= LOOSER * limit:
        raise ConversionError(
            f"gradients of the converted network differ by {gradient:.2g} {case}, more than "
            f"{LOOSER * limit:.2g}; it is not handed over"
        )
    if tolerance is None and training:
        _compare_buffers(before, after, case, LOOSER * max(limit, 1e-12))
    return (error, relative, gradient) if not training else (0.0, 0.0, gradient)


def gradient_difference(before: Run, after: Run, case: str) -> float:
    """Return the relative difference of the gradients of the inputs and of all layers that were not changed."""
    if before.backward != after.backward:
        which = "has no gradients" if before.backward else "has gradients, the original none"
        raise ConversionError(f"the converted network {which} {case}; it is not handed over")
    pairs = list(zip(before.inputs, after.inputs, strict=True))
    layers, others = _by_layer(before), _by_layer(after)
    for layer, parameters in layers.items():
        other = others.get(layer, {})
        if parameters.keys() != other.keys() or not all(_equal(p, other[n]) for n, p in parameters.items()):
            continue
        for name in parameters:
            if before.trained[name] != after.trained[name]:
                raise ConversionError(f"{name} is trained in one network and frozen in the other {case}")
            pairs.append((before.gradients.get(name), after.gradients.get(name)))
    apart = length = 0.0
    for g, h in pairs:
        if (g is None) != (h is None):
            some = g if h is None else h
            if some is not None and bool(some.count_nonzero()):
                return math.inf
        if g is None or h is None:
            continue
        if not torch.equal(g.isfinite(), h.isfinite()):
            return math.inf
        g, h = (torch.where(g.isfinite(), x, 0).to(_double(x)) for x in (g, h))
        apart += float((g - h).abs().square().sum())
        length += float(g.abs().square().sum())
    return math.sqrt(apart / length) if length else math.sqrt(apart)


def _double(x: Tensor) -> torch.dtype:
    return torch.complex128 if x.is_complex() else torch.float64


def _equal(a: Tensor, b: Tensor) -> bool:
    return a.shape == b.shape and bool(((a == b) | (a.isnan() & b.isnan())).all())


def _by_layer(found: Run) -> dict[str, dict[str, Tensor]]:
    layers: dict[str, dict[str, Tensor]] = {}
    for name, value in found.values.items():
        layers.setdefault(name.rpartition(".")[0], {})[name] = value
    return layers


def _compare_buffers(before: Run, after: Run, case: str, limit: float) -> None:
    """Raise an error if a buffer that both networks have was updated differently, on the scale of its layer."""
    scales: dict[str, float] = {}
    for name, value in before.buffers.items():
        layer = name.rpartition(".")[0]
        if value.is_floating_point() and value.numel():
            scales[layer] = max(scales.get(layer, 0.0), float(value.nan_to_num(0, 0, 0).abs().max()))
    for name, value in before.buffers.items():
        other = after.buffers.get(name)
        if other is None or other.shape != value.shape:
            continue
        if not difference([value], [other])[0] <= limit * scales.get(name.rpartition(".")[0], 0.0):
            raise ConversionError(
                f"the converted network updates {name} differently {case}; it is not handed over"
            )
