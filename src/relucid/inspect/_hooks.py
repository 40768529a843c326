"""Hooks on a user's network and optimizer that come off without a trace, and the inputs that they have seen."""

from __future__ import annotations

import math
import weakref
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import torch
from torch import nn
from torch.nn.parallel import DataParallel, DistributedDataParallel
from torch.utils.hooks import RemovableHandle

from relucid._torch import is_compiled, is_functorch_wrapped_tensor
from relucid.inspect.batches import inputs_in
from relucid.inspect.execution import Arguments
from relucid.inspect.recorder import tensors_in

INPUTS = 256  # so many of the network's latest inputs are kept
NONE: Mapping[str, Any] = MappingProxyType({})


class Hook:
    """A hook that calls a method; the network is pickled and copied with it, but without the method's owner.

    Args:
        method: The bound method of an object that somebody else keeps.
        given: Its first arguments; those of the hook follow.
    """

    def __init__(self, method: Callable[..., None] | None = None, *given: Any) -> None:
        self.method = None if method is None else weakref.WeakMethod(method)
        self.given = given

    def __reduce__(self) -> tuple[type[Hook], tuple[()]]:
        return Hook, ()

    def __call__(self, *args: Any) -> None:
        if torch.compiler.is_compiling() or self.method is None:
            return
        method = self.method()
        if method is not None:
            method(*self.given, *args)


class LatestInputs:
    """The latest inputs of every part of a network that is called from outside.

    Args:
        model: The network.
        whole: The same, with what `torch.compile` puts around it, which calls no hooks of modules inside.
    """

    def __init__(self, model: nn.Module, whole: nn.Module) -> None:
        self.model, self.whole = model, whole
        self.kept: dict[str, list[Arguments]] = {}  #: by the name of the part
        self.window: float = math.inf  #: so many steps hold enough inputs; unknown before the first
        self.error: Exception | None = None  #: why inputs could not be kept
        self._named: dict[str, nn.Module] = {}
        self._handles: list[RemovableHandle] = []
        self._depth = self._count = 0

    def start(self) -> None:
        """Put hooks on all modules."""
        if self._handles:
            return
        self._named = dict(self.model.named_modules())
        around = [("", self.whole)] if self.whole is not self.model else []
        for name, module in (*self._named.items(), *around):
            self._handles += [
                module.register_forward_pre_hook(Hook(self._enter, name), with_kwargs=True),
                module.register_forward_hook(Hook(self._leave, name), always_call=True),
            ]

    def stop(self) -> None:
        """Take all hooks off."""
        for handle in self._handles:
            handle.remove()
        self._handles.clear()
        self._depth = 0

    def end_step(self) -> None:
        """Learn how many steps it takes to see enough inputs."""
        self._depth = 0
        if self._handles and self._count:
            needed = math.ceil(INPUTS / self._count) + 1
            self.window = needed if math.isinf(self.window) else max(needed, self.window)
        self._count = 0

    def _enter(
        self, name: str, module: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any] = NONE
    ) -> None:
        """Keep the arguments of a call from outside."""
        if not self._is_ours(name, module):
            return
        self._depth += 1
        if self._depth > 1 or not (module.training or torch.is_grad_enabled()):
            return
        try:
            if any(map(is_functorch_wrapped_tensor, tensors_in((args, kwargs)))):
                return
            batch, kept = Arguments(args, kwargs).copied(), self.kept.setdefault(name, [])
        except Exception as error:  # arguments that cannot be copied; the network itself goes on
            self.error = error.with_traceback(None)
            return
        kept.append(batch)
        self._count += inputs_in(batch)
        while sum(map(inputs_in, kept)) - inputs_in(kept[0]) >= INPUTS:
            kept.pop(0)

    def _leave(self, name: str, module: nn.Module, *_: Any) -> None:
        if self._is_ours(name, module):
            self._depth = max(0, self._depth - 1)

    def _is_ours(self, name: str, module: nn.Module) -> bool:
        """Whether a hook was put on this module, and not given to another that took its place."""
        return module is self._named.get(name) or module is self.whole


def original(model: nn.Module) -> nn.Module:
    """The network inside what torch.compile and parallel training put around it."""
    while is_compiled(model) or isinstance(model, DataParallel | DistributedDataParallel):
        inside = model._orig_mod if is_compiled(model) else model.module
        assert isinstance(inside, nn.Module)
        model = inside
    return model


def inner_optimizer(optimizer: Any) -> Any:
    """The optimizer of torch inside a wrapper."""
    while True:
        inner = next(
            (vars(optimizer)[n] for n in ("optimizer", "base_optimizer", "opt") if n in vars(optimizer)), None
        )
        if not hasattr(inner, "step"):
            break
        optimizer = inner
    if not hasattr(optimizer, "register_step_post_hook"):
        raise TypeError(
            f"{type(optimizer).__name__} has no hooks: attach to the torch.optim.Optimizer inside, or call step()"
        )
    return optimizer
