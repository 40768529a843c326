"""A network to be converted: what it executes and computes on the examples, and what becomes of its layers."""

from __future__ import annotations

import functools
import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from relucid._torch import ConvNd, registries, storage_of, tree_leaves
from relucid.convert.conversion import Change, Status
from relucid.convert.copies import aliased, check_closures, copied, tensors_of
from relucid.convert.errors import ConversionError
from relucid.convert.examples import Example, alternatives, batch_size, examples_of, sizes_of
from relucid.convert.flow import is_within
from relucid.convert.tape import Tape, recorded
from relucid.inspect import examine
from relucid.inspect.execution import Arguments, Method, Node, Recording, function_of, running
from relucid.inspect.recorder import FACTORS, Recorder
from relucid.nn import GeometricLayer
from relucid.printing import first_line

REGISTRIES = ("_parameters", "_buffers", "_modules")
Layers = str | Sequence[str] | None
Note = tuple[str, Status, str]  # a layer, what became of it, and why


class RecordedModel:
    """A network with recordings and results of its runs on the examples, and on a smaller one of another size.

    Args:
        model: The network, which is not changed.
        example: Its input, in any form that `examples_of` takes.
        call: How it is used, if not through its forward.
        training: Whether it is run in training, too.
    """

    def __init__(
        self, model: nn.Module, example: Any, call: Method | None = None, *, training: bool = True
    ) -> None:
        self.model, self.call, self.name = model, call, type(model).__name__
        self.modules = dict(model.named_modules())
        self.examples = examples_of(model, example, call)
        self.unchecked: tuple[str, ...] = ()  #: what could not be compared, and why
        self.outputs: list[Tape] = []  #: in evaluation, of each example
        check_closures(model)
        self.copy = aliased(model)
        self.learned_on: Example | None = None
        self.trained: list[Recording] = []
        self.evaluated = [self._evaluated(one) for one in self.examples]
        self.small, self.small_tape, self.single = self._smaller()
        if training:
            self._learn()
        #: whether gradients are compared in evaluation, because the network cannot be run in training
        self.backward = training and self.learned_on is None
        if self.backward and self.small is not None:
            try:
                self.small_tape = recorded(self.copy, self.small, call, training=False, backward=True)
            except Exception:  # a network that runs without gradients only
                self.backward = False

    @property
    def recordings(self) -> list[Recording]:
        """All recordings, those in evaluation first."""
        return [*self.evaluated, *self.trained]

    @property
    def nodes(self) -> list[Node]:
        """The operations of all examples in evaluation; those of one example in order."""
        return [node for recording in self.evaluated for node in recording.nodes]

    @functools.cached_property
    def wide(self) -> RecordedModel | None:
        """A network in half precision in float64, where rounding hides nothing; None for any other, or without one."""
        if not any(p.dtype in (torch.float16, torch.bfloat16) for p in self.model.parameters()):
            return None
        try:
            return RecordedModel(
                copied(self.model).double(), [Arguments(*example) for example in self.examples], self.call
            )
        except Exception:  # its code may ask for half precision
            return None

    # Runs

    def _evaluated(self, example: Example) -> Recording:
        """What the network executes on an example in evaluation; what it returns is kept, too."""
        tape = Tape()
        try:
            recording = self._recorded(example, tape, training=False)
        except ConversionError:
            raise
        except Exception as error:
            raise ConversionError(f"{self.name} does not take the example: {error}") from error
        case = f"in evaluation on {sizes_of(example)}"
        if not tape.outputs and not tape.others:
            raise ConversionError(
                f"{self.name} returns nothing in which a number was found {case}, so there is nothing to compare"
            )
        if not tape.is_finite and not self.outputs:
            raise ConversionError(
                f"{self.name} has no finite output {case}, so there is nothing to compare; give an example on "
                "which it has"
            )
        self.outputs.append(tape)
        return recording

    def _recorded(self, example: Example, tape: Tape, *, training: bool) -> Recording:
        """Record a run; values that the network returns, writes into its arguments or keeps are its outputs."""
        values: list[Tensor] = []

        def use(model: nn.Module, *args: Any, **kwargs: Any) -> Any:
            given = {id(x) for x in tree_leaves((args, kwargs))} | {id(m) for m in model.modules()}
            answer = function_of(model, self.call)(*args, **kwargs)
            values.extend(tensors_of((answer, args, kwargs), given))
            tape.outputs = [x.detach().clone() for x in values]
            tape.others = [x for x in tree_leaves(answer) if isinstance(x, int | float | str)]
            for module in model.modules():
                values.extend(tensors_of(vars(module), given))
            return answer

        with running(self.copy, training=training, call=use) as (run, calls):
            nodes = run(Arguments(*example), None)
            assert run.recorder is not None
            self._check_written(run.recorder)
            ends = tuple(node for node in run.recorder.nodes_of(values) if node.data)
            # The calls of a TorchScript network cannot be seen.
            return Recording(nodes, list(calls), ends if calls or self.call else ())

    def _check_written(self, recorder: Recorder) -> None:
        """Refuse a network that writes to its own weights as it runs; the recorder has put them back."""
        for name, p in self.copy.named_parameters() if recorder.changed else ():
            if storage_of(p) in recorder.changed:
                raise ConversionError(
                    f"{self.name} writes to {name} in forward, so to run it would change it"
                )

    def _smaller(self) -> tuple[Example | None, Tape | None, list[tuple[Example, Tape]]]:
        """A smaller example of another size with what layers return on it, and others with the outputs alone."""
        known = []
        for number, series in enumerate(alternatives(self.examples[0])):
            for other in series:
                try:
                    options: Any = {"training": False, "backward": False, "layers": number == 0}
                    known.append((other, recorded(self.copy, other, self.call, **options)))
                    break
                except Exception:  # the network does not take this size
                    continue
        return (*known[0], known[1:]) if known else (None, None, [])

    def _learn(self) -> None:
        """Record a run in training, on the first example that the network takes there."""
        examples = [*([self.small] if self.small is not None else []), *self.examples]
        # Norms center a batch of one on their shift: a gate that averages it would rectify rounding errors.
        examples.sort(key=lambda example: batch_size(example) == 1)
        reason = ""
        for example in examples:
            tape = Tape()
            try:
                recording = self._recorded(example, tape, training=True)
            except ConversionError:
                raise
            except Exception as error:  # a batch norm refuses single values, a detector asks for targets
                reason = reason or first_line(error)
                continue
            self.trained = self.trained or [recording]
            if tape.is_finite:
                self.trained, self.learned_on = [recording], example
                return
        if self.trained:
            raise ConversionError(
                f"{self.name} has no finite output in training on {sizes_of(examples[0])}, so there is nothing to "
                "compare; give an example on which it has"
            )
        if reason:
            self.unchecked = (f"training: {self.name} takes no example there ({reason})",)

    def changes(self, notes: Iterable[Note], weighted: str, rectified: str) -> tuple[Change, ...]:
        """What became of every rectification and every layer with weights.

        One that is changed in one way and kept in another counts as changed.

        Args:
            notes: On some of them.
            weighted: Why all other layers that ran are kept.
            rectified: The same of rectifications.
        """
        order: tuple[Status, ...] = ("kept", "refused", "changed")
        known: dict[str, tuple[Status, str]] = {}
        for name, status, reason in notes:
            before, reasons = known.get(name, (status, ""))
            if reason not in reasons:
                reasons = f"{reasons}; {reason}" if reasons and before == status else reason
            if order.index(status) >= order.index(before):
                known[name] = status, reasons
        kinds: dict[str, str] = {}
        for node in (node for node in self.nodes if node.has_weight or node.kind is not None):
            kinds.setdefault(node.name, node.op)
            known.setdefault(node.name, ("kept", weighted if node.has_weight else rectified))
        for name, module in self.modules.items():
            if name and isinstance(module, nn.Linear | ConvNd) and name not in self.counts.keys() | kinds:
                known.setdefault(name, ("kept", "not used on the example"))
        for name in known:
            if (module := self.modules.get(name.partition("#")[0])) is not None:
                kinds[name] = type(module).__name__
        return tuple(
            Change(name, kinds.get(name, ""), *known[name]) for name in dict.fromkeys((*kinds, *known))
        )

    def multiply_adds(self, converted: nn.Module) -> tuple[int, int]:
        """Products of a weight and an input per example, in the network and in the converted one.

        A weight is used at as many places as before, so that a layer's products grow as its weight does.
        """
        before = after = 0.0
        sizes = [{n: _size(m) for n, m in net.named_modules()} for net in (self.model, converted)]
        for node in self.evaluated[0].nodes:
            products = _products(node)
            own, new = (size.get(node.name.partition("#")[0], 0) for size in sizes)
            before += products
            after += products * new / own if own and new else products
        count = batch_size(self.examples[0])
        return round(before) // count, round(after) // count

    @functools.cached_property
    def counts(self) -> dict[str, int]:
        """How often each module is called in one recording, at most."""
        counts: dict[str, int] = {}
        for recording in self.recordings:
            for name, calls in recording.calls_of.items():
                counts[name] = max(counts.get(name, 0), len(calls))
        return counts

    def shared(self, name: str) -> bool:
        """Whether a module's parameters are used by another module, or read as tensors outside its own call."""
        parameters = self.modules[name].parameters(recurse=False)
        return name in self._read_elsewhere or any(self._holders[p] > 1 for p in parameters)

    @functools.cached_property
    def held(self) -> set[Tensor]:
        """The tensors that modules have in other attributes, such as a list for a penalty."""
        modules = [*self.modules.values()]
        known = {
            id(x) for m in modules for x in (m, *vars(m).values()) if isinstance(x, nn.Module | Optimizer)
        }
        values = (v for m in modules for k, v in vars(m).items() if k not in REGISTRIES)
        return {tensor for value in values for tensor in tensors_of(value, known)}

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
            if not is_within(node.module, name.rpartition(".")[0])
        }


def _size(module: nn.Module) -> int:
    """The number of weights of a plain or geometric layer; 0 for any other module."""
    if isinstance(module, GeometricLayer):
        return module.weight_shape.numel()
    weight = registries(module)[0].get("weight") if isinstance(module, nn.Linear | ConvNd) else None
    return 0 if weight is None else weight.numel()


def _products(node: Node) -> int:
    """How many products of a weight and an input an operation computes."""
    if node.op not in ("convolution", "mm", "addmm"):
        return 0
    factor = node.call[1][FACTORS[node.op][1]]
    shape = factor.shape if isinstance(factor, Tensor) else node.inputs[-1].shape
    if node.op != "convolution":
        return math.prod(node.shape) * shape[0]
    places = node.upstream[0].shape if node.call[1][6] else node.shape
    return math.prod(places) * math.prod(shape[1:])


def select(
    names: Mapping[str, tuple[str, ...]], layers: Layers, suggested: Callable[[], list[str]] | None = None
) -> set[str]:
    """The keys of ``names`` with a name that is in ``layers`` or matches a glob in it.

    None selects all of them, "auto" those that ``suggested`` names; without it, "auto" is refused.
    """
    if layers is None:
        return set(names)
    known = {name for aliases in names.values() for name in aliases}
    if layers == "auto":
        if suggested is None:
            raise ConversionError(
                "layers='auto' is for to_crelu with mode='expand', the only conversion that examine suggests; "
                "give names or globs, or leave layers out for all of them"
            )
        layers = [name for name in suggested() if name in known]
    chosen = set()
    for pattern in [layers] if isinstance(layers, str) else layers:
        matching = {
            key for key, aliases in names.items() if any(fnmatchcase(name, pattern) for name in aliases)
        }
        if not matching:
            there_are = ", ".join(sorted(known)) or "none"
            raise ConversionError(
                f"no layer that can be converted is named {pattern!r}; there are: {there_are}"
            )
        chosen |= matching
    return chosen


def suggestions(network: RecordedModel) -> list[str]:
    """The layers for which `relucid.inspect.examine` suggests `to_crelu`, the only conversion that it suggests."""
    args, kwargs = network.examples[0]
    examination = examine(network.model, kwargs if kwargs else args)
    return [name for suggestion in examination.suggestions() for name in suggestion.layers]


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
