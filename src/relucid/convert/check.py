"""The check that guards every conversion: outputs, gradients and statistics, in both modes, on several sizes."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from torch import Tensor, nn

from relucid._torch import tree_leaves, tree_map_only
from relucid.convert.copies import Throwaway, copied
from relucid.convert.difference import Apart, DifferenceError, Sides, difference, unchanged
from relucid.convert.errors import ConversionError, UnclearError
from relucid.convert.examples import Batch, alternatives, arguments, batch_size
from relucid.convert.run import Evaluation, run

TELLING = 0.1  # a network that rounding changes more than this cannot be compared
Convert = Callable[[nn.Module], nn.Module]


@dataclass(frozen=True)
class Differences:
    """How far a network is from the original, and the multiply-adds per example before and after."""

    error: float
    relative: float
    gradient: float
    multiply_adds: tuple[int, int]


class References:
    """What a network computes on examples, and on other sizes that it takes, in both modes.

    Args:
        original: The network, to be run at will.
        examples: Its inputs.
    """

    def __init__(self, original: Throwaway, examples: Sequence[Batch]) -> None:
        self._original, self.name = original, type(original.model).__name__
        self.examples, self.given = list(examples), len(examples)
        self._runs: dict[tuple[int, bool, bool], Evaluation | None] = {}
        for others in alternatives(examples[0]):
            for other in others:
                self.examples.append(other)
                if self._run(len(self.examples) - 1, training=False):
                    break
                del self._runs[len(self.examples) - 1, False, False], self.examples[-1]

    def check(
        self, net: nn.Module, convert: Convert, tolerance: float | None, *, training: bool
    ) -> Differences:
        """How far outputs and gradients are from the original's; raise an error if that is too far.

        Args:
            net: The converted network.
            convert: Converts a copy of the original in float64, which it may change, in the same way.
            tolerance: The largest relative difference of outputs, the only thing judged then.
            training: Whether to compare in training, too; gradients are compared there if they can.
        """
        converted = Throwaway(net)
        pairs = [self._pair(converted, number, training=False) for number in range(len(self.examples))]
        found = [pair.judged(tolerance) for pair in pairs]
        gradient = self._in_training(converted, convert, tolerance) if training else None
        if gradient is None:
            gradient = self._in_evaluation(converted, tolerance)
        size = batch_size(self.examples[0])
        return Differences(
            max(each.error for each in found),
            max(each.outputs for each in found),
            gradient,
            (pairs[0].before.multiply_adds // size, pairs[0].after.multiply_adds // size),
        )

    def _in_evaluation(self, converted: Throwaway, tolerance: float | None) -> float:
        """How far gradients are apart in evaluation; 0 if the original runs without gradients only."""
        smallest = min(self.given, len(self.examples) - 1)
        try:
            known = self._run(smallest, training=False, backward=True)
        except ConversionError:
            known = None
        if known is None:
            return 0.0
        return self._pair(converted, smallest, training=False, backward=True).judged(tolerance).gradient

    def _in_training(self, converted: Throwaway, convert: Convert, tolerance: float | None) -> float | None:
        """How far gradients are apart in training, or None if the original takes no example there.

        Norms of a few values amplify rounding layer by layer, until deep networks that are equal seem to differ in
        float32. If they do, both are made and compared in float64, where what is due to rounding all but vanishes.
        """
        number = self._trained_on()
        if number is None:
            return None
        pair = self._pair(converted, number, training=True)
        try:
            return pair.judged(tolerance).gradient
        except DifferenceError as error:
            if tolerance is not None:
                raise
            try:
                return self._in_float64(number, convert, pair.apart.rounding)
            except UnclearError:
                raise
            except Exception:  # a network that has no float64, say: the difference found before stands
                raise error from None

    def _in_float64(self, number: int, convert: Convert, floor: Apart) -> float:
        """How far gradients of copies in float64 are apart in training, if a mere copy computes the same in float32."""
        example, known = self.examples[number], self._run(number, training=True)
        assert known is not None
        same = run(copied(self._original.fresh()), example, training=True)
        # Copies lose the hooks of parameters, for one.
        Sides(known, same, "of a copy", training=True).judged(None)
        wide = tree_map_only(Tensor, _in_float64, example)
        before = run(copied(self._original.fresh()).double(), wide, training=True)
        after = run(convert(copied(self._original.fresh()).double()), wide, training=True)
        try:
            return Sides(before, after, "in float64", training=True).judged(None, floor).gradient
        except DifferenceError as error:
            if difference(known.outputs, before.outputs)[1] <= TELLING:
                raise
            raise UnclearError(
                f"rounding to float32 changes {self.name} beyond recognition in training on {_sizes(example)}, so "
                "this cannot tell networks apart; a larger batch as the example may"
            ) from error

    def _trained_on(self) -> int | None:
        """The first example with finite outputs in training, smaller ones first; None if training fails on all."""
        numbers: list[int] = [*range(self.given, len(self.examples)), *range(self.given)]
        # Norms centre a batch of one on their shift: a gate that averages it would rectify rounding errors.
        numbers.sort(key=lambda number: batch_size(self.examples[number]) == 1)
        first: int | None = None
        for number in numbers:
            if found := self._run(number, training=True):
                if found.is_finite:
                    return number
                first = number if first is None else first
        return first

    def _pair(self, converted: Throwaway, number: int, *, training: bool, backward: bool = False) -> Sides:
        """What both networks compute on an example that the original takes."""
        before = self._run(number, training, backward)
        assert before is not None
        case = f"{'in training' if training else 'in evaluation'} on {_sizes(self.examples[number])}"
        if not before.is_finite and (training or number == 0):
            raise ConversionError(
                f"{self.name} has no finite output {case}, so there is nothing to compare; give an example on "
                "which it has"
            )
        same = unchanged(before.values, dict(converted.model.named_parameters()))
        try:
            after = self._once(converted, number, training, backward, same)
        except Exception as raised:
            raise ConversionError(
                f"the converted network fails {case}, where {self.name} does not: {raised}"
            ) from raised
        return Sides(before, after, case, training)

    def _run(self, number: int, training: bool, backward: bool = False) -> Evaluation | None:
        """What the network computes, or None if it does not take the example in this mode."""
        key = number, training, backward
        if key not in self._runs:
            try:
                self._runs[key] = self._once(self._original, *key)
            except Exception as error:
                if number < self.given and not training:
                    raise ConversionError(f"{self.name} does not take the example: {error}") from error
                self._runs[key] = None
        return self._runs[key]

    def _once(
        self, net: Throwaway, number: int, training: bool, backward: bool, wanted: Sequence[str] | None = None
    ) -> Evaluation:
        count = number == 0 and not training
        return run(
            *(net.fresh(), self.examples[number], training),
            backward=training or backward,
            count=count,
            wanted=wanted,
        )


def _in_float64(x: Tensor) -> Tensor:
    return x.double() if x.is_floating_point() else x


def _sizes(example: Batch) -> str:
    """The sizes of an example in words."""
    found = [x for x in tree_leaves(arguments(example)) if isinstance(x, Tensor)]
    return "an input of " + " and ".join("x".join(map(str, x.shape)) or "one number" for x in found[:3])
