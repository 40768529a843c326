"""A converted network: a graph, and every module of the original whether the graph calls it or not."""

import copy
from collections.abc import Mapping
from typing import Any

from torch import Tensor, fx, nn

Containers = nn.Sequential | nn.ModuleList | nn.ModuleDict
HOOKS = (
    *("_forward_hooks", "_forward_hooks_with_kwargs", "_forward_hooks_always_called"),
    *("_backward_hooks", "_backward_pre_hooks", "_is_full_backward_hook"),
)


class Network(fx.GraphModule):
    """A graph that keeps the modules, parameters and buffers that it does not use.

    What was an ``nn.Sequential`` can be indexed as before.
    """

    def __deepcopy__(self, memo: dict[int, Any]) -> "Network":
        new = empty(type(self).__name__)
        memo[id(self)] = new
        graph = copy.deepcopy(self.graph)
        state = {key: value for key, value in vars(self).items() if key not in ("_graph", "_code")}
        vars(new).update(copy.deepcopy(state, memo))
        new.graph = graph
        return new

    def light_copy(self) -> "Network":
        """A copy with modules of its own and the same graph, to be run and thrown away."""
        new: Network = object.__new__(type(self))
        vars(new).update(
            copy.deepcopy({k: v for k, v in vars(self).items() if k != "_graph"}), _graph=self.graph
        )
        return new

    def __getitem__(self, index: int) -> nn.Module:
        names = self.meta.get("layers")
        if names is None:
            raise TypeError(f"{type(self).__name__} was no nn.Sequential and cannot be indexed")
        name = names[index]
        if name not in self._modules:
            raise IndexError(f"layer {name} has become part of another one")
        return self.get_submodule(name)


def empty(name: str) -> Network:
    """A network without modules that computes nothing."""
    graph = fx.Graph()
    graph.output(None)
    return Network(nn.Module(), graph, name)


def assemble(
    model: nn.Module, graph: fx.Graph, leaves: set[nn.Module], constants: Mapping[str, Tensor]
) -> Network:
    """The network of a graph with all that ``model`` has; modules that are not in ``leaves`` lose their code."""
    graph._tracer_cls = fx.Tracer  # else a saved network would need this package to be loaded
    net = empty(type(model).__name__)
    _fill(net, model, leaves, {})
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
    net.graph = graph
    return net


def _fill(new: nn.Module, old: nn.Module, leaves: set[nn.Module], made: dict[nn.Module, nn.Module]) -> None:
    """Give a module the parameters, buffers and children of another."""
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
    """Make a tensor that was a plain attribute of a module a buffer, which moves with the network."""
    path, _, name = target.rpartition(".")
    holder = net.get_submodule(path)
    if not hasattr(holder, name):
        holder.register_buffer(name, getattr(model.get_submodule(path), name), persistent=False)
