"""A network to be converted: what it executes, which layers are chosen, what becomes of each."""

from __future__ import annotations

import functools
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from fnmatch import fnmatchcase

from torch import Tensor, nn
from torch.optim import Optimizer

from relucid._torch import ConvNd, tree_leaves, tree_map_only
from relucid.convert.check import References
from relucid.convert.conversion import Change, Conversion, Status
from relucid.convert.copies import Throwaway, copied
from relucid.convert.errors import ArgumentError, ConversionError, UnclearError
from relucid.convert.examples import Batch, arguments
from relucid.convert.surgery import Surgery
from relucid.inspect import examine
from relucid.inspect.execution import Node, Recording, record
from relucid.models import count_parameters
from relucid.printing import first_line

Layers = str | Sequence[str] | None


class Subject:
    """A network to be converted: what it executes and computes on the examples, and what becomes of its layers."""

    def __init__(self, model: nn.Module, example: Batch | list[Batch], *, training: bool = True) -> None:
        examples = example if isinstance(example, list) else [example]
        if not examples:
            raise ArgumentError("the list of examples is empty; give at least one")
        for each in examples:
            _check_example(each)
        self.model = model
        examples = [
            tree_map_only(Tensor, lambda x: x.clone() if x.is_inference() else x, e) for e in examples
        ]
        self._throwaway = Throwaway(model)
        self.references = References(self._throwaway, examples)
        self.modules = dict(model.named_modules())
        self.evaluated = [self._record(each) for each in examples]
        smaller = self.references.examples[len(examples) :][:1]
        self.trained = self._first_in_training((*smaller, *examples)) if training else []
        self.report = Report(self)

    @property
    def recordings(self) -> list[Recording]:
        """All recordings, those in evaluation first."""
        return [*self.evaluated, *self.trained]

    @property
    def nodes(self) -> list[Node]:
        """The operations of all examples in evaluation; those of one example in order."""
        return [node for recording in self.evaluated for node in recording.nodes]

    def _record(self, example: Batch) -> Recording:
        """What the network executes on an example in evaluation."""
        try:
            return record(self._throwaway.fresh(), example)
        except Exception as error:
            raise ConversionError(
                f"{type(self.model).__name__} does not take the example: {error}"
            ) from error

    def _first_in_training(self, examples: Iterable[Batch]) -> list[Recording]:
        """What the network executes in training, on the first example that it takes."""
        for example in examples:
            try:
                return [record(self._throwaway.fresh(), example, training=True)]
            except Exception:  # a batch norm refuses single values, say
                continue
        return []

    @functools.cached_property
    def counts(self) -> dict[str, int]:
        """How often each module is called in one recording, at most."""
        found: dict[str, int] = {}
        for recording in self.recordings:
            for name, calls in recording.calls_of.items():
                found[name] = max(found.get(name, 0), len(calls))
        return found

    def shared(self, name: str) -> bool:
        """Whether a module's parameters are used by another module, or read as tensors outside its own call."""
        own = self.modules[name].parameters(recurse=False)
        return name in self._read_elsewhere or any(self._holders[p] > 1 for p in own)

    @functools.cached_property
    def _holders(self) -> Counter[nn.Parameter]:
        """How many modules hold each parameter."""
        return Counter(p for module in self.modules.values() for p in module.parameters(recurse=False))

    @functools.cached_property
    def _read_elsewhere(self) -> set[str]:
        """The modules with a parameter that is used outside their call."""
        return {
            name.rpartition(".")[0]
            for recording in self.recordings
            for node in recording.nodes
            for before in node.inputs
            if before.op == "parameter"
            for name in before.parameters
            if not _within(node.module, name.rpartition(".")[0])
        }

    def finish(
        self,
        perform: Callable[[Surgery], None],
        *,
        tolerance: float | None = None,
        inplace: bool = False,
        optimizer: Optimizer | None = None,
        training: bool = True,
    ) -> Conversion:
        """The conversion that ``perform`` does; raise an error unless the result computes what the original does.

        Args:
            perform: Changes a network by surgery.
            tolerance: The largest relative difference of outputs.
            inplace: Whether to change the original, once a copy has passed the check.
            optimizer: The optimizer to take along.
            training: Whether to compare both in training, too.
        """

        def operated(model: nn.Module, optimizer: Optimizer | None = None) -> Surgery:
            surgery = Surgery(model, optimizer)
            perform(surgery)
            surgery.close()
            return surgery

        surgery = operated(copied(self.model))
        found = self.references.check(
            surgery.model, lambda copy: operated(copy).model, tolerance, training=training
        )
        sizes = count_parameters(self.model), count_parameters(surgery.model)
        if inplace:
            surgery = operated(self.model, optimizer)
        return Conversion(
            *(surgery.model, self.report.changes(), found.error, found.relative, found.gradient),
            *(sizes, found.multiply_adds, tuple(surgery.operations)),
        )


def working(names: Iterable[str], attempt: Callable[[list[str], dict[str, str]], Conversion]) -> Conversion:
    """The conversion of all ``names`` that work; one that breaks the network is found by bisection and left out.

    Args:
        names: Parts of the network, each of which may be converted or not.
        attempt: Converts some of them, and reports the others with the reason why they were left out.
    """
    every, dropped = list(names), dict[str, str]()

    def works(some: list[str]) -> bool:
        try:
            attempt(some, dropped)
        except ConversionError:
            return False
        return True

    while True:
        try:
            return attempt(every, dropped)
        except UnclearError:  # the example is to blame, not a part of the network
            raise
        except ConversionError as error:
            if not every or not works([]):
                raise
            # The shortest beginning of the list that does not work ends with a part that breaks the network.
            culprit = bisect_left(range(1, len(every)), True, key=lambda count: not works(every[:count]))
            dropped[every.pop(culprit)] = f"with it, {first_line(error)}"


def _within(name: str, owner: str) -> bool:
    return name == owner or name.startswith(f"{owner}.") or not owner


def _check_example(example: Batch) -> None:
    """Raise an error for an example on which every network would seem to compute the same."""
    found = [x for x in tree_leaves(arguments(example)) if isinstance(x, Tensor)]
    if found and not any(x.numel() for x in found):
        raise ArgumentError("the example has no elements; give a batch of at least one input")
    if any(bool((x.isnan() | x.isposinf()).any()) for x in found if x.is_floating_point()):
        # Negative infinity is what masks of attention are made of.
        raise ArgumentError("the example holds NaN or infinity; give one of finite numbers")


class Report:
    """What became of every rectification and every layer with weights."""

    def __init__(self, subject: Subject) -> None:
        self._subject = subject
        self._notes: dict[str, tuple[str, Status, str]] = {}
        self.weighted, self.rectified = "not changed", "not changed"
        self._used: dict[str, tuple[str, bool]] = {}  # by name: the kind, and whether it has weights
        for node in subject.nodes:
            if node.has_weight or node.kind is not None:
                self._used.setdefault(node.name, (self._kind(node), node.has_weight))

    def _kind(self, node: Node) -> str:
        module = self._subject.modules.get(node.name.partition("#")[0])
        return node.op if module is None else type(module).__name__

    def note(self, name: str, status: Status, reason: str, kind: str = "") -> None:
        """Report on a layer; one that is changed in one way and kept in another counts as changed."""
        order: tuple[Status, ...] = ("kept", "refused", "changed")
        known, before, reasons = self._notes.get(name, (kind, status, ""))
        if reason not in reasons:
            reasons = f"{reasons}; {reason}" if reasons and before == status else reason
        if order.index(status) >= order.index(before):
            self._notes[name] = known, status, reasons

    def forget(self, names: Iterable[str] | None = None) -> None:
        """Drop the notes on some layers, by default all, before another attempt."""
        for name in list(self._notes) if names is None else names:
            self._notes.pop(name, None)

    def changes(self) -> tuple[Change, ...]:
        """Everything that was reported; layers without a note are kept, those that did not run too."""
        found = []
        for name, (kind, is_weight) in self._used.items():
            otherwise = self.weighted if is_weight else self.rectified
            _, status, reason = self._notes.get(name, (kind, "kept", otherwise))
            found.append(Change(name, kind, status, reason))
        others = {name: note for name, note in self._notes.items() if name not in self._used}
        found += [Change(name, *note) for name, note in others.items()]
        for name, module in self._subject.modules.items():
            if (
                name
                and isinstance(module, nn.Linear | ConvNd)
                and name not in self._subject.counts.keys() | self._used
            ):
                found.append(Change(name, type(module).__name__, "kept", "not used on the example"))
        return tuple(found)


def select(
    names: Mapping[str, tuple[str, ...]], layers: Layers, suggested: Callable[[], list[str]] | None = None
) -> set[str]:
    """The keys of ``names`` with a name that is in ``layers`` or matches a glob in it.

    None selects all of them, "auto" those that ``suggested`` names; without it, "auto" is refused.
    """
    if layers is None:
        return set(names)
    known = {name for own in names.values() for name in own}
    if layers == "auto":
        if suggested is None:
            raise ArgumentError(
                "layers='auto' is for to_crelu with mode='expand', the only conversion that examine suggests; "
                "give names or globs, or leave layers out for all of them"
            )
        layers = [name for name in suggested() if name in known]
    chosen = set()
    for pattern in [layers] if isinstance(layers, str) else layers:
        found = {key for key, own in names.items() if any(fnmatchcase(name, pattern) for name in own)}
        if not found:
            there_are = ", ".join(sorted(known)) or "none"
            raise ArgumentError(
                f"no layer that can be converted is named {pattern!r}; there are: {there_are}"
            )
        chosen |= found
    return chosen


def suggestions(model: nn.Module, example: Batch | list[Batch]) -> list[str]:
    """The layers for which `relucid.inspect.examine` suggests `to_crelu`, the only conversion that it suggests."""
    found = examine(model, example[0] if isinstance(example, list) else example)
    return [name for suggestion in found.suggestions() for name in suggestion.layers]


def feeding(node: Node) -> tuple[str, ...]:
    """The names of the layers with weights that feed a node, with only other operations between."""
    names: dict[str, None] = {}
    stack: list[Node] = list(node.upstream)
    seen: set[Node] = set(stack)
    while stack:
        before = stack.pop()
        if before.has_weight:
            names[before.name.partition("#")[0]] = None
        elif before.kind is None:
            new = [n for n in before.upstream if n not in seen]
            seen.update(new)
            stack.extend(new)
    return tuple(names)
