"""Batches of data in any form, with targets where there are any."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from relucid._torch import tree_leaves
from relucid.data.dataset import Data, Split
from relucid.data.given import Rows, read

SIZE = 64  # rows per batch when data are not in batches yet


def in_batches(data: Any, size: int = SIZE) -> Iterable[Any]:
    """The batches of data in any form, in order: inputs, with targets where the data have any.

    Args:
        data: a tensor or array of inputs, a pair of inputs and targets, a mapping of arguments, a data set, an
            iterable of batches such as a loader, or whatever else `as_data` takes; of two parts, the batches of both.
        size: rows per batch; data that are in batches already stay as they are.

    >>> [tuple(batch.shape) for batch in in_batches(torch.zeros(100, 3))]
    [(64, 3), (36, 3)]
    """
    if isinstance(data, str | Path):
        data = read(data)
    if isinstance(data, Data):
        return chain(in_batches(data.train, size), in_batches(data.test, size))
    if isinstance(data, Split | Rows):
        batch = data.batch
        return Chunks(
            len(data), size, lambda rows: batch(torch.arange(rows.start, rows.stop), rows.start // size)
        )
    if _is_labelled(data):
        inputs, labels = data
        return Chunks(len(inputs), size, lambda rows: (inputs[rows], labels[rows]))
    if isinstance(data, Tensor):
        return Chunks(len(data), size, data.__getitem__)
    if isinstance(data, np.ndarray):
        return Chunks(len(data), size, lambda rows: torch.from_numpy(data[rows]))
    if isinstance(data, Mapping):
        arguments = dict(data)
        return Chunks(count_rows(arguments), size, lambda rows: _rows_of(arguments, rows))
    if isinstance(data, Dataset):
        return DataLoader(data, batch_size=size)
    if isinstance(data, tuple) and data and all(isinstance(each, Dataset | DataLoader) for each in data):
        return chain.from_iterable(in_batches(each, size) for each in data)  # to train and to test on
    if isinstance(data, Iterable) and not isinstance(data, bytes):
        return data
    raise TypeError(
        f"data must be a tensor, an array, a mapping of arguments, a dataset or an iterable of batches, "
        f"not {type(data).__name__}"
    )


@dataclass(frozen=True)
class Chunks:
    """Batches of so many rows, each made when it is needed.

    >>> len(Chunks(100, 64, range(100).__getitem__)), list(Chunks(5, 2, "abcde".__getitem__))
    (2, ['ab', 'cd', 'e'])
    """

    rows: int
    size: int
    take: Callable[[slice], Any]

    def __len__(self) -> int:
        return -(-self.rows // self.size)

    def __iter__(self) -> Iterator[Any]:
        starts = range(0, self.rows, self.size)
        return (self.take(slice(start, min(start + self.size, self.rows))) for start in starts)


def _is_labelled(data: Any) -> bool:
    """Whether data is a pair (inputs, targets): a tuple of two arrays with equally many rows."""
    if not isinstance(data, tuple) or len(data) != 2 or None in map(_rows, data):
        return False
    inputs, targets = data
    # x.split(...) cuts rows; columns of one table are inputs and targets
    if inputs.shape[1:] == targets.shape[1:] and _is_cut_from_one(inputs, targets):
        return False
    if inputs.ndim > 1 and inputs.shape == targets.shape:
        raise ValueError(
            "two arrays of one shape may be inputs and targets, or two batches: give the inputs alone, or a list of "
            "batches"
        )
    return len(inputs) == len(targets)


def _is_cut_from_one(a: Any, b: Any) -> bool:
    """Whether two tensors or arrays are parts of the same one."""
    if isinstance(a, Tensor) and isinstance(b, Tensor):
        return a.untyped_storage().data_ptr() == b.untyped_storage().data_ptr()
    base = getattr(a, "base", None)
    return base is not None and base is getattr(b, "base", None)


def _rows_of(arguments: Mapping[str, Any], rows: slice) -> dict[str, Any]:
    """Some rows of every argument that has as many as the first array; the others are passed on whole."""
    total = count_rows(arguments)
    return {name: value[rows] if _rows(value) == total else value for name, value in arguments.items()}


def count_rows(arguments: Any) -> int:
    """The number of rows of the first array among the arguments; 1 if there is none."""
    return next((rows for leaf in tree_leaves(arguments) if (rows := _rows(leaf)) is not None), 1)


def _rows(value: Any) -> int | None:
    return len(value) if isinstance(value, Tensor | np.ndarray) and value.ndim else None
