"""A converted network: a graph, and every module of the original, whether the graph calls it or not."""

import copy
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, fx, nn

Containers = nn.Sequential | nn.ModuleList | nn.ModuleDict
HOOKS = (
    *("_forward_hooks", "_forward_hooks_with_kwargs", "_forward_hooks_always_called"),
    *("_backward_hooks", "_backward_pre_hooks", "_is_full_backward_hook"),
)


class Network(fx.GraphModule):
    """A graph with all modules, parameters and buffers of the original, including those that it does not use.

    A network that was an ``nn.Sequential`` can be indexed as before.
    """

    def __deepcopy__(self, memo: dict[int, Any]) -> "Network":
        new = empty(type(self).__name__)
        memo[id(self)] = new
        graph = copy.deepcopy(self.graph)
        state = {key: value for key, value in vars(self).items() if key not in ("_graph", "_code")}
        vars(new).update(copy.deepcopy(state, memo))
        new.graph = graph
        return new

    def save_pretrained(self, directory: str | Path) -> None:
        """Write a Hugging Face model's configuration and weights into a directory, which is created."""
        if "config" not in vars(self):
            raise TypeError(
                f"{type(self).__name__} is not made from a Hugging Face model; relucid.convert.save writes it"
            )
        vars(self)["config"].save_pretrained(directory)
        torch.save(self.state_dict(), Path(directory) / "pytorch_model.bin")

    def __getitem__(self, index: int) -> nn.Module:
        names = self.meta.get("layers")
        if names is None:
            raise TypeError(
                f"{type(self).__name__} is not made from an nn.Sequential, so it cannot be indexed"
            )
        name = names[index]
        if name not in self._modules:
            raise IndexError(f"layer {name} has been merged into another layer")
        return self.get_submodule(name)


class ByMode(nn.Module):
    """Selects one of two values by its mode.

    >>> ByMode().eval()(training=1, evaluation=2)
    2
    """

    def forward(self, training: Any, evaluation: Any) -> Any:
        """Return ``training`` in training, else ``evaluation``."""
        return training if self.training else evaluation


def light_copy(module: nn.Module, memo: dict[int, Any] | None = None) -> nn.Module:
    """Return a copy to be run and thrown away: it shares parameters, and copies buffers and all other state.

    Args:
        module: Any network.
        memo: By ``id``, the copies of objects that have been copied already, as for ``copy.deepcopy``.
    """
    memo = {} if memo is None else memo
    if id(module) in memo:
        found: nn.Module = memo[id(module)]
        return found
    if isinstance(module, torch.jit.ScriptModule):
        return copy.deepcopy(module, memo)
    new: nn.Module = object.__new__(type(module))
    memo[id(module)] = new
    for key, value in vars(module).items():
        if key == "_modules":
            copied: Any = {n: None if m is None else light_copy(m, memo) for n, m in value.items()}
        elif key in ("_parameters", "_graph"):
            copied = value if key == "_graph" else {n: memo.setdefault(id(p), p) for n, p in value.items()}
        elif key == "_buffers":
            copied = {n: None if b is None else b.clone() for n, b in value.items()}
            memo.update({id(b): copied[n] for n, b in value.items()})
        elif type(value) in SIMPLE:
            copied = value
        elif key == "_compiled_call_impl":  # it would run the original
            copied = None
        elif type(value) in FLAT and all(type(v) in SIMPLE for v in value):
            copied = memo.setdefault(id(value), copy.copy(value))  # a deep copy, but faster
        elif isinstance(value, dict) and not value:
            copied = type(value)()
        else:
            copied = copy.deepcopy(value, memo)
        vars(new)[key] = copied
    return new


def doubled(model: nn.Module) -> nn.Module:
    """Return a light copy in float64; it shares no parameters."""
    memo: dict[int, Any] = {}
    for p in model.parameters():
        # Its memory is shared until it is replaced below, but not its version, which counts changes for autograd.
        # (`p.data` would do, too, but a geometric layer would notice.)
        own = Tensor.data.__get__(p).as_subclass(type(p))  # type: ignore[attr-defined]
        memo[id(p)] = own.requires_grad_(p.requires_grad)
    return light_copy(model, memo).double()


SIMPLE = (bool, int, float, str, type(None))
FLAT = (tuple, list, set)


def empty(name: str) -> Network:
    """Return a network without modules that computes nothing."""
    graph = fx.Graph()
    graph.output(None)
    return Network(nn.Module(), graph, name)


def assemble(
    model: nn.Module,
    graph: fx.Graph,
    leaves: set[nn.Module],
    constants: Mapping[str, Tensor],
    others: Mapping[str, nn.Module],
) -> Network:
    """Return a network that computes ``graph`` and has all modules, parameters and buffers of ``model``.

    Args:
        model: The original.
        graph: What to compute.
        leaves: The modules that keep their code; the others become bare containers.
        constants: By name, tensors that ``forward`` made.
        others: By name, the modules to use in place of the original's.
    """
    graph._tracer_cls = fx.Tracer  # otherwise loading a pickled network would need this package
    net = empty(type(model).__name__)
    made = {model.get_submodule(name): module for name, module in others.items()}
    for module in others.values():
        _fill(module, module, leaves, made)
    _fill(net, model, leaves, made)
    for name, value in constants.items():
        net.register_buffer(name, value, persistent=False)
    for node in graph.nodes:
        if node.op == "get_attr":
            _register(net, model, str(node.target))
    for name in HOOKS:
        setattr(net, name, getattr(model, name))
    if isinstance(model, nn.Sequential):
        net.meta["layers"] = list(model._modules)
    elif isinstance(model, Network):
        net.meta.update(model.meta)
    for name in ("config", "generation_config"):  # of Hugging Face's models
        if name in vars(model):
            vars(net)[name] = vars(model)[name]
    net.graph = graph
    return net


def _fill(new: nn.Module, old: nn.Module, leaves: set[nn.Module], made: dict[nn.Module, nn.Module]) -> None:
    """Give ``new`` the mode, parameters, buffers and children of ``old``."""
    new.training = old.training
    new._parameters.update(old._parameters)
    new._buffers.update(old._buffers)
    new._non_persistent_buffers_set.update(old._non_persistent_buffers_set)
    for name, child in old._modules.items():
        new._modules[name] = None if child is None else _part(child, leaves, made)


def _part(module: nn.Module, leaves: set[nn.Module], made: dict[nn.Module, nn.Module]) -> nn.Module:
    if module in leaves:
        return module
    if module not in made:
        made[module] = nn.Module()
        _fill(made[module], module, leaves, made)
    return made[module]


def _register(net: Network, model: nn.Module, target: str) -> None:
    """Register a tensor that was a plain attribute as a buffer, so that it moves with the network."""
    path, _, name = target.rpartition(".")
    holder = net.get_submodule(path)
    if not hasattr(holder, name):
        holder.register_buffer(name, getattr(model.get_submodule(path), name), persistent=False)
