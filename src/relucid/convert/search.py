"""Apply steps to a copy of a network, verify the copy, leave out what breaks it, and hand over the result."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from relucid.convert._edits import optimizers_of, uninterrupted
from relucid.convert._recipe import applied, fast_layers
from relucid.convert._steps import Double, Step, check_steps
from relucid.convert._twins import signature
from relucid.convert.conversion import Change, Conversion
from relucid.convert.copies import aliased, separate
from relucid.convert.difference import difference
from relucid.convert.errors import ConversionError
from relucid.convert.network import RecordedModel
from relucid.convert.structure import check_structure
from relucid.convert.tape import recorded
from relucid.convert.verify import check
from relucid.models import count_parameters
from relucid.printing import first_line


def converted(
    network: RecordedModel,
    steps: Sequence[Step],
    changes: tuple[Change, ...],
    *,
    same: Mapping[str, str] | None = None,
    sizes: bool = True,
    layers: bool = True,
    probe: bool = True,
    training: bool = True,
    tolerance: float | None = None,
    inplace: bool = False,
) -> Conversion:
    """The conversion of a copy by these steps; a `ConversionError` unless it computes what the original does.

    Args:
        network: The original.
        steps: The changes.
        changes: What to report.
        same: By module of the result, the one of the original that returns the same; by default its namesake.
        sizes: Whether the change depends on the size of an input, so that others must be tried.
        layers: Whether layers are compared one by one; otherwise outputs alone.
        probe: Whether steps check the weights that they made; not if several change one module.
        training: Whether to compare in training, too.
        tolerance: The largest relative difference of outputs.
        inplace: Whether the network itself is going to be changed, so that hooks of its parameters stay.
    """
    if layers and network.wide is not None:
        options: Any = {"sizes": sizes, "probe": probe, "training": training, "tolerance": tolerance}
        converted(network.wide, steps, (), same=same, **options)
    trial = applied(steps, aliased(network.model))
    compare: Any = partial(check, trial, call=network.call, same=same, layers=layers, tolerance=tolerance)
    runs = []
    if network.small is not None and network.small_tape is not None and sizes:
        runs.append(compare(network.small, network.small_tape, backward=network.backward))
    changed = [*(name for step in steps for name in step.modules), *fast_layers(trial, steps)]
    check_structure(network.model, trial, changed, hooks=not inplace)
    if probe:
        check_steps(steps, network.model, trial)
    if training and network.learned_on is not None:
        options = {"training": True, "backward": True}
        doubled = {step.name for step in steps if isinstance(step, Double)}
        kept: Any = {"also": (same or {}).values(), "without": doubled}
        before = recorded(network.copy, network.learned_on, network.call, **kept, **options)
        runs.append(compare(network.learned_on, before, **options))
        del before
    for example, tape in network.single if sizes else ():
        compare(example, tape)
    whole = [
        difference(tape.outputs, compare(example, tape).outputs)
        for example, tape in zip(network.examples, network.outputs, strict=True)
    ]
    return Conversion(
        trial,
        changes,
        max(error for error, _ in whole),
        max(relative for _, relative in whole),
        max((far for run in runs for far in run.gradients_apart.values()), default=0.0),
        (count_parameters(network.model), count_parameters(trial)),
        network.multiply_adds(trial),
        tuple(steps),
        max((far for run in runs for far in run.apart.values()), default=0.0),
        network.unchecked if training else (),
        signature(network.model),
    )


def delivered(
    network: RecordedModel, conversion: Conversion, inplace: bool = False, optimizer: Any = None
) -> Conversion:
    """A conversion whose network has memory of its own, or is the original itself."""
    if not inplace:
        separate(conversion.model, network.model)
        return conversion
    object.__setattr__(conversion, "model", network.model)  # whoever has the conversion lets go of the copy
    optimizers = optimizers_of(optimizer)
    with uninterrupted():
        applied(conversion.steps, network.model, optimizers, others=True)
    return conversion


Attempt = Callable[[list[str], dict[str, str]], Conversion]


def largest_valid_subset(
    names: Iterable[str], attempt: Attempt, reaching: Callable[[str], Collection[str]] = lambda layer: ()
) -> Conversion:
    """The conversion of all candidates that work; those that break the network are left out.

    What alone reaches a layer that an error names is left out without a search; among several, or if no layer is named,
    bisection decides.

    Args:
        names: The candidates, each of which may be converted or not.
        attempt: Converts some of them, and reports the others with the reasons why they were left out.
        reaching: The candidates whose change reaches a layer.
    """
    remaining, dropped = list(names), dict[str, str]()

    def works(some: list[str]) -> bool:
        try:
            attempt(some, dropped)
        except ConversionError:
            return False
        return True

    while True:
        try:
            return attempt(remaining, dropped)
        except ConversionError as error:
            if not remaining:
                raise
            near = {layer: [n for n in remaining if n in reaching(layer)] for layer in error.layers}
            guilty = {n[0]: f"with it, {error.layers[layer]}" for layer, n in near.items() if len(n) == 1}
            suspects = next((n for n in near.values() if n), remaining)
            if not guilty:
                rest = [n for n in remaining if n not in suspects]
                if rest and not works(rest):
                    suspects, rest = remaining, []
                if not rest and not works([]):
                    raise
                # The shortest beginning of the suspects that does not work ends with one that breaks the network.
                at = bisect_left(
                    range(1, len(suspects)), True, key=lambda count: not works(rest + suspects[:count])
                )
                guilty = {suspects[at]: f"with it, {first_line(error)}"}
        dropped |= guilty
        remaining = [n for n in remaining if n not in guilty]
