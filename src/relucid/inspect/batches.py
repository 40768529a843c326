"""Turn data in any common form into batches that a network accepts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sized
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from relucid._torch import tree_leaves, tree_map
from relucid.inspect.execution import Batch

SIZE = 64  # rows per batch when an array is split


@dataclass(frozen=True)
class DataBatch:
    """One batch: the arguments of the network, the number of inputs, and their labels if there are any."""

    arguments: Batch
    inputs: int
    labels: Tensor | None


def batches_of(data: Any, example: Batch) -> Iterator[DataBatch]:
    """Yield the batches of ``data`` in the form of the example.

    Args:
        data: A tensor or array of inputs, a tuple of inputs and targets, a mapping of arguments, a dataset, or an
            iterable of batches such as a loader. Labels may follow the inputs of a batch.
        example: An input of the network: a tensor, a tuple of positional arguments or a mapping of keyword
            arguments.

    >>> batches = batches_of(np.zeros((100, 3)), torch.zeros(1, 3))
    >>> [(batch.arguments.shape, batch.arguments.dtype, batch.inputs) for batch in batches]
    [(torch.Size([64, 3]), torch.float32, 64), (torch.Size([36, 3]), torch.float32, 36)]
    """
    example = dict(example) if isinstance(example, Mapping) else example
    empty = True
    for number, given in enumerate(in_batches(data)):
        batch = _batch(given, example)
        _check(batch, number)
        if batch.inputs:
            empty = False
            yield batch
    if empty:
        raise ValueError("the data is empty: give at least one batch of inputs")


def count_of(data: Any) -> int | None:
    """The number of batches; None if it is not known."""
    if isinstance(data, Tensor | np.ndarray):
        return -(-len(data) // SIZE)
    if _is_labelled(data):
        return count_of(data[0])
    if isinstance(data, Mapping):
        return -(-_length(dict(data)) // SIZE)
    if isinstance(data, Dataset):
        return -(-len(data) // SIZE) if isinstance(data, Sized) else None
    return len(data) if isinstance(data, Sized) else None


def in_batches(data: Any) -> Iterable[Any]:
    """The batches of ``data`` as they come, before they are brought into the form of an example."""
    if _is_labelled(data):
        inputs, labels = data
        return ((inputs[i : i + SIZE], labels[i : i + SIZE]) for i in range(0, len(inputs), SIZE))
    if isinstance(data, Tensor):
        split: tuple[Tensor, ...] = data.split(SIZE)
        return split
    if isinstance(data, np.ndarray):
        return (torch.from_numpy(data[i : i + SIZE]) for i in range(0, len(data), SIZE))
    if isinstance(data, Mapping):
        return (_slice(dict(data), i) for i in range(0, _length(dict(data)), SIZE))
    if isinstance(data, Dataset):
        return DataLoader(data, batch_size=SIZE)
    if isinstance(data, tuple) and data and all(isinstance(each, Dataset | DataLoader) for each in data):
        return chain.from_iterable(map(in_batches, data))  # as `improve` takes them, to train and to test on
    if isinstance(data, Iterable) and not isinstance(data, str | bytes):
        return data
    raise TypeError(
        f"data must be a tensor, an array, a mapping of arguments, a dataset or an iterable of batches, "
        f"not {type(data).__name__}"
    )


def _is_labelled(data: Any) -> bool:
    """Whether data is a pair (inputs, targets): a tuple of two arrays with equally many rows."""
    if not isinstance(data, tuple) or len(data) != 2 or None in map(_rows, data):
        return False
    inputs, targets = data
    if _is_cut_from_one(inputs, targets):  # by x.split(...)
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


def _slice(arguments: Mapping[str, Any], start: int) -> dict[str, Any]:
    """One batch of rows from ``start``; arguments without that many rows are passed on whole."""
    rows = _length(arguments)
    return {
        name: value[start : start + SIZE] if _rows(value) == rows else value
        for name, value in arguments.items()
    }


def _length(arguments: Any) -> int:
    """The number of rows of the first array among the arguments; 1 if there is none."""
    return next((rows for leaf in tree_leaves(arguments) if (rows := _rows(leaf)) is not None), 1)


def _rows(value: Any) -> int | None:
    return len(value) if isinstance(value, Tensor | np.ndarray) and value.ndim else None


def _batch(batch: Any, example: Batch) -> DataBatch:
    """A batch in the form of the example; what is left over becomes the labels."""
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
            "give the example as a mapping, too"
        )
    like = next((leaf for leaf in tree_leaves(example) if _is_floating(leaf)), None)
    arguments: Batch = tree_map(lambda leaf: _tensor(leaf, like), batch)
    inputs = _length(arguments)
    labels = torch.as_tensor(labels) if isinstance(labels, Tensor | np.ndarray | list) else None
    return DataBatch(arguments, inputs, labels if labels is not None and labels.shape == (inputs,) else None)


def _is_floating(leaf: Any) -> bool:
    return isinstance(leaf, Tensor) and leaf.is_floating_point()


def _tensor(leaf: Any, like: Tensor | None) -> Any:
    """An array as a tensor on the example's device, with the example's dtype if it is floating-point."""
    value = torch.from_numpy(leaf) if isinstance(leaf, np.ndarray) else leaf
    if like is None or not isinstance(value, Tensor):
        return value
    return value.to(like.device, like.dtype if value.is_floating_point() else value.dtype)


def _check(batch: DataBatch, number: int) -> None:
    """Refuse nan and infinity: every unit would look dead on them."""
    for leaf in tree_leaves(batch.arguments):
        # Summing is fast. The sum of finite values may still overflow, so a suspect is checked value by value.
        if _is_floating(leaf) and not bool(leaf.sum().isfinite()) and not bool(leaf.isfinite().all()):
            bad = int((~leaf.isfinite()).sum())
            raise ValueError(
                f"batch {number} of the data holds nan or infinity ({bad:,} of {leaf.numel():,} values): "
                "remove or replace those inputs"
            )
