"""What every conversion shares: the network and its recordings, the choice of layers, the result."""

from __future__ import annotations

import functools
import inspect
import json
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Literal, ParamSpec

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from relucid import __version__
from relucid._torch import ConvNd, tree_leaves, tree_map_only
from relucid.convert.check import References
from relucid.convert.copies import Throwaway, copied
from relucid.convert.errors import ArgumentError, ConversionError, UnchangedWarning, UnclearError
from relucid.convert.examples import Batch, arguments
from relucid.convert.run import seeded
from relucid.convert.surgery import Operation, Surgery
from relucid.extras import needed
from relucid.inspect import examine
from relucid.inspect.execution import Node, Recording, record
from relucid.nn.geometric import _Geometric
from relucid.printing import Tabular

Layers = str | Sequence[str] | None
Status = Literal["changed", "kept", "refused"]
WEIGHTS, OPERATIONS = "weights.safetensors", "operations.json"
RECURRENT = nn.RNNBase | nn.RNNCellBase


@dataclass(frozen=True)
class Change:
    """What became of one layer."""

    name: str
    kind: str  #: the class of the layer, or the operation
    status: Status
    reason: str  #: what was done, or why nothing was done


@dataclass(frozen=True)
class Conversion(Tabular):
    """A converted network, and how far it is from the original on the example."""

    model: nn.Module  #: of the original's class
    changes: tuple[Change, ...]  #: one per rectified or weighted layer of the original
    max_error: float  #: the largest difference of an output
    relative_error: float  #: the same, divided by the largest output
    gradient_error: float  #: the same for the gradients of all parameters that both networks have
    parameters: tuple[int, int]  #: before and after
    multiply_adds: tuple[int, int]  #: per example, before and after
    operations: tuple[Operation, ...] = field(repr=False, default=())  #: since the original, for `load`

    @property
    def changed(self) -> bool:
        """Whether any layer is different."""
        return any(change.status == "changed" for change in self.changes)

    def rows(self) -> list[dict[str, str]]:
        """What became of each layer."""
        return [
            {"layer": c.name, "kind": c.kind, "status": c.status, "reason": c.reason} for c in self.changes
        ]

    def summary(self) -> str:
        """One line per layer, then the differences."""
        lines = [f"{c.status}: {c.name} ({c.kind}): {c.reason}" for c in self.changes]
        return "\n".join([*lines, *self.notes()])

    def notes(self) -> list[str]:
        """The sizes and the differences."""
        lines = [] if self.changed else ["no layer was changed: the network is a copy of the original"]
        for what, (before, after) in (
            ("parameters", self.parameters),
            ("multiply-adds per example", self.multiply_adds),
        ):
            lines.append(f"{what}: {before:,} -> {after:,}")
        lines.append(
            f"largest difference of the outputs: {self.max_error:.2g} ({self.relative_error:.2g} relative)"
        )
        return lines

    def to_dict(self) -> dict[str, Any]:
        """Everything but the network, as plain values."""
        return {
            "changes": [vars(change) for change in self.changes],
            "max_error": self.max_error,
            "relative_error": self.relative_error,
            "gradient_error": self.gradient_error,
            "parameters": list(self.parameters),
            "multiply_adds": list(self.multiply_adds),
        }

    def save(self, directory: str | Path) -> None:
        """Write the weights, and the operations that turn the original network into this one, into a directory.

        `load` repeats them on a new instance. The directory is created.
        """
        with needed("saving a conversion"):
            from safetensors.torch import save_model
        place = Path(directory)
        place.mkdir(parents=True, exist_ok=True)
        save_model(self.model, str(place / WEIGHTS))
        record = {
            "relucid": __version__,
            "network": _class_name(type(self.model)),
            "operations": list(self.operations),
        }
        (place / OPERATIONS).write_text(json.dumps(record, indent=1) + "\n")


def load(directory: str | Path, model: nn.Module) -> nn.Module:
    """Convert ``model``, a new instance of a saved network's class, as it was converted, and load its weights.

    The instance itself is changed and returned.

    Args:
        directory: What `Conversion.save` wrote.
        model: The network before the conversion, with any weights.
    """
    with needed("loading a conversion"):
        from safetensors.torch import load_model
    place = Path(directory)
    if not (place / OPERATIONS).is_file():
        raise ArgumentError(f"{place} has no {OPERATIONS}: give a directory that Conversion.save wrote")
    record = json.loads((place / OPERATIONS).read_text())
    if record["network"] != _class_name(type(model)):
        raise ArgumentError(
            f"{place} holds a converted {record['network']}, not a {_class_name(type(model))}: give an instance of that"
        )
    operated = copied(model)  # a failure must not leave a half-converted network
    try:
        Surgery(operated).repeat(record["operations"])
        load_model(operated, str(place / WEIGHTS))
    except Exception as error:
        raise ConversionError(
            f"{place} does not fit this {type(model).__name__}: {first_line(error)}; build it as it was built before"
        ) from error
    Surgery(model).repeat(record["operations"])
    load_model(model, str(place / WEIGHTS))
    return model


def _class_name(kind: type) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"


Arguments = ParamSpec("Arguments")


def conversion(convert: Callable[Arguments, Conversion]) -> Callable[Arguments, Conversion]:
    """``convert`` with the random state preserved and every error turned into one sentence.

    A call that does not fit its signature is a `TypeError`, as for any function.
    """
    signature = inspect.signature(convert)

    @functools.wraps(convert)
    def converted(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Conversion:
        try:
            given = signature.bind(*args, **kwargs).arguments
        except TypeError as error:
            takes = ", ".join(signature.parameters)
            raise TypeError(f"{convert.__name__}() {error}; its arguments are {takes}") from None
        for name in ("tolerance", "budget"):
            if (value := given.get(name)) is not None and not value >= 0:
                raise ArgumentError(f"{name}={value} must be 0 or more")
        if given.get("optimizer") is not None and not given.get("inplace"):
            raise ArgumentError(
                "an optimizer can only follow a network that is converted in place: inplace=True"
            )
        if (optimizer := given.get("optimizer")) is not None and isinstance(given["model"], nn.Module):
            trained = {id(p) for group in optimizer.param_groups for p in group["params"]}
            if not any(id(p) in trained for p in given["model"].parameters()):
                raise ArgumentError(
                    "the optimizer trains no parameter of this network; give the one that does"
                )
        with seeded(), torch.inference_mode(False):
            try:
                found = convert(*args, **kwargs)
            except (ConversionError, ArgumentError):
                raise
            except Exception as error:
                name, what = type(given["model"]).__name__, f"{type(error).__name__}: {error}"
                raise ConversionError(f"{name} cannot be converted{_where(error)}: {what}") from error
        if not found.changed and convert.__name__ != "fuse" and given.get("pairs") != 0:
            refused = [f": {c.reason} ({c.name})" for c in found.changes if c.status == "refused"]
            name = type(given["model"]).__name__
            warnings.warn(
                f"{convert.__name__} changes no layer of {name}{(*refused, '')[0]}",
                UnchangedWarning,
                stacklevel=2,
            )
        return found

    return converted


def _where(error: Exception) -> str:
    """The line of the user's code at which an error was raised, in words."""
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        if "/torch/" not in frame.filename and "/relucid/" not in frame.filename:
            return f" (line {frame.lineno} of {Path(frame.filename).name})"
    return ""


class Subject:
    """A network to be converted: what it executes and computes on the examples, and what becomes of its layers."""

    def __init__(self, model: nn.Module, example: Batch | list[Batch], *, training: bool = True) -> None:
        _check_network(model)
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
        sizes = size(self.model), size(surgery.model)
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
            low, high = 0, len(every)  # the first `low` work, the first `high` do not
            while high - low > 1:
                middle = (low + high) // 2
                low, high = (middle, high) if works(every[:middle]) else (low, middle)
            dropped[every.pop(high - 1)] = f"with it, {first_line(error)}"


def first_line(error: Exception) -> str:
    """The first line of an error's message."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


def _within(name: str, owner: str) -> bool:
    return name == owner or name.startswith(f"{owner}.") or not owner


def size(model: nn.Module) -> int:
    """The number of parameters."""
    return sum(p.numel() for p in model.parameters())


def _check_network(model: nn.Module) -> None:
    """Raise an error for what is not a network of modules that can be replaced."""
    name = type(model).__name__
    if not isinstance(model, nn.Module):
        raise ArgumentError(f"a network is an nn.Module, not a {name}")
    if isinstance(model, torch.jit.ScriptModule):
        raise ConversionError(f"{name} is compiled by TorchScript; convert the network that it was made from")
    if isinstance(getattr(model, "_orig_mod", None), nn.Module):
        raise ConversionError("the network is compiled; convert the original and compile the result")
    if isinstance(model, nn.Linear | ConvNd | _Geometric | RECURRENT | nn.MultiheadAttention):
        raise ConversionError(f"{name} is a single layer, not a network of layers; put it into nn.Sequential")


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

    def forget(self, *names: str) -> None:
        """Drop the notes on some layers, or all, before another attempt."""
        for name in names or list(self._notes):
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
    names: Mapping[str, tuple[str, ...]], layers: Layers, suggested: Callable[[], list[str]]
) -> set[str]:
    """The keys of ``names`` with a name that is in ``layers`` or matches a glob in it.

    None selects all of them, "auto" those that ``suggested`` names.
    """
    if layers is None:
        return set(names)
    known = {name for own in names.values() for name in own}
    if layers == "auto":
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


def suggestions(
    model: nn.Module, example: Batch | list[Batch], conversion: str, mode: str | None = None
) -> list[str]:
    """The layers for which `relucid.inspect.examine` suggests a conversion."""
    suggested = examine(model, example[0] if isinstance(example, list) else example).suggestions()
    return [name for s in suggested if (s.conversion, s.mode) == (conversion, mode) for name in s.layers]


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
