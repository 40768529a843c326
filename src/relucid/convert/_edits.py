"""Changes to the modules of a network, with the optimizers that go with it; all of them can be undone."""

from __future__ import annotations

import gc
import signal
import threading
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from relucid._torch import copy_hooks, registries
from relucid.convert.errors import ConversionError

Carry = Callable[[Tensor], Tensor]


class Edits:
    """A network that is being changed in place.

    As a context manager it is atomic: an exception that leaves the block puts the network and the optimizers back.
    Modules and parameters stay the same objects, so that whatever refers to them (optimizers, lists, hooks, tied
    layers) goes on with the new values. The one exception: a parameter that an optimizer has stepped which was not
    given. Fused kernels would go past the end of its state, so such a parameter is replaced by a new one.

    Args:
        model: The network.
        optimizers: Those that go along: their state is kept for every entry that stays. Optimizers that the modules
            have as attributes do so, too.
        others: Whether optimizers that were not given may have stepped the parameters, as in a user's own network.

    >>> net = nn.Sequential(nn.Linear(2, 3))
    >>> weight = net[0].weight
    >>> with Edits(net) as edits:
    ...     edits.parameter("0.weight", torch.ones(3, 4))
    >>> net[0].weight is weight, tuple(weight.shape)
    (True, (3, 4))
    """

    def __init__(
        self, model: nn.Module, optimizers: Iterable[Optimizer] = (), *, others: bool = False
    ) -> None:
        self.model = model
        inside = [v for module in model.modules() for v in vars(module).values() if isinstance(v, Optimizer)]
        self.optimizers = list(dict.fromkeys([*optimizers, *inside]))
        self._names = {
            p: n for g in self._named() for p, n in zip(g["params"], g["param_names"], strict=True)
        }
        self._foreign = _stepped_by_others(model, self.optimizers) if others else {}
        self._replaced: dict[str, str] = {}  # parameters that are new objects: the class of their optimizer
        self._undo: list[Callable[[], object]] = []
        self._touched: set[nn.Module] = set()

    # Atomic

    def __enter__(self) -> Edits:
        for optimizer in self.optimizers:
            check_groups(optimizer)
        for optimizer in self.optimizers:
            groups = [(group, dict(group), list(group["params"])) for group in optimizer.param_groups]
            self._undo.append(partial(_restore, optimizer, groups, dict(optimizer.state)))
        return self

    def __exit__(self, kind: type[BaseException] | None, error: object, trace: object) -> None:
        if kind is None:
            try:
                self._finish()
            except BaseException:
                self.undo()
                raise
        else:
            self.undo()

    def undo(self) -> None:
        """Put everything back, the last change first."""
        while self._undo:
            self._undo[-1]()  # sets what was there, so doing it twice does no harm
            self._undo.pop()

    def _finish(self) -> None:
        """Name the parameters in groups that name them; tell which parameters are new objects."""
        new = {p: name for name, p in self.model.named_parameters()}
        for group in self._named():
            group["param_names"] = [self._names.get(p) or new[p] for p in group["params"]]
        if self._replaced:
            (name, kind), count = next(iter(self._replaced.items())), len(self._replaced)
            which = name if count == 1 else f"{name} and {count - 1} more parameters"
            warnings.warn(
                f"{kind} has trained {which} and was not given: they are new objects now, which it does not train; "
                "pass every optimizer of the network as optimizer=, or make it again",
                stacklevel=2,
            )

    # Changes of modules

    def touch(self, module: nn.Module) -> None:
        """Keep what a module is and has, for it to be put back."""
        if module not in self._touched:
            self._touched.add(module)
            stored = [dict(registry) for registry in registries(module)]
            self._undo.append(
                partial(_put_back, module, type(module), vars(module), dict(vars(module)), stored)
            )

    def set(self, place: nn.Module, key: str, value: Any) -> None:
        """Set an attribute: a module, a parameter, a buffer, a plain one, or the class."""
        self.touch(place)
        setattr(place, key, value)

    def turn(self, name: str, new: nn.Module) -> None:
        """Let a module become what ``new`` is: of its class, with its parts, the old mode and hooks.

        It stays the same object, which lists, dictionaries and other modules may refer to.
        """
        module = self.model.get_submodule(name)
        copy_hooks(module, new.train(module.training))
        old = list(module.parameters())
        kept, known = {id(p) for p in new.parameters()}, {id(p) for p in old}
        self.set(module, "__class__", type(new))
        object.__setattr__(module, "__dict__", vars(new))
        self.follow(
            [p for p in old if id(p) not in kept], [p for p in new.parameters() if id(p) not in known]
        )

    # Changes of tensors

    def parameter(self, name: str, value: Tensor, carry: Carry | None = None) -> None:
        """Give a parameter or buffer another value, of any shape; None turns gradients and state to nothing.

        Args:
            name: Its full name.
            value: The new value.
            carry: What turns a gradient or an optimizer's state for the old value into that for the new one; by
                default they start again.
        """
        path, _, leaf = name.rpartition(".")
        place = self.model.get_submodule(path)
        old = getattr(place, leaf)
        if not isinstance(old, nn.Parameter):
            self.set(place, leaf, value.to(old))
        elif id(old) in self._foreign:
            self._replace(name, old, value.to(old), carry)
        else:
            self._rewrite(old, value.to(old), carry)

    def _rewrite(self, parameter: nn.Parameter, value: Tensor, carry: Carry | None) -> None:
        """Give a parameter other numbers, in the same object."""
        data, gradient = parameter.data, parameter.grad
        for optimizer in self.optimizers:
            if state := optimizer.state.get(parameter):
                new = _carried(optimizer, parameter, state, carry)
                self._undo.append(partial(optimizer.state.__setitem__, parameter, state))
                optimizer.state[parameter] = new
        self._undo.append(partial(_set_data, parameter, data, gradient))
        _set_data(parameter, value, None if carry is None or gradient is None else carry(gradient))

    def _replace(self, name: str, old: nn.Parameter, value: Tensor, carry: Carry | None) -> None:
        """Put a new parameter in place of one, wherever the network has it."""
        new = nn.Parameter(value, old.requires_grad)
        vars(new).update(vars(old))
        if carry is not None and old.grad is not None:
            new.grad = carry(old.grad)
        for module in self.model.modules():
            for leaf, parameter in list(registries(module)[0].items()):
                if parameter is old:
                    self.set(module, leaf, new)
        for optimizer in self.optimizers:
            if state := optimizer.state.get(old):
                optimizer.state[new] = _carried(optimizer, old, state, carry)
        self._replaced[name] = self._foreign[id(old)]
        self.follow([old], [new])

    @torch.no_grad()
    def write(self, tensor: Tensor, index: Any, value: Tensor | float) -> None:
        """Write entries of a tensor, such as a parameter, its gradient or an optimizer's state for it."""
        numbers = tensor.detach()
        self._undo.append(partial(numbers.__setitem__, index, numbers[index].clone()))
        numbers[index] = value.to(numbers) if isinstance(value, Tensor) else value

    def add(
        self, module: nn.Module, key: str, parameter: nn.Parameter, beside: Sequence[nn.Parameter]
    ) -> None:
        """Give a module a new parameter, which optimizers train after those ``beside`` it, in their group."""
        self.set(module, key, parameter)
        self.follow(list(beside), [parameter], drop=False)

    # Optimizers

    def follow(self, old: list[nn.Parameter], new: list[nn.Parameter], *, drop: bool = True) -> None:
        """Put new parameters into the optimizers' groups in place of the old ones, or after the first of those."""
        gone = {id(p) for p in old}
        for optimizer in self.optimizers:
            add = new
            # Of several groups the one with the least decay: it harms latitudes and coefficients.
            for group in sorted(optimizer.param_groups, key=lambda group: group.get("weight_decay", 0)):
                params = group["params"]
                at = next((i for i, p in enumerate(params) if id(p) in gone), None)
                if at is None:
                    continue
                _check_fits(optimizer, add)
                rest = [p for p in params if not drop or id(p) not in gone]
                at += not drop
                rest[at:at] = add
                params[:] = rest
                if drop:
                    for p in (p for p in old if p in optimizer.state):
                        del optimizer.state[p]
                _start(optimizer, group, add)
                add = []

    def _named(self) -> list[dict[str, Any]]:
        """The groups of optimizers that were given named parameters."""
        return [g for o in self.optimizers for g in o.param_groups if "param_names" in g]


def optimizers_of(given: Any) -> list[Any]:
    """One or several optimizers, or none, as a list."""
    if given is None:
        return []
    return list(given) if isinstance(given, list | tuple) else [given]


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Put Ctrl-C off until the end of the block, so that nothing stays half done.

    Python interrupts the main thread alone, by a handler that this thread alone can set.
    """
    handler = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or handler is None:
        yield
        return
    late: list[Any] = []
    signal.signal(signal.SIGINT, lambda *given: late.append(given))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)
        if late and callable(handler):
            handler(*late[-1])


def _put_back(
    module: nn.Module, cls: type, attributes: Any, values: dict[str, Any], stored: list[dict[str, Any]]
) -> None:
    """Make a module what it was: its class, its attributes, and what it has registered, in the same order."""
    attributes.clear()
    attributes.update(values)
    object.__setattr__(module, "__dict__", attributes)
    object.__setattr__(module, "__class__", cls)
    for registry, before in zip(registries(module), stored, strict=True):
        registry.clear()
        registry.update(before)


def _set_data(parameter: nn.Parameter, value: Tensor, gradient: Tensor | None) -> None:
    """Put a tensor of any shape into a parameter."""
    parameter.grad = None
    if parameter.shape != value.shape:
        # A graph that is still alive expects gradients of the old shape; another dtype lets torch forget it.
        other = torch.float64 if value.dtype != torch.float64 else torch.float32
        parameter.data = value.new_empty(0, dtype=other)
    parameter.data = value
    parameter.grad = gradient


def _carried(
    optimizer: Optimizer, parameter: nn.Parameter, state: dict[str, Any], carry: Carry | None
) -> dict[str, Any]:
    """An optimizer's state with what stays of its tensors; empty if it has no entry per weight."""
    if carry is None:
        return {}
    if any(isinstance(v, Tensor) and v.dim() and v.shape != parameter.shape for v in state.values()):
        kind = type(optimizer).__name__
        warnings.warn(
            f"{kind} has no state per entry of a weight: for changed weights it starts again", stacklevel=2
        )
        return {}
    return {k: carry(v) if isinstance(v, Tensor) and v.dim() else v for k, v in state.items()}


def check_groups(optimizer: Any) -> None:
    """Refuse an optimizer whose groups cannot be changed, or are copies of those that are trained, as of a wrapper."""
    first, again = optimizer.param_groups, optimizer.param_groups
    lists = isinstance(first, list | tuple) and all(isinstance(group.get("params"), list) for group in first)
    if not lists or any(a["params"] is not b["params"] for a, b in zip(first, again, strict=True)):
        raise ConversionError(
            f"the groups of {type(optimizer).__name__} are copies, or hold no lists: what it trains cannot be changed; "
            "give the torch.optim.Optimizer inside"
        )


def _check_fits(optimizer: Optimizer, new: Sequence[nn.Parameter]) -> None:
    """Refuse vectors for an optimizer of matrices."""
    if type(optimizer).__name__ == "Muon" and any(p.dim() != 2 for p in new):
        raise ConversionError(
            "Muon trains matrices alone, and the conversion makes vectors of some weights: convert first, then give "
            "the matrices of the result to a new Muon and the rest to another optimizer"
        )


def _start(optimizer: Optimizer, group: dict[str, Any], new: Iterable[nn.Parameter]) -> None:
    """Give new parameters the state without which a fused optimizer cannot step them beside others."""
    if not group.get("fused") or not isinstance(optimizer, torch.optim.SGD) or not group.get("momentum"):
        return
    if any("momentum_buffer" in optimizer.state.get(p, {}) for p in group["params"]):
        for p in new:
            optimizer.state[p].setdefault("momentum_buffer", torch.zeros_like(p))


def _stepped_by_others(model: nn.Module, given: Sequence[Optimizer]) -> dict[int, str]:
    """The parameters that an optimizer has stepped which was not given, by identity: the optimizer's class."""
    parameters = {id(p) for p in model.parameters()}
    known = {id(optimizer.state) for optimizer in given}  # wrappers show the state of the optimizer inside
    stepped: dict[int, str] = {}
    for thing in gc.get_objects():
        if issubclass(type(thing), Optimizer) and id(state := getattr(thing, "state", {})) not in known:
            stepped.update({id(p): type(thing).__name__ for p in state if id(p) in parameters and state[p]})
    return stepped


def _restore(optimizer: Optimizer, groups: list[Any], state: dict[Any, Any]) -> None:
    for group, values, params in groups:
        group.clear()
        group.update(values)
        group["params"][:] = params
    optimizer.state.clear()
    optimizer.state.update(state)
