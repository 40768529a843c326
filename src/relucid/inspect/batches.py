"""Data in any form that people have it, as batches that a network takes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sized
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves, tree_map
from torch.utils.data import DataLoader, Dataset

from relucid.inspect.execution import Batch

SIZE = 64  # inputs of an array go through the network so many at a time


@dataclass(frozen=True)
class Split:
    """One batch: what the network is called with, how many inputs that is, and their labels if there are any."""

    arguments: Batch
    inputs: int
    labels: Tensor | None


def parts_of(data: Any, example: Batch) -> Iterator[Split]:
    """Yield the batches of ``data`` in the form of the example.

    Args:
        data: A tensor or array of inputs, a mapping of arguments, a data set, or batches: a loader, or anything
            else that can be iterated over. Labels may follow the inputs.
        example: What the network takes: a tensor, a tuple of positional or a mapping of keyword arguments.

    >>> parts = parts_of(np.zeros((100, 3)), torch.zeros(1, 3))
    >>> [(part.arguments.shape, part.arguments.dtype, part.inputs) for part in parts]
    [(torch.Size([64, 3]), torch.float32, 64), (torch.Size([36, 3]), torch.float32, 36)]
    """
    example = dict(example) if isinstance(example, Mapping) else example
    empty = True
    for number, batch in enumerate(_batches(data)):
        part = _part(batch, example)
        _check(part, number)
        if part.inputs:
            empty = False
            yield part
    if empty:
        raise ValueError("the data is empty: give at least one batch of inputs")


def count_of(data: Any) -> int | None:
    """Return how many batches there are, where that can be told."""
    if isinstance(data, Tensor | np.ndarray):
        return -(-len(data) // SIZE)
    if isinstance(data, Mapping):
        return -(-_length(dict(data)) // SIZE)
    if isinstance(data, Dataset):
        return -(-len(data) // SIZE) if isinstance(data, Sized) else None
    return len(data) if isinstance(data, Sized) else None


def _batches(data: Any) -> Iterable[Any]:
    if isinstance(data, Tensor):
        split: tuple[Tensor, ...] = data.split(SIZE)
        return split
    if isinstance(data, np.ndarray):
        return (torch.from_numpy(data[i : i + SIZE]) for i in range(0, len(data), SIZE))
    if isinstance(data, Mapping):
        return (_slice(dict(data), i) for i in range(0, _length(dict(data)), SIZE))
    if isinstance(data, Dataset):
        return DataLoader(data, batch_size=SIZE)
    if isinstance(data, Iterable) and not isinstance(data, str | bytes):
        return data
    raise TypeError(
        f"data is a tensor, an array, a mapping of arguments, a data set or batches, not a {type(data).__name__}"
    )


def _slice(arguments: Mapping[str, Any], start: int) -> dict[str, Any]:
    """Return the inputs from ``start`` on; what is no array of as many rows goes along whole."""
    rows = _length(arguments)
    return {
        name: value[start : start + SIZE] if _rows(value) == rows else value
        for name, value in arguments.items()
    }


def _length(arguments: Any) -> int:
    """Return the number of rows of the first array among the arguments; 1 if there is none."""
    return next((rows for leaf in tree_leaves(arguments) if (rows := _rows(leaf)) is not None), 1)


def _rows(value: Any) -> int | None:
    return len(value) if isinstance(value, Tensor | np.ndarray) and value.ndim else None


def _part(batch: Any, example: Batch) -> Split:
    """Return a batch in the form of the example, what is left over as labels."""
    labels: Any = None
    if isinstance(batch, tuple | list):
        wanted = 1 if isinstance(example, Tensor | Mapping) else len(example)
        labels = batch[wanted] if len(batch) > wanted else None
        batch = batch[0] if isinstance(example, Tensor | Mapping) else tuple(batch[:wanted])
    elif isinstance(batch, Mapping) and isinstance(example, Mapping):
        labels = batch.get("labels", batch.get("label"))
        batch = {n: value for n, value in batch.items() if n in example or n not in ("labels", "label")}
    elif isinstance(batch, Mapping) and isinstance(example, Tensor):
        raise TypeError(
            f"the example is one tensor, but a batch of the data names its arguments ({', '.join(batch)}): "
            "give the example by name, too"
        )
    like = next((leaf for leaf in tree_leaves(example) if _is_floating(leaf)), None)
    arguments: Batch = tree_map(lambda leaf: _tensor(leaf, like), batch)
    inputs = _length(arguments)
    labels = torch.as_tensor(labels) if isinstance(labels, Tensor | np.ndarray | list) else None
    return Split(arguments, inputs, labels if labels is not None and labels.shape == (inputs,) else None)


def _is_floating(leaf: Any) -> bool:
    return isinstance(leaf, Tensor) and leaf.is_floating_point()


def _tensor(leaf: Any, like: Tensor | None) -> Any:
    """Return an array as a tensor, on the device of the example and, where it holds fractions, in its precision."""
    value = torch.from_numpy(leaf) if isinstance(leaf, np.ndarray) else leaf
    if like is None or not isinstance(value, Tensor):
        return value
    return value.to(like.device, like.dtype if value.is_floating_point() else value.dtype)


def _check(part: Split, number: int) -> None:
    """Refuse what is no number: every unit would seem dead on it."""
    for leaf in tree_leaves(part.arguments):
        # A sum is quick, and finite unless something in it is not; or is huge, which the second look tells.
        if _is_floating(leaf) and not bool(leaf.sum().isfinite()) and not bool(leaf.isfinite().all()):
            bad = int((~leaf.isfinite()).sum())
            raise ValueError(
                f"batch {number} of the data holds nan or infinity ({bad:,} of {leaf.numel():,} values): "
                "leave such inputs out, or replace them"
            )
