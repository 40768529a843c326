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
from relucid.convert.errors import ConversionError

Signature = Mapping[str, str]


def signature(model: nn.Module) -> Signature:
    """What every module and every tensor is.

    >>> signature(nn.Linear(2, 3))
    {'the network': 'a Linear', 'weight': 'of shape (3, 2)', 'bias': 'of shape (3,)'}
    """
    modules = {name or "the network": f"a {type(module).__name__}" for name, module in model.named_modules()}
    tensors = (*model.named_parameters(remove_duplicate=False), *model.named_buffers(remove_duplicate=False))
    return modules | {n: f"of shape {(*x.shape,)}" for n, x in tensors if not n.endswith(RECIPE)}


def _difference(original: Signature, other: Signature) -> str:
    """The first difference of a network from the original; "" if there is none."""
    for name in (*original, *other):
        a, b = original.get(name, "missing"), other.get(name, "missing")
        if a != b:
            return f"{name} is {b}, not {a}"
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
        raise ConversionError(f"a twin is an nn.Module, not a {type(twin).__name__}")
    reason = _difference(original, signature(twin))
    if not reason:
        return twin
    inside = getattr(twin, "module", None)
    if isinstance(inside, nn.Module) and not _difference(original, signature(inside)):
        return inside
    raise ConversionError(f"{type(twin).__name__} is no twin of the network before its conversion: {reason}")
