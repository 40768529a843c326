"""Save and load a converted network without the code of the original: a graph in JSON, and weights.

A loaded graph calls only torch's functions on tensors, and torch's and relucid's layers.
"""

import builtins
import importlib
import json
import math
import operator
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, fx, nn
from torch.fx.node import Node

from relucid.convert.conversion import Change, Conversion
from relucid.convert.graph import ConversionError
from relucid.convert.network import Network, empty

FORMAT = 1
ATTRIBUTES = {
    "shape",
    "dtype",
    "device",
    "ndim",
    "T",
    "mT",
    "H",
    "mH",
    "real",
    "imag",
    "data",
    "requires_grad",
}
BUILTINS = {"getattr", "len", "int", "float", "bool", "abs", "min", "max", "sum", "round", "tuple", "list"}
# The attributes that every module has; others are a module's own.
OWN = set(vars(nn.Module()))


def _functions() -> dict[str, Callable[..., Any]]:
    """Return, by name, the functions that a saved graph may call: torch's on tensors, operator's and math's."""
    found: dict[str, Callable[..., Any]] = {f"builtins.{n}": getattr(builtins, n) for n in BUILTINS}
    places = {"operator": operator, "math": math, "torch.nn.functional": F, "torch.fft": torch.fft}
    places |= {"torch.special": torch.special, "torch.linalg": torch.linalg}
    for place, module in places.items():
        found |= {f"{place}.{n}": f for n, f in vars(module).items() if callable(f) and n[0] != "_"}
    names = [*dir(torch._C._VariableFunctions), *torch.functional.__all__, "_assert"]
    found |= {f"torch.{n}": getattr(torch, n) for n in names if hasattr(torch, n) and not n.startswith("__")}
    return {name: f for name, f in found.items() if not isinstance(f, type) or name.startswith("builtins.")}


def save(conversion: Conversion, directory: str | Path) -> None:
    """Write a conversion into a directory, which is created: ``network.json`` and ``weights.pt``.

    A network cannot be saved if a module of neither torch nor relucid was kept as it is.

    >>> import tempfile
    >>> from relucid.convert import to_crelu
    >>> net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
    >>> x = torch.randn(5, 4)
    >>> with tempfile.TemporaryDirectory() as place:
    ...     save(to_crelu(net, x), place)
    ...     back = load(place)
    >>> torch.allclose(back.model(x), net(x))
    True
    """
    net = conversion.model
    if not isinstance(net, Network):
        raise ConversionError("only the result of a conversion can be saved, and this is none")
    names = {f: name for name, f in _functions().items()}
    description = {
        "format": FORMAT,
        "class": type(net).__name__,
        "modules": [_module(name, module) for name, module in net.named_modules()],
        "nodes": [_node(net, node, names) for node in net.graph.nodes],
        "layers": net.meta.get("layers"),
        "decisions": net.meta.get("decisions", []),
        "conversion": conversion.to_dict(),
    }
    tensors = {**_tensors(net, "parameters"), **_tensors(net, "buffers")}
    place = Path(directory)
    place.mkdir(parents=True, exist_ok=True)
    torch.save(tensors, place / "weights.pt")
    (place / "network.json").write_text(json.dumps(description) + "\n")


def load(directory: str | Path) -> Conversion:
    """Return the conversion that `save` wrote; only torch and relucid are needed."""
    place = Path(directory)
    try:
        found = json.loads((place / "network.json").read_text())
        tensors = torch.load(place / "weights.pt", weights_only=True)
        if found["format"] != FORMAT:
            raise ValueError(f"its format is {found['format']}, not {FORMAT}")
        net = _network(found, tensors)
        told = dict(found["conversion"])
        changes = tuple(Change(**change) for change in told.pop("changes"))
        numbers: dict[str, Any] = {f.name: told[f.name] for f in fields(Conversion) if f.name in told}
        for name in ("parameters", "multiply_adds"):
            numbers[name] = tuple(numbers[name])
        return Conversion(model=net, changes=changes, **numbers)
    except (OSError, KeyError, TypeError, AttributeError, ValueError, RuntimeError) as error:
        raise ConversionError(f"{place} holds no conversion that can be loaded: {error}") from error


def _tensors(net: nn.Module, kind: str) -> dict[str, Tensor]:
    every = getattr(net, f"named_{kind}")(remove_duplicate=False)
    return {name: value.detach() for name, value in every}


def _module(name: str, module: nn.Module) -> dict[str, Any]:
    """Return a module's class and plain attributes, which parameters are trained, and which buffers are saved."""
    kind = type(module)
    if name and not kind.__module__.startswith(("torch.nn.modules.", "relucid.nn.", "relucid.convert.")):
        raise ConversionError(
            f"{name} was kept as it is, and cannot be saved without the code of {kind.__name__}"
        )
    own = {k: v for k, v in vars(module).items() if k not in OWN} if name else {}
    return {
        "name": name,
        "class": f"{kind.__module__}.{kind.__qualname__}" if name else "",
        "training": module.training,
        "attributes": {k: _value(v, f"{name}.{k}", {}) for k, v in own.items()},
        "parameters": {k: p is not None and p.requires_grad for k, p in module._parameters.items()},
        "absent": [k for k, v in {**module._parameters, **module._buffers}.items() if v is None],
        "buffers": {k: k not in module._non_persistent_buffers_set for k in module._buffers},
        "modules": list(module._modules),
    }


def _value(value: Any, where: str, names: Mapping[Any, str]) -> Any:
    """Return a value of a graph, or an attribute of a module, as JSON."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, Node):
        return {"node": value.name}
    if isinstance(value, torch.dtype | torch.device | torch.layout | torch.memory_format):
        return {"torch": str(value).removeprefix("torch."), "is": type(value).__name__}
    if isinstance(value, slice):
        return {"slice": [_value(v, where, names) for v in (value.start, value.stop, value.step)]}
    if value is Ellipsis:
        return {"ellipsis": True}
    if isinstance(value, list | tuple):
        kind = "list" if isinstance(value, list) else "tuple"
        return {kind: [_value(v, where, names) for v in value]}
    if isinstance(value, dict):
        return {"dict": [[_value(k, where, names), _value(v, where, names)] for k, v in value.items()]}
    names = names or {f: name for name, f in _functions().items()}
    if callable(value) and value in names:
        return {"function": names[value]}
    raise ConversionError(f"{where} cannot be saved: it is {type(value).__name__}")


def _node(net: Network, node: Node, names: Mapping[Any, str]) -> dict[str, Any]:
    if isinstance(node.target, type) and _is_answer(node.target):
        names = {**names, node.target: f"{node.target.__module__}.{node.target.__qualname__}"}
    if node.op == "call_function" and node.target not in names:
        what = getattr(node.target, "__name__", str(node.target))
        raise ConversionError(
            f"{type(net).__name__} cannot be saved: it calls {what}, which is not a function of torch's"
        )
    target = names[node.target] if node.op == "call_function" else str(node.target)
    args, kwargs = (_value(v, node.name, names) for v in (tuple(node.args), dict(node.kwargs)))
    return {"name": node.name, "op": node.op, "target": target, "args": args, "kwargs": kwargs}


def _network(found: dict[str, Any], tensors: Mapping[str, Tensor]) -> Network:
    net = empty(str(found["class"]))
    functions = _functions()
    modules: dict[str, nn.Module] = {"": net}
    made: dict[int, nn.Parameter] = {}  # by address, so that tied parameters stay tied
    for said in found["modules"]:
        name = said["name"]
        modules[name] = _filled(_bare(said["class"]) if name else net, said, functions)
        _fill_tensors(modules[name], said, tensors, made)
    for said in found["modules"]:
        for name in said["modules"]:
            modules[said["name"]]._modules[name] = modules.get(_join(said["name"], name))
    net.meta.update(layers=found["layers"], decisions=[tuple(d) for d in found["decisions"]])
    net.graph = _graph(found["nodes"], functions)
    return net


def _fill_tensors(
    module: nn.Module, said: dict[str, Any], tensors: Mapping[str, Tensor], made: dict[int, nn.Parameter]
) -> None:
    for name, trained in said["parameters"].items():
        value = tensors.get(_join(said["name"], name))
        if value is not None:
            key = value.data_ptr() or id(value)  # a tensor without entries has no address
            module._parameters[name] = made.setdefault(key, nn.Parameter(value, trained))
    for name, persistent in said["buffers"].items():
        module.register_buffer(name, tensors.get(_join(said["name"], name)), persistent=persistent)


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _bare(name: str) -> nn.Module:
    place, _, kind = name.rpartition(".")
    if not place.startswith(("torch.nn.modules.", "relucid.nn.", "relucid.convert.")):
        raise ValueError(f"{name} is not a layer of torch's or relucid's")
    found = getattr(importlib.import_module(place), kind)
    if not (isinstance(found, type) and issubclass(found, nn.Module)):
        raise ValueError(f"{name} is not a module")
    module: nn.Module = found.__new__(found)
    nn.Module.__init__(module)
    return module


def _filled(module: nn.Module, said: dict[str, Any], functions: Mapping[str, Any]) -> nn.Module:
    module.training = bool(said["training"])
    for name, value in said["attributes"].items():
        vars(module)[name] = _read(value, {}, functions)
    for name in said["absent"]:
        if name in said["parameters"]:
            module._parameters[name] = None
    return module


def _graph(nodes: list[dict[str, Any]], functions: Mapping[str, Any]) -> fx.Graph:
    graph, made = fx.Graph(), dict[str, Node]()
    for said in nodes:
        args, kwargs = (_read(said[key], made, functions) for key in ("args", "kwargs"))
        op, target = said["op"], said["target"]
        if op == "call_function":
            if target == "builtins.getattr" and args[1] not in ATTRIBUTES:
                raise ValueError(f"it asks for {args[1]!r}, which is not an attribute of a tensor")
            target = functions[target] if target in functions else _answer(target)
        elif op == "call_method" and (target.startswith("__") or not hasattr(Tensor, target)):
            raise ValueError(f"it calls {target!r}, which is not a method of a tensor")
        made[said["name"]] = graph.create_node(op, target, args, kwargs, said["name"])
    return graph


def _is_answer(kind: type) -> bool:
    """Return whether a class is an output class of Hugging Face's."""
    return kind.__module__.startswith("transformers.") and is_dataclass(kind) and issubclass(kind, dict)


def _answer(name: str) -> type:
    place, _, kind = name.rpartition(".")
    if not place.startswith("transformers."):
        raise ValueError(f"it calls {name!r}, which is not a function on tensors")
    found = getattr(importlib.import_module(place), kind)
    if not (isinstance(found, type) and _is_answer(found)):
        raise ValueError(f"{name} is not an output class")
    return found


def _read(value: Any, nodes: Mapping[str, Node], functions: Mapping[str, Any]) -> Any:
    """Return the value that `_value` was given."""
    if not isinstance(value, dict):
        return value
    (kind, held), *more = value.items()
    if kind == "node":
        return nodes[held]
    if kind == "torch":
        return torch.device(held) if more[0][1] == "device" else getattr(torch, held)
    if kind == "ellipsis":
        return Ellipsis
    if kind == "function":
        return functions[held]
    if kind == "dict":
        return {_read(k, nodes, functions): _read(v, nodes, functions) for k, v in held}
    values = [_read(v, nodes, functions) for v in held]
    if kind == "slice":
        return slice(*values)
    return values if kind == "list" else tuple(values)
