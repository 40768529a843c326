"""How far two networks are apart, from what they compute, and how far they may be."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from relucid.convert.errors import ConversionError
from relucid.convert.run import Evaluation

# The largest relative difference of outputs, by precision. Gradients, and outputs in training, may differ a hundred
# times as much: there, norms divide by the spread of a few values.
TOLERANCE = {torch.float64: 1e-10, torch.float32: 1e-4, torch.float16: 5e-2, torch.bfloat16: 5e-2}
LOOSER = 100
SHRINKS = 1e-4  # of a difference is at most left in float64 if rounding is its cause


def tolerance_of(outputs: list[Tensor]) -> float:
    """The largest relative difference that is allowed, given the coarsest precision of the outputs."""
    real = [x.real.dtype if x.is_complex() else x.dtype for x in outputs]
    return max((TOLERANCE.get(dtype, 1e-4) for dtype in real if dtype.is_floating_point), default=0.0)


def difference(before: list[Tensor], after: list[Tensor]) -> tuple[float, float]:
    """The largest difference between two lists of tensors, and the same divided by the largest entry.

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
    if not torch.equal(finite, y.isfinite()) or not torch.allclose(x[~finite], y[~finite], equal_nan=True):
        return math.inf, math.inf
    x, y = x[finite], y[finite]
    if not x.numel():
        return 0.0, 0.0
    error, size = float((x - y).abs().max()), float(x.abs().max())
    return error, error / size if size else error


@dataclass(frozen=True)
class Apart:
    """Differences between what two networks compute."""

    error: float = 0.0  #: largest difference of outputs
    outputs: float = 0.0  #: the same, relative to the largest output
    gradient: float = 0.0  #: relative difference of the gradients of inputs and unchanged layers
    buffers: float = 0.0  #: largest difference of buffers that both have, on the scale of their layer
    buffer: str = ""  #: which buffer that is

    @property
    def rounding(self) -> "Apart":
        """What may be left of these differences in float64, if rounding is their cause."""
        outputs, gradient, buffers = (
            SHRINKS * each if math.isfinite(each) else 0.0
            for each in (self.outputs, self.gradient, self.buffers)
        )
        return Apart(outputs=outputs, gradient=gradient, buffers=buffers)


class DifferenceError(ConversionError):
    """Two networks are farther apart than they may be."""


ZERO = Apart()


@dataclass(frozen=True)
class Sides:
    """What a network and its conversion compute on the same example."""

    before: Evaluation
    after: Evaluation
    case: str  #: on what, and in which mode, in words
    training: bool

    @cached_property
    def apart(self) -> Apart:
        """The differences."""
        error, relative = difference(self.before.outputs, self.after.outputs)
        gradient = gradient_difference(self.before, self.after, self.case)
        buffers = _buffer_difference(self.before, self.after) if self.training else ()
        return Apart(error, relative, gradient, *buffers)

    def judged(self, tolerance: float | None, floor: Apart = ZERO) -> Apart:
        """The differences; raise an error if they are too large.

        Args:
            tolerance: The largest relative difference of outputs, the only thing judged then; by default, what
                their precision allows.
            floor: Differences that are allowed in any case.
        """
        limit = tolerance_of(self.before.outputs) if tolerance is None else tolerance
        loose, found = LOOSER * limit, self.apart
        allowed = max(loose if self.training and tolerance is None else limit, floor.outputs)
        if not found.outputs <= allowed or self.before.others != self.after.others:
            raise DifferenceError(
                f"the converted network differs by {found.outputs:.2g} of the largest output {self.case}, more than "
                f"{allowed:.2g}"
            )
        if tolerance is not None:
            return found
        allowed = max(loose, floor.gradient)
        if not found.gradient <= allowed:
            raise DifferenceError(
                f"gradients of the converted network differ by {found.gradient:.2g} {self.case}, more than "
                f"{allowed:.2g}"
            )
        if self.training and not found.buffers <= max(loose, 1e-10, floor.buffers):
            raise DifferenceError(f"the converted network updates {found.buffer} differently {self.case}")
        return found


def gradient_difference(before: Evaluation, after: Evaluation, case: str) -> float:
    """The relative difference of the gradients of the inputs and of all layers that were not changed."""
    if before.backward != after.backward:
        which = "has no gradients" if before.backward else "has gradients, the original none"
        raise ConversionError(f"the converted network {which} {case}")
    pairs = list(zip(before.inputs, after.inputs, strict=True))
    for name in unchanged(before.values, after.values):
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
        g, h = g.to(_double(g)), h.to(_double(h))
        squared, distance = float(g.abs().square().sum()), float((g - h).abs().square().sum())
        if not math.isfinite(squared + distance):
            if not torch.equal(g.isfinite(), h.isfinite()):
                return math.inf
            g, h = (torch.where(g.isfinite(), x, 0) for x in (g, h))
            squared, distance = float(g.abs().square().sum()), float((g - h).abs().square().sum())
        apart, length = apart + distance, length + squared
    return math.sqrt(apart / length) if length else math.sqrt(apart)


def unchanged(before: Mapping[str, Tensor], after: Mapping[str, Tensor]) -> list[str]:
    """The parameters of all layers that have the same parameters in both networks, by their names."""
    found: list[str] = []
    others = _by_layer(after)
    for layer, parameters in _by_layer(before).items():
        other = others.get(layer, {})
        if parameters.keys() == other.keys() and all(_equal(p, other[n]) for n, p in parameters.items()):
            found += parameters
    return found


def _double(x: Tensor) -> torch.dtype:
    return torch.complex128 if x.is_complex() else torch.float64


def _equal(a: Tensor, b: Tensor) -> bool:
    return torch.equal(a, b) or (a.shape == b.shape and bool(((a == b) | (a.isnan() & b.isnan())).all()))


def _by_layer(parameters: Mapping[str, Tensor]) -> dict[str, dict[str, Tensor]]:
    layers: dict[str, dict[str, Tensor]] = {}
    for name, value in parameters.items():
        layers.setdefault(name.rpartition(".")[0], {})[name] = value
    return layers


def _buffer_difference(before: Evaluation, after: Evaluation) -> tuple[float, str]:
    """The largest difference of a buffer that both networks have, on the scale of its layer, and its name."""
    scales: dict[str, float] = {}
    for name, value in before.buffers.items():
        layer = name.rpartition(".")[0]
        if value.is_floating_point() and value.numel():
            scales[layer] = max(scales.get(layer, 0.0), float(value.nan_to_num(0, 0, 0).abs().max()))
    largest, of = 0.0, ""
    for name, value in before.buffers.items():
        other = after.buffers.get(name)
        if other is None or other.shape != value.shape:
            continue
        apart, scale = difference([value], [other])[0], scales.get(name.rpartition(".")[0], 0.0)
        relative = apart / scale if scale else (math.inf if apart else 0.0)
        if not relative <= largest:
            largest, of = relative, name
    return largest, of
