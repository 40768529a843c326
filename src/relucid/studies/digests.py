"""Digests of networks and data, which keep their results apart."""

import hashlib
import linecache
import re
from collections.abc import Mapping
from inspect import isfunction
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader

from relucid.files import is_the_users
from relucid.randomness import seeded

SAMPLED = 16  # examples that identify data which are not in memory
LARGE = 2**28  # bytes from which an array is identified by some of its rows


def digest_of_tensors(*tensors: Tensor) -> str:
    """A digest of numbers, shapes and precisions."""
    found = hashlib.sha256()
    for tensor in tensors:
        found.update(f"{tensor.dtype} {tuple(tensor.shape)} ".encode())
        if tensor.nbytes > LARGE and len(tensor) > 1000:
            tensor = tensor[:: len(tensor) // 1000]
        found.update(tensor.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().data)
    return found.hexdigest()


def digest_of_code(network: nn.Module) -> str:
    """A digest of the user's files, or cells of a notebook, in which the network's classes are written."""
    kinds = {kind for module in network.modules() for kind in type(module).__mro__}
    functions = (function for kind in kinds for function in vars(kind).values() if isfunction(function))
    files = {function.__code__.co_filename for function in functions}
    # A cell of a notebook has a name like that of generated code, and lines.
    lines = ["".join(linecache.getlines(file)) for file in files if is_the_users(file) or "ipython" in file]
    return hashlib.sha256(" ".join(sorted(lines)).encode()).hexdigest()


def digest_of_network(network: nn.Module) -> str:
    """A digest of a network's structure and weights."""
    layers = re.sub(r" at 0x[0-9a-f]+", "", f"{type(network).__qualname__} {network!r}")
    names = " ".join(network.state_dict())
    state = digest_of_tensors(
        *(value for value in network.state_dict().values() if isinstance(value, Tensor))
    )
    return hashlib.sha256(f"{layers} {names} {state}".encode()).hexdigest()


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
