"""Change twins of a converted network in the same way: target networks, moving averages, new instances."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from typing import Any

from torch import nn

from relucid.convert._edits import Edits, uninterrupted
from relucid.convert._recipe import RECIPE, take
from relucid.convert._renew import Revive
from relucid.convert._steps import Step, check_steps
from relucid.convert.copies import aliased
from relucid.convert.errors import ArgumentError, ConversionError

Signature = Mapping[str, tuple[str, dict[str, tuple[int, ...]]]]


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
    networks = list(dict.fromkeys(_network_in(original, twin) for twin in twins))
    chosen, own = [step for step in steps if not isinstance(step, Revive)], list(optimizers)
    with uninterrupted():
        _change(networks, chosen, own)


def _change(networks: Sequence[nn.Module], steps: Sequence[Step], optimizers: Sequence[Any]) -> None:
    times = Counter(name for step in steps for name in (step.name, *step.modules))
    single = [step for step in steps if max(times[n] for n in (step.name, *step.modules)) <= 2]
    with ExitStack() as stack:
        for network in networks:
            before = aliased(network)
            edits = stack.enter_context(Edits(network, optimizers, others=True))
            take(steps, edits)
            check_steps(single, before, network)


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
