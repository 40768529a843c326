"""How a network uses its mode: whether it reads it while it is traced, and whether it changes it in its own way."""

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from threading import get_ident

import torch
from torch import Tensor, nn

from relucid.convert.network import SIMPLE
from relucid.convert.tracer import Tracer


class _Mode:
    """The attribute ``training`` of all modules while a network is traced; no property, as torch.jit compiles those."""

    def __init__(self, modules: set[nn.Module], tracer: Tracer, training: bool) -> None:
        self.modules, self.tracer, self.training = modules, tracer, training
        #: whose mode was read; of a class with a property of its own, that would go unnoticed
        self.read = [m for m in modules if any("training" in vars(kind) for kind in type(m).__mro__)]

    def __get__(self, module: nn.Module | None, kind: type) -> bool:
        if module is None:
            raise AttributeError("training")
        own, by_network = vars(module), not self.tracer.running and get_ident() == self.tracer.thread
        if by_network and module in self.modules and "training" in own:
            self.read.append(module)
            # Layers are in evaluation, whatever the mode of the network.
            if self.tracer.is_leaf_module(module, ""):
                return self.training
        return bool(own["training"] if "training" in own else module.__getattr__("training"))

    def __set__(self, module: nn.Module, value: bool) -> None:
        vars(module)["training"] = value

    def __delete__(self, module: nn.Module) -> None:
        vars(module).pop("training", None)


@contextmanager
def noted_reads(model: nn.Module, tracer: Tracer, training: bool) -> Iterator[list[nn.Module]]:
    """Yield a list of the modules whose mode a network reads while it is traced, in this mode, within the block.

    If it reads none, it computes the same in both modes, but for its layers.
    """
    before = vars(nn.Module).get("training")
    mode = _Mode(set(model.modules()), tracer, training)
    nn.Module.training = mode  # type: ignore[assignment]  # comes before attributes of the objects
    try:
        yield mode.read
    finally:
        if before is None:
            del nn.Module.training
        else:  # of a network that is being traced, and converts another
            nn.Module.training = before


def own_method(module: nn.Module) -> str:
    """Return the method by which a module changes its mode in another way than nn.Module, or ""."""
    own = [name for name in ("train", "eval") if getattr(type(module), name) is not getattr(nn.Module, name)]
    if not own:
        return ""
    try:
        one, other = copy.deepcopy(module), copy.deepcopy(module)
        for training in (True, False, True):
            one.train(training)
            nn.Module.train(other, training)
            if not _is_alike(one, other):
                return "a train method"
        one.eval()
        return "" if _is_alike(one, nn.Module.train(other, False)) else "an eval method"
    except Exception:  # a method that cannot be tried is not taken to be harmless
        return "a train method" if "train" in own else "an eval method"


def _is_alike(one: nn.Module, other: nn.Module) -> bool:
    """Return whether two copies of a module are in the same state: modes, plain attributes, parameters and buffers."""
    pairs = list(zip(one.modules(), other.modules(), strict=True))
    plain = [[{k: v for k, v in vars(m).items() if type(v) in SIMPLE} for m in pair] for pair in pairs]
    tensors = zip(one.state_dict().values(), other.state_dict().values(), strict=True)
    trained = zip(one.parameters(), other.parameters(), strict=True)
    return (
        all(a == b for a, b in plain)
        and all(p.requires_grad == q.requires_grad for p, q in trained)
        and all(torch.equal(x, y) for x, y in tensors if isinstance(x, Tensor))
    )
