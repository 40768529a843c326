"""The networks, weights and inputs that a user names on the command line."""

import json
import runpy
import sys
from collections.abc import Collection, Iterable, Mapping
from functools import lru_cache
from importlib import import_module
from inspect import signature
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from relucid import convert, models
from relucid.cli.checkpoint import restore
from relucid.cli.foreign import foreign
from relucid.convert import is_saved
from relucid.data import in_batches
from relucid.data.named import ARRAYS, named
from relucid.printing import suggest

OUTPUTS = 10**6  # the most that a model has on the command line


def build(
    factory: str, checkpoint: Path | None = None, *, unsafe: bool = False, key: str | None = None
) -> nn.Module:
    """Build a network from a factory, a model's name or a directory of `convert`, with the weights of a checkpoint.

    A checkpoint may be a directory of `convert`, too: then the network is converted as that one was.
    """
    if _is_model(factory):
        network = _created(factory)
    elif factory and is_saved(factory):
        network = convert.load(factory, _created(origin(factory)))
    else:
        network = _built(factory)
    if checkpoint is not None and is_saved(checkpoint):
        return convert.load(checkpoint, network)
    return network if checkpoint is None else restore(network, checkpoint, unsafe=unsafe, key=key)


def origin(network: str) -> str:
    """The model that a directory of `convert` was made from; any other name stays as it is.

    A directory may come from anyone, so only the name of a built-in model is taken from it: to build any other
    network is to run code, which the user has to name.
    """
    directory = Path(network)
    if _is_model(network) or not network or not is_saved(directory):
        return network
    try:
        name = str(json.loads((directory / "conversion.json").read_text(encoding="utf-8"))["network"])
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        name = ""
    if not _is_model(name):
        said = f" (it says {name})" if name else ""
        raise ValueError(
            f"{network} was not made from a built-in model{said}: name the function that builds its network, and give "
            f"the directory as --checkpoint {network}"
        )
    return name


def _is_model(name: str) -> bool:
    model, _, outputs = name.partition(":")
    return model in models.names() and (name == model or outputs.isdecimal())


def _created(name: str) -> nn.Module:
    model, _, outputs = name.partition(":")
    number = outputs.lstrip("0")
    if outputs and not (number and len(number) <= len(str(OUTPUTS)) and int(number) <= OUTPUTS):
        raise ValueError(f"{model} cannot have {outputs[:20]} outputs: give a number from 1 to {OUTPUTS:,}")
    network: nn.Module = models.create(model, num_classes=int(number or 10))
    return network


def example_of(shape: str, network: nn.Module) -> Tensor:
    """Random numbers of a shape such as "1,3,32,32", or random integers, "int:1,16"."""
    whole = shape.startswith("int:")
    sizes = [size.strip() for size in shape.removeprefix("int:").split(",")]
    if not all(size.isdecimal() and int(size) for size in sizes):
        raise ValueError(
            f"--example {shape} is not a shape: give whole numbers above 0, such as 1,3,32,32, or int:1,16 for integers"
        )
    if len(sizes) < 2:
        raise ValueError(
            f"--example {shape} is not a batch: put the number of inputs first, such as 1,{sizes[0]}"
        )
    generator = torch.Generator().manual_seed(0)
    known = [module.num_embeddings for module in network.modules() if isinstance(module, nn.Embedding)]
    types = (parameter.dtype for parameter in network.parameters() if parameter.is_floating_point())
    try:
        if whole:
            return torch.randint(min(known, default=2), tuple(map(int, sizes)), generator=generator)
        return torch.randn(*map(int, sizes), generator=generator).to(next(types, torch.get_default_dtype()))
    except (RuntimeError, TypeError, OverflowError, MemoryError) as error:
        raise ValueError(f"--example {shape} does not fit in memory") from error


def data_of(name: str) -> Any:
    """The data that a user names: what a function returns, or what `relucid.data` reads by this name."""
    if ":" in name and not Path(name).exists():
        return produced(name)
    return name


def batches_of(data: str) -> Iterable[Any]:
    """Batches of inputs from data that a user names."""
    given = data_of(data)
    if isinstance(given, str) and Path(given).suffix in ARRAYS:
        given = named(given)
        if isinstance(given, Tensor | np.ndarray) and given.ndim < 2:
            what = f"one row of {len(given)} numbers" if given.ndim else "a single number"
            raise ValueError(f"{data} holds {what}, not a batch of inputs")
    try:
        return in_batches(given)
    except TypeError:
        raise TypeError(f"{data} returns {_kind(given)}, not batches of inputs") from None


def function_of(name: str, known: Collection[str], what: str) -> Any:
    """A name out of those known, or the user's own function."""
    if name in known:
        return name
    if ":" not in name:
        choice = f"one of {', '.join(known)}, or " if known else ""
        raise ValueError(f"there is no {what} {name}: name {choice}a MODULE:FUNCTION of your own")
    function = imported(name)
    if not callable(function):
        raise TypeError(f"{name} is {_kind(function)}, not a function")
    return function


def _built(factory: str) -> nn.Module:
    network = imported(factory)
    if not isinstance(network, nn.Module):
        network = _called(factory, network)
    if not isinstance(network, nn.Module):
        raise TypeError(f"{factory} returns {_kind(network)}, not a torch.nn.Module")
    return network


def produced(name: str) -> Any:
    """Call the user's function, and return its result; return any other object as it is."""
    value = imported(name)
    return _called(name, value) if callable(value) else value


def _called(name: str, function: Any) -> Any:
    """Call the user's function, and return its result."""
    if not callable(function):
        raise TypeError(f"{name} is {_kind(function)}: name a function that builds the network")
    try:
        signature(function).bind()
    except TypeError as error:
        raise TypeError(f"{name} needs arguments ({error}): name a function that needs none") from None
    except ValueError:  # some functions written in C have no signature
        pass
    with foreign(f"{name} fails"):
        return function()


def _kind(value: object) -> str:
    """The type of a value with its article: "a list", "an int"."""
    name = type(value).__name__
    return f"{'an' if name[0].lower() in 'aeiou' else 'a'} {name}"


def imported(name: str) -> Any:
    """Import the object "package.module:name" or "path/to/file.py:name"."""
    module, _, attribute = name.rpartition(":")
    if not module or not attribute:
        near = suggest(name, models.names()) or ": write MODULE:FUNCTION, such as my_module:build"
        raise ValueError(f"{name} is neither a function nor a model{near}")
    space = _from_file(Path(module)) if module.endswith(".py") else _from_module(module)
    if attribute not in space:
        raise ValueError(f"{module} has no {attribute}{suggest(attribute, space)}")
    return space[attribute]


def _from_file(path: Path) -> Mapping[str, Any]:
    if not path.is_file():
        raise ValueError(f"{path} cannot be imported: there is no such file")
    sys.path.insert(0, str(path.parent.resolve()))  # like any script, it can import the files beside it
    with foreign(f"{path} cannot be imported"):
        return _executed(path.resolve(), path.stat().st_mtime_ns)


@lru_cache
def _executed(path: Path, _written: int) -> Mapping[str, Any]:
    """What a file defines, once for all functions that a command names in it."""
    return runpy.run_path(str(path))


def _from_module(module: str) -> Mapping[str, Any]:
    if not all(part.isidentifier() for part in module.split(".")):
        raise ValueError(
            f"{module} is not a module: write my_package.my_module:build, or path/to/file.py:build"
        )
    sys.path.insert(0, str(Path.cwd()))
    with foreign(f"{module} cannot be imported"):
        return vars(import_module(module))
