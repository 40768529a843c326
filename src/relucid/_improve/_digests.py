"""Digests of networks, functions and data, which keep their results apart."""

import hashlib
import inspect
import json
import linecache
import re
from collections.abc import Callable, Mapping
from inspect import isfunction
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader

import relucid
from relucid._torch import tree_leaves
from relucid.files import is_the_users
from relucid.randomness import seeded

SAMPLED = 16  # examples that identify data which are not in memory
LARGE = 2**28  # bytes from which an array is identified by some of its rows


def digest_of_tensors(*tensors: Tensor) -> str:
    """A digest of numbers, shapes and precisions."""
    digest = hashlib.sha256()
    for tensor in tensors:
        digest.update(f"{tensor.dtype} {tuple(tensor.shape)} ".encode())
        if tensor.nbytes > LARGE and len(tensor) > 1000:
            tensor = tensor[:: len(tensor) // 1000]
        digest.update(tensor.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def digest_of_code(network: nn.Module) -> str:
    """A digest of the user's files, or cells of a notebook, in which the network's classes are written."""
    kinds = {kind for module in network.modules() for kind in type(module).__mro__}
    functions = (function for kind in kinds for function in vars(kind).values() if isfunction(function))
    files = {function.__code__.co_filename for function in functions}
    # A cell of a notebook has a name like that of generated code, and lines.
    texts = ["".join(_lines(file)) for file in files if is_the_users(file) or "ipython" in file]
    return hashlib.sha256(" ".join(sorted(texts)).encode()).hexdigest()


def _lines(file: str) -> list[str]:
    """The lines of a file or cell as they are now."""
    linecache.checkcache(file)
    return linecache.getlines(file)


def digest_of_network(network: nn.Module) -> str:
    """A digest of a network's structure and weights."""
    layers = re.sub(r" at 0x[0-9a-f]+", "", f"{type(network).__qualname__} {network!r}")
    names = " ".join(network.state_dict())
    state = digest_of_tensors(
        *(value for value in network.state_dict().values() if isinstance(value, Tensor))
    )
    return hashlib.sha256(f"{layers} {names} {state}".encode()).hexdigest()


def digest_of_values(values: Any) -> str:
    """A digest of values to a hundredth of the largest, which other processors and threads do not change.

    >>> digest_of_values(torch.tensor([1.0, 0.5])) == digest_of_values(torch.tensor([1.0, 0.5 + 1e-7]))
    True
    """
    tensors = [
        leaf.double().flatten() for leaf in tree_leaves(values) if isinstance(leaf, Tensor) and leaf.numel()
    ]
    few = [numbers[:: len(numbers) // SAMPLED**2 + 1] for numbers in tensors]
    scaled = [(100 * numbers / numbers.abs().max()).round().nan_to_num().tolist() for numbers in few]
    return hashlib.sha256(str(scaled).encode()).hexdigest()


def digest_of_data(data: Any, depth: int = 4) -> str:
    """A digest of data: of arrays, of some examples of a data set, or of an object's attributes."""
    if isinstance(data, np.ndarray):
        data = torch.from_numpy(data) if data.dtype.kind in "biufc" else data.tolist()
    if isinstance(data, Tensor):
        return digest_of_tensors(data)
    if data is None or isinstance(data, str | bytes | int | float):
        return repr(data)
    parts: Any
    if isinstance(data, DataLoader):
        parts = [data.dataset]
    elif isinstance(data, Mapping):
        parts = [part for pair in sorted(data.items(), key=lambda item: str(item[0])) for part in pair]
    elif hasattr(data, "__getitem__") and hasattr(data, "__len__"):
        places = {round(place) for place in np.linspace(0, len(data) - 1, SAMPLED)} if len(data) else ()
        with seeded(0):
            parts = [len(data), *(data[place] for place in sorted(places))]
    else:
        parts = [part for pair in sorted(getattr(data, "__dict__", {}).items()) for part in pair]
    inside = [digest_of_data(part, depth - 1) for part in parts] if depth else []
    text = " ".join([type(data).__qualname__, *inside])
    return hashlib.sha256(text.encode()).hexdigest()


def version_of(function: Callable[..., Any]) -> str:
    """The version of a user's function: a digest of its source file, and the releases of relucid and torch.

    In a notebook, the cell stands for the file. Whatever changes in the file changes the version, a comment or a row
    of the study too; what the file imports does not. Values that an inner function has captured count, if they are
    numbers or text. Of relucid and torch, the first two numbers count (2.13).

    >>> version_of(len).startswith("source ")
    True
    """
    releases = (".".join(version.split(".")[:2]) for version in (relucid.__version__, torch.__version__))
    digest = hashlib.sha256(_source(inspect.unwrap(function)).encode()).hexdigest()[:12]
    return "source {}, relucid {}, torch {}".format(digest, *releases)


def _source(function: Any) -> str:
    """The text of the file or cell that a function is in, and the plain values that the function has captured."""
    code = getattr(function, "__code__", None)
    if code is None:  # a built-in function
        return str(getattr(function, "__qualname__", repr(function)))
    lines = _lines(code.co_filename) or [code.co_code.hex(), str(code.co_consts)]
    captured = sorted(inspect.getclosurevars(function).nonlocals.items())
    values = json.dumps(captured, skipkeys=True, default=lambda value: type(value).__qualname__)
    place = f"{function.__qualname__} {code.co_firstlineno}"  # a file may hold several functions
    return "".join([*lines, place, values])
