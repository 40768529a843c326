"""Apply steps to a copy of a network, verify the copy, leave out what breaks it, and hand over the result."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from relucid.convert import verify
from relucid.convert._edits import uninterrupted
from relucid.convert._signature import signature
from relucid.convert._steps import Step
from relucid.convert.conversion import Conversion, applied, fast_layers, optimizers_of
from relucid.convert.copies import ResettableCopy, aliased, separate
from relucid.convert.difference import difference, tolerance_of
from relucid.convert.errors import ConversionError
from relucid.convert.examples import Example, batch_size, sizes_of
from relucid.convert.network import RecordedModel
from relucid.models import count_parameters
from relucid.printing import first_line

LOOSER = (
    100  # outputs in training may differ that many times as much: norms divide by the spread of a few values
)


def check_steps(steps: Iterable[Step], before: nn.Module, after: nn.Module) -> None:
    """Compare every changed module with the old one on a random input: units that no example reaches are seen, too."""
    for step in steps:
        try:
            share = step.check(before.get_submodule(step.name), after.get_submodule(step.name))
        except (AttributeError, RuntimeError, IndexError, TypeError) as error:
            raise ConversionError(f"{step.name} is not what it should be: {error}") from error
        if not share <= 1:
            what = "would compute something else"
            raise ConversionError(f"{step.name} {what}", {step.name: f"{step.name} {what}"})


def converted(
    network: RecordedModel,
    steps: Sequence[Step],
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
        same: By module of the result, the one of the original that returns the same; by default its namesake.
        sizes: Whether the change depends on the size of an input, so that others must be tried.
        layers: Whether layers are compared one by one; otherwise outputs alone.
        probe: Whether steps check what they did by random numbers; not if several change one module.
        training: Whether to compare in training, too.
        tolerance: The largest relative difference of outputs.
        inplace: Whether the network itself is going to be changed, so that hooks of its parameters stay.
    """
    if layers and network.wide is not None:
        options: Any = {"sizes": sizes, "probe": probe, "training": training, "tolerance": tolerance}
        converted(network.wide, steps, same=same, **options)
    trial = applied(steps, aliased(network.model))
    found = _Verification(network, trial, same or {}, tolerance, layers)
    if network.small_tape is not None and sizes:
        found.in_evaluation()
    found.copy.fresh(freeze=False)
    changed = [*(name for step in steps for name in step.modules), *fast_layers(trial, steps)]
    verify.check_structure(network.model, trial, changed, hooks=not inplace)
    if probe:
        check_steps(steps, network.model, trial)
    if training and network.learned_on is not None:
        found.in_training()
    if sizes:
        found.on_other_sizes()
    error, relative, products = found.as_a_whole()
    found.copy.fresh(freeze=False)
    return Conversion(
        trial,
        network.report.changes(),
        error,
        relative,
        found.gradient,
        (count_parameters(network.model), count_parameters(trial)),
        products,
        tuple(steps),
        found.layer,
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


class _Verification:
    """Runs of a converted copy beside those of the original."""

    def __init__(
        self,
        network: RecordedModel,
        trial: nn.Module,
        same: Mapping[str, str],
        tolerance: float | None,
        layers: bool,
    ) -> None:
        self.network, self.copy, self.same = network, ResettableCopy(trial), same
        self.tolerance, self.layers = tolerance, layers
        self.limit = max(
            verify.tolerance(p.dtype for p in network.model.parameters()),
            math.inf if not layers else tolerance or 0.0,
        )
        self.layer = self.gradient = 0.0  # the largest differences of a layer's value, and of a gradient

    def in_evaluation(self) -> None:
        """Compare layer by layer, in evaluation, on another size."""
        network = self.network
        assert network.small is not None
        assert network.small_tape is not None
        self._beside(network.small, network.small_tape, training=False, backward=network.backward)

    def in_training(self) -> None:
        """Compare layer by layer, in training: values, gradients, statistics."""
        network = self.network
        assert network.learned_on is not None
        before = verify.recorded(
            *(network.copy, network.learned_on, network.call),
            training=True,
            backward=True,
            also=self.same.values(),
        )
        self._beside(network.learned_on, before, training=True, backward=True)

    def _beside(self, example: Example, before: verify.Tape, *, training: bool, backward: bool) -> None:
        case = f"{'in training' if training else 'in evaluation'} on {sizes_of(example)}"
        after, found = self._run(
            lambda: verify.compared(
                *(self.copy, example, self.network.call, before, self.same),
                training=training,
                backward=backward,
            ),
            case,
        )
        found.judge(self.limit, case)
        value, gradient = found.largest
        self.layer, self.gradient = max(self.layer, value), max(self.gradient, gradient)
        loose = LOOSER * max(tolerance_of(before.outputs), self.tolerance or 0.0)
        self._judge_outputs(before, after, loose, case)
        if backward and self.layers:
            self._judge_inputs(before, after, max(loose, 1e-8), case)
        if training and (name := verify.differing_buffer(before, after, max(loose, 1e-8))):
            raise ConversionError(f"the converted network updates {name} differently {case}")

    def _judge_inputs(self, before: verify.Tape, after: verify.Tape, limit: float, case: str) -> None:
        """Compare the gradients of the inputs."""
        pairs = list(zip(before.inputs, after.inputs, strict=False))
        missing = len(before.inputs) != len(after.inputs) or any((a is None) != (b is None) for a, b in pairs)
        far = [difference([a], [b])[1] for a, b in pairs if a is not None and b is not None]
        limit = min(limit, max(verify.FARTHEST, self.limit))
        if missing or not all(d <= limit for d in far):
            raise ConversionError(f"gradients of the inputs differ {case}")

    def on_other_sizes(self) -> None:
        """Compare outputs, in evaluation, on further sizes."""
        for example, before in self.network.single:
            case = f"in evaluation on {sizes_of(example)}"
            after = self._run(lambda example=example: self._evaluated(example), case)  # type: ignore[misc]
            limit = tolerance_of(before.outputs) if self.tolerance is None else self.tolerance
            self._judge_outputs(before, after, limit, case)

    def as_a_whole(self) -> tuple[float, float, tuple[int, int]]:
        """Compare outputs, in evaluation, on what the user gave: the largest difference, and multiply-adds."""
        error = relative = 0.0
        products = 0
        for number, (example, before) in enumerate(
            zip(self.network.examples, self.network.outputs, strict=True)
        ):
            case = f"in evaluation on {sizes_of(example)}"
            after = self._run(
                lambda example=example, first=number == 0: self._evaluated(example, count=first),  # type: ignore[misc]
                case,
            )
            limit = tolerance_of(before.outputs) if self.tolerance is None else self.tolerance
            apart = self._judge_outputs(before, after, limit, case)
            error, relative = max(error, apart[0]), max(relative, apart[1])
            products = products or after.multiply_adds
        size = batch_size(self.network.examples[0])
        return error, relative, (self.network.outputs[0].multiply_adds // size, products // size)

    def _evaluated(self, example: Example, *, count: bool = False) -> verify.Tape:
        return verify.recorded(
            *(self.copy, example, self.network.call),
            training=False,
            backward=False,
            layers=False,
            count=count,
        )

    def _run(self, run: Callable[[], Any], case: str) -> Any:
        """What a run of the converted network returns; the original takes the same input."""
        try:
            return run()
        except ConversionError:
            raise
        except Exception as raised:
            raise ConversionError(
                f"the converted network fails {case}, where {self.network.name} does not: {raised}"
            ) from raised

    def _judge_outputs(
        self, before: verify.Tape, after: verify.Tape, limit: float, case: str
    ) -> tuple[float, float]:
        error, relative = difference(before.outputs, after.outputs)
        if not relative <= limit or before.others != after.others:
            raise ConversionError(
                f"the converted network differs by {relative:.2g} of the largest output {case}, more than {limit:.2g}"
            )
        columns = by_column(before.outputs, after.outputs)
        if not columns <= LOOSER * limit:
            raise ConversionError(f"a column of the outputs differs by {columns:.2g} of its own size {case}")
        return error, relative


def by_column(before: Sequence[Tensor], after: Sequence[Tensor]) -> float:
    """The largest difference, each entry of the last dimension on its own scale; constant ones set no scale.

    >>> x = torch.tensor([[1.0, -1e9], [2.0, -1e9]])
    >>> round(by_column([x], [x + torch.tensor([0.5, 0.0])]), 2)
    0.32
    """
    worst = 0.0
    for x, y in zip(before, after, strict=True):
        if x.dim() < 2 or not x.is_floating_point() or not x.numel():
            continue
        x, y = (z.double().nan_to_num(0, 0, 0).flatten(0, -2) for z in (x, y))
        size, error = x.square().mean(0).sqrt(), (x - y).abs().amax(0)
        vary = size[(x != x[:1]).any(0)]
        scale = size.maximum(vary.median()) if len(vary) else size
        worst = max(worst, float(torch.where(error == 0, 0.0, error / scale.clamp(min=1e-30)).max()))
    return worst


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
