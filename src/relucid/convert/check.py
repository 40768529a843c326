"""The check that guards every conversion: outputs, gradients and statistics, in both modes, on several sizes."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from relucid._torch import tree_leaves, tree_map_only
from relucid.convert.copies import Throwaway, copied, in_float64, rounded
from relucid.convert.difference import LOOSER, ROUNDINGS, Apart, DifferenceError, Pair
from relucid.convert.errors import ConversionError, UnclearError
from relucid.convert.examples import Batch, arguments, batch_size, other_examples
from relucid.convert.run import Run, run

TELLING = 0.5  # an input that would allow larger relative differences cannot tell networks apart


@dataclass(frozen=True)
class Differences:
    """How far a network is from the original, and the multiply-adds on the example before and after."""

    error: float
    relative: float
    gradient: float
    multiply_adds: tuple[int, int]


class References:
    """What a network computes on an example, and on other sizes that it takes, in both modes."""

    def __init__(self, model: nn.Module, examples: Sequence[Batch], copy: nn.Module | None = None) -> None:
        """``copy`` is a copy of the network that may be run at will; one is made by default."""
        copy = copied(model, share=True) if copy is None else copy
        self.model, self.name, self.given = model, type(model).__name__, len(examples)
        self.examples = [*examples, *other_examples(copy.eval(), examples[0])]
        self._runs: dict[tuple[int, bool], Run | None] = {}
        self._original = Throwaway(model)

    def check(
        self, net: nn.Module, tolerance: float | None, *, training: bool, rounds: bool = True
    ) -> Differences:
        """How far outputs and gradients are from the original's; raise an error if that is too far.

        Args:
            net: The converted network.
            tolerance: The largest relative difference of outputs, the only thing judged then.
            training: Whether to compare in training, too.
            rounds: Whether the conversion has computed new weights, which are rounded; else it has moved old ones.
        """
        found: list[Apart] = []
        counts: list[tuple[int, int]] = []
        self._converted = Throwaway(net)
        for number in range(len(self.examples)):
            if pair := self._pair(number, training=False):
                counts.append((pair.before.multiply_adds, pair.after.multiply_adds))
                found.append(pair.judged(tolerance))
        if training:
            found.append(Apart(gradient=self._in_training(net, tolerance, rounds)))
        return Differences(
            max(each.error for each in found),
            max(each.outputs for each in found),
            max(each.gradient for each in found),
            counts[0],
        )

    def _in_training(self, net: nn.Module, tolerance: float | None, rounds: bool) -> float:
        """How far gradients are apart in training, on the first example that can tell."""
        unclear: DifferenceError | None = None
        for number in self._trained_on():
            if (pair := self._pair(number, training=True)) is None:
                continue
            try:
                return pair.judged(tolerance).gradient
            except DifferenceError as error:
                if tolerance is not None:
                    raise
                gradient = self._but_for_rounding(net, number, error, rounds)
                if gradient is not None:
                    return gradient
                unclear = unclear or error
        if unclear is not None:
            raise UnclearError(
                f"{unclear}. Rounding its weights changes {self.name} as much there, so this cannot tell networks "
                "apart; a larger batch as the example may"
            ) from unclear
        return 0.0

    def _but_for_rounding(
        self, net: nn.Module, number: int, error: DifferenceError, rounds: bool
    ) -> float | None:
        """How far gradients are apart in float64; raise ``error`` if rounding does not explain the difference.

        Norms of a few values amplify rounding layer by layer, until deep networks that are equal seem to differ. In
        float64 they agree. Or the weights of one are rounded: then they may be as far apart as the original is from
        itself with rounded weights; otherwise, as much less as float64 is finer. None if rounding changes the original
        beyond recognition.
        """
        try:
            example = tree_map_only(Tensor, _in_float64, self.examples[number])
            before, after = (run(in_float64(each), example, training=True) for each in (self.model, net))
            pair = Pair(before, after, "in float64", training=True)
            if pair.agrees:
                return pair.apart.gradient
            noisy = run(rounded(self.model), example, training=True)
            # Layers that the conversion changed are not compared, so they must not be here.
            noisy = replace(noisy, values=after.values, trained=after.trained)
            floor = Pair(before, noisy, "", training=True).apart
            if not rounds:
                floor = floor.times(LOOSER * torch.finfo(torch.float64).eps / _precision(self.model))
            if not ROUNDINGS * max(floor.outputs, floor.gradient, floor.buffers) <= TELLING:
                return None
            return pair.judged(None, floor).gradient
        except Exception:  # the difference found before stands
            raise error from None

    def _pair(self, number: int, *, training: bool) -> Pair | None:
        """What both networks compute; None if the original does not take the example in this mode."""
        before = self._run(number, training)
        if before is None:
            return None
        case = f"{'in training' if training else 'in evaluation'} on {_sizes(self.examples[number])}"
        if not before.is_finite and (training or number == 0):
            raise ConversionError(
                f"{self.name} has no finite output {case}, so there is nothing to compare; give an example on "
                "which it has"
            )
        try:
            after = self._once(self._converted, number, training)
        except Exception as raised:
            raise ConversionError(
                f"the converted network fails {case}, where {self.name} does not: {raised}"
            ) from raised
        return Pair(before, after, case, training)

    def _run(self, number: int, training: bool) -> Run | None:
        """What the network computes, or None if it does not take the example in this mode."""
        if (number, training) not in self._runs:
            try:
                found = self._once(self._original, number, training)
            except Exception as error:
                if number == 0 and not training:
                    raise ConversionError(f"{self.name} does not take the example: {error}") from error
                found = None
            self._runs[number, training] = found
        return self._runs[number, training]

    def _once(self, net: Throwaway, number: int, training: bool) -> Run:
        """Run a network; in evaluation, gradients are computed on one of the smaller examples only."""
        backward = training or number == min(self.given, len(self.examples) - 1)
        count = number == 0 and not training
        return run(net.fresh(), self.examples[number], training, backward=backward, count=count)

    def _trained_on(self) -> Iterator[int]:
        """Yield the examples with finite outputs in training, smaller ones first; the user's if there are none."""
        numbers = [*range(self.given, len(self.examples)), *range(self.given)]
        # Norms centre a batch of one on their shift: a gate that averages it would rectify rounding errors.
        numbers.sort(key=lambda number: batch_size(self.examples[number]) == 1)
        none = True
        for number in numbers:
            if (found := self._run(number, True)) is not None and found.is_finite:
                none = False
                yield number
        if none:
            yield 0


def _precision(model: nn.Module) -> float:
    """The relative precision of the parameters, of the coarsest ones if they differ."""
    found = [torch.finfo(p.dtype).eps for p in model.parameters() if p.is_floating_point()]
    return max(found, default=torch.finfo(torch.float32).eps)


def _in_float64(x: Tensor) -> Tensor:
    return x.double() if x.is_floating_point() else x


def _sizes(example: Batch) -> str:
    """The sizes of an example in words."""
    found = [x for x in tree_leaves(arguments(example)) if isinstance(x, Tensor)]
    return "an input of " + " and ".join("x".join(map(str, x.shape)) or "one number" for x in found[:3])
