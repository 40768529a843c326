"""Run a network undisturbed, and record the operations that it executes and the calls of its modules."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from relucid._torch import compiler_is_imported, tree_leaves, tree_map
from relucid.inspect.recorder import Node as Node
from relucid.inspect.recorder import Recorder
from relucid.inspect.recorder import tensors_in as tensors_in
from relucid.nn import GeometricLayer
from relucid.nn.tracing import uncached_autocast
from relucid.randomness import no_fast_path


@dataclass(frozen=True)
class Arguments:
    """The arguments of a call, exactly as they were given."""

    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, batch: Given) -> Arguments:
        """A batch as the arguments of a call: a tensor, positional arguments, or any mapping, such as a tokenizer's."""
        if isinstance(batch, Arguments):
            return batch
        if isinstance(batch, Mapping):
            return cls((), dict(batch))
        return cls(tuple(batch) if isinstance(batch, tuple | list) else (batch,))

    def map(self, change: Callable[[Any], Any]) -> Arguments:
        """The same arguments with every leaf changed."""
        return Arguments(*tree_map(change, (self.args, dict(self.kwargs))))

    def copied(self) -> Arguments:
        """The same arguments with tensors of their own, apart from what those here are computed from."""
        return self.map(lambda leaf: leaf.detach().clone() if isinstance(leaf, Tensor) else leaf)

    @property
    def leaves(self) -> list[Any]:
        """All values in them, however nested."""
        return tree_leaves((self.args, dict(self.kwargs)))


Given = Tensor | tuple[Any, ...] | list[Any] | Mapping[str, Any] | Arguments
# How a network is used, if not through its forward: a method's name, or a function of the network and the inputs.
Method = str | Callable[..., Any]


@dataclass(frozen=True, eq=False)
class Call:
    """A call of a module: the values that enter and leave it."""

    module: str
    inputs: tuple[Node, ...]
    outputs: tuple[Node, ...]


@dataclass(frozen=True, eq=False)
class Recording:
    """Everything that a network executes on one batch, in order."""

    nodes: list[Node]
    calls: list[Call]  #: of all modules, inner ones before those that contain them
    outputs: tuple[Node, ...]  #: values that the network returns

    @cached_property
    def calls_of(self) -> dict[str, list[Call]]:
        """The calls of each module, by its name."""
        calls: dict[str, list[Call]] = {}
        for call in self.calls:
            calls.setdefault(call.module, []).append(call)
        return calls

    @cached_property
    def readers(self) -> dict[Node, list[Node]]:
        """The operations that read each value."""
        readers: dict[Node, list[Node]] = {}
        for node in self.nodes:
            for value in node.upstream:
                readers.setdefault(value, []).append(node)
        return readers


def record(
    model: nn.Module, batch: Given, *, training: bool = False, call: Method | None = None
) -> Recording:
    """Run ``model`` on ``batch`` in one mode; return its operations, the calls of its modules, and its outputs.

    The network runs without gradients; its modes, buffers and hooks and the random state are restored afterwards.

    >>> recording = record(nn.Sequential(nn.Linear(2, 3), nn.ReLU()), torch.zeros(1, 2))
    >>> [(n.op, n.name) for n in recording.nodes]
    [('t', ''), ('addmm', '0'), ('relu', '1')]
    >>> [(call.module, [n.op for n in call.outputs]) for call in recording.calls]
    [('0', ['addmm']), ('1', ['relu']), ('', ['relu'])]
    """
    with running(model, training=training, call=call) as (run, calls):
        nodes = run(batch)
        # The calls of a TorchScript network cannot be seen.
        return Recording(nodes, calls, run.outputs if calls else ())


class Run:
    """A function that runs a prepared network, records its operations, and shows values as they pass."""

    def __init__(self, model: nn.Module, call: Method | None) -> None:
        self.model, self.call = model, call
        self.path = [""]  # of the running modules, innermost last
        self.calls: list[Call] = []
        self.outputs: tuple[Node, ...] = ()  #: values that the last run returned
        self.recorder: Recorder | None = None

    def __call__(
        self,
        batch: Given,
        visit: Callable[[Node, Tensor], None] | None = None,
        observe: Callable[[Node, Tensor, Tensor], None] | None = None,
    ) -> list[Node]:
        """Run once on a copy of the batch, which a network may overwrite; return the executed operations in order.

        Args:
            batch: The arguments.
            visit: Called with every product with a weight and what the weight is multiplied with, before it runs.
            observe: Called with every activation, its value and its output.
        """
        self.calls.clear()
        given = Arguments.of(batch).copied()
        self.recorder = recorder = Recorder(self.model, given, visit, self.path, observe)
        try:
            with recorder:
                returned = called(self.model, given, self.call)
        finally:
            recorder.put_back()
        self.outputs = recorder.nodes_of(returned)
        return recorder.executed

    def follow(self, name: str, module: nn.Module) -> Iterator[RemovableHandle]:
        """Keep the path up to date while a module runs, and note its calls."""

        def leave(_: nn.Module, args: Any, kwargs: Any, output: Any) -> None:
            self.path.pop()
            if self.recorder is not None:
                nodes_of = self.recorder.nodes_of
                self.calls.append(Call(name, nodes_of((args, kwargs)), nodes_of(output)))

        yield module.register_forward_pre_hook(lambda *_: self.path.append(name))
        yield module.register_forward_hook(leave, with_kwargs=True)


@contextmanager
def running(
    model: nn.Module, *, training: bool = False, call: Method | None = None
) -> Iterator[tuple[Run, list[Call]]]:
    """Prepare a model once; yield a function that runs it on a batch, and its last run's calls of modules."""
    run = Run(model, call)
    with ExitStack() as stack:
        stack.enter_context(_undisturbed(model, training))
        for name, module in model.named_modules():
            if not isinstance(module, torch.jit.ScriptModule):
                for handle in run.follow(name, module):
                    stack.callback(handle.remove)
        yield run, run.calls


def called(model: nn.Module, batch: Given, call: Method | None = None) -> Any:
    """What a model returns for a tensor, positional or keyword arguments; its weights are computed anew."""
    for module in model.modules():
        if isinstance(module, GeometricLayer):
            module.forget_weight()
    given = Arguments.of(batch)
    return function_of(model, call)(*given.args, **given.kwargs)


def function_of(model: nn.Module, call: Method | None) -> Callable[..., Any]:
    """The function of the inputs that a network is used by: itself, one of its methods, or one that takes it first.

    >>> function_of(nn.Linear(2, 3), lambda net, x: net(x).relu())(torch.zeros(1, 2)).shape
    torch.Size([1, 3])
    """
    name = type(model).__name__
    if isinstance(call, str):
        method: Callable[..., Any] | None = getattr(model, call, None)
        if not callable(method):
            raise ValueError(
                f"{name} has no method {call!r}: call= is a method's name or a function of the network"
            )
        return method
    if call is not None:
        return partial(call, model)
    if getattr(type(model), "forward", None) is nn.Module.forward and "forward" not in vars(model):
        raise TypeError(
            f"{name} has no forward: say by call= how it is used, a method's name or `lambda network, x: ...`"
        )
    return model


@contextmanager
def _undisturbed(model: nn.Module, training: bool) -> Iterator[None]:
    """Put ``model`` into one mode; afterwards restore its modes and buffers and the random state."""
    buffers = [
        (module, name, buffer, buffer.clone())
        for module in model.modules()
        for name, buffer in module.named_buffers(recurse=False)
    ]
    devices = {p.device.index or 0 for p in model.parameters() if p.device.type == "cuda"}
    try:
        # A compiled network is one opaque operation, and so is the fast path of transformer layers.
        eager = torch.compiler.set_stance("force_eager") if compiler_is_imported() else nullcontext()
        # A weight from autocast's cache would seem to come from nowhere.
        fresh = uncached_autocast(next((p.device.type for p in model.parameters()), "cpu"))
        with (
            in_mode(model, training),
            torch.random.fork_rng(devices),
            torch.no_grad(),
            eager,
            fresh,
            no_fast_path(),
        ):
            yield
    finally:
        with torch.no_grad():
            for module, name, buffer, before in buffers:
                if not torch.equal(buffer, before):
                    buffer.copy_(before)
                if getattr(module, name) is not buffer:  # the network has put another tensor there
                    setattr(module, name, buffer)


@contextmanager
def in_mode(model: nn.Module, training: bool) -> Iterator[None]:
    """Put a network into one mode, and back; in training already, modules put into evaluation by hand stay there."""
    modes = {module: module.training for module in model.modules()}
    try:
        if not training:
            model.eval()
        elif not model.training:
            model.train()
        yield
    finally:
        for module, mode in modes.items():
            module.training = mode
