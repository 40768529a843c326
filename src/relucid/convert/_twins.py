"""Change twins of a converted network in the same way: target networks, moving averages, new instances."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from typing import Any

from torch import nn

from relucid.convert._edits import Edits
from relucid.convert._recipe import RECIPE, remember
from relucid.convert._renew import Revive
from relucid.convert._steps import Step
from relucid.convert.errors import ArgumentError, ConversionError
from relucid.printing import first_line

Signature = Mapping[str, tuple[str, dict[str, tuple[int, ...]]]]
TOLERANCE = 1e-5  # of a changed layer, on the scale of its own rounding, in float32


def signature(model: nn.Module) -> Signature:
    """The class of every module, and the shapes of its own tensors.

    >>> signature(nn.Linear(2, 3))
    {'': ('Linear', {'weight': (3, 2), 'bias': (3,)})}
    """
    return {
        name: (type(module).__name__, {k: shape for k, shape in _shapes(module) if k != RECIPE})
        for name, module in model.named_modules()
    }


def _shapes(module: nn.Module) -> Iterable[tuple[str, tuple[int, ...]]]:
    for key, value in (*module.named_parameters(recurse=False), *module.named_buffers(recurse=False)):
        yield key, tuple(value.shape)


def apply_to(
    steps: Sequence[Step], original: Signature, twins: Sequence[nn.Module], optimizers: Iterable[Any] = ()
) -> None:
    """Change all twins in place by the same steps, from their own values; on an error none is changed.

    Args:
        steps: Those of the conversion; values of units that were revived stay with the network that they were made for.
        original: What the converted network looked like before.
        twins: Networks of the same build.
        optimizers: Those of the twins.
    """
    networks = [_network_in(original, twin) for twin in twins]
    with ExitStack() as stack:
        for network in dict.fromkeys(networks):
            edits = stack.enter_context(Edits(network, optimizers, others=True))
            for step in (step for step in steps if not isinstance(step, Revive)):
                _take(step, edits)
            remember(edits, steps)


def _take(step: Step, edits: Edits) -> None:
    """Take a step, and compare the module with the old one on a random input."""
    module = edits.model.get_submodule(step.name)
    before = copy.deepcopy(module)
    try:
        step.apply(edits)
        gap = step.check(before, edits.model.get_submodule(step.name))
    except (ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError, ValueError) as error:
        raise ConversionError(f"{step.name} of the twin cannot be changed: {first_line(error)}") from error
    if not gap <= TOLERANCE:
        raise ConversionError(f"{step.name} of the twin would compute something else: {gap:.1e} apart")


def _network_in(original: Signature, twin: nn.Module) -> nn.Module:
    """The twin itself, or the one in a wrapper such as `torch.optim.swa_utils.AveragedModel`."""
    if not isinstance(twin, nn.Module):
        raise ArgumentError(f"a twin is an nn.Module, not a {type(twin).__name__}")
    reason = _difference(original, signature(twin))
    if not reason:
        return twin
    inside = getattr(twin, "module", None)
    if isinstance(inside, nn.Module) and not _difference(original, signature(inside)):
        return inside
    raise ConversionError(f"{type(twin).__name__} is no twin of the network before its conversion: {reason}")


def _difference(original: Signature, other: Signature) -> str:
    """The first difference of a network from the original; "" if there is none."""
    for name in (*original, *other):
        a, b = original.get(name), other.get(name)
        if a == b:
            continue
        where = name or "the network"
        if a is None or b is None:
            return f"{where} is in {'the twin' if a is None else 'the original'} only"
        if a[0] != b[0]:
            return f"{where} is a {b[0]}, not a {a[0]}"
        key = next(k for k in (*a[1], *b[1]) if a[1].get(k) != b[1].get(k))
        return f"{f'{name}.' if name else ''}{key} has the shape {b[1].get(key)}, not {a[1].get(key)}"
    return ""
