"""Change twins of a converted network in the same way: target networks, moving averages, new instances."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from typing import Any

from torch import nn

from relucid.convert._edits import Edits, uninterrupted
from relucid.convert._renew import Revive
from relucid.convert._signature import Signature, difference, signature
from relucid.convert._steps import Step
from relucid.convert.conversion import take
from relucid.convert.copies import aliased
from relucid.convert.errors import ArgumentError, ConversionError
from relucid.convert.search import check_steps
from relucid.printing import first_line


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
            try:
                take(steps, edits)
            except (
                ArithmeticError,
                AttributeError,
                LookupError,
                RuntimeError,
                TypeError,
                ValueError,
            ) as error:
                raise ConversionError(f"the twin cannot be changed: {first_line(error)}") from error
            check_steps(single, before, network)


def _network_in(original: Signature, twin: nn.Module) -> nn.Module:
    """The twin itself, or the one in a wrapper such as `torch.optim.swa_utils.AveragedModel`."""
    if not isinstance(twin, nn.Module):
        raise ArgumentError(f"a twin is an nn.Module, not a {type(twin).__name__}")
    reason = difference(original, signature(twin))
    if not reason:
        return twin
    inside = getattr(twin, "module", None)
    if isinstance(inside, nn.Module) and not difference(original, signature(inside)):
        return inside
    raise ConversionError(f"{type(twin).__name__} is no twin of the network before its conversion: {reason}")
