"""Batches of data in the form that a network accepts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from relucid._torch import tree_leaves, tree_map
from relucid.data.source import count_rows, in_batches
from relucid.inspect.execution import Batch


@dataclass(frozen=True)
class DataBatch:
    """One batch: the arguments of the network, and the number of inputs."""

    arguments: Batch
    inputs: int


def batches_of(data: Any, example: Batch) -> Iterator[DataBatch]:
    """Yield the batches of ``data`` in the form of the example.

    Args:
        data: In any form that `relucid.data.in_batches` takes. Labels may follow the inputs of a batch.
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


def _batch(batch: Any, example: Batch) -> DataBatch:
    """A batch in the form of the example, without the labels."""
    if isinstance(batch, tuple | list):
        batch = batch[0] if isinstance(example, Tensor | Mapping) else tuple(batch[: len(example)])
    elif isinstance(batch, Mapping) and isinstance(example, Mapping):
        batch = {n: value for n, value in batch.items() if n in example or n not in ("labels", "label")}
    elif isinstance(batch, Mapping) and isinstance(example, Tensor):
        raise TypeError(
            f"the example is one tensor, but a batch of the data names its arguments ({', '.join(batch)}): "
            "give the example as a mapping, too"
        )
    like = next((leaf for leaf in tree_leaves(example) if _is_floating(leaf)), None)
    arguments: Batch = tree_map(lambda leaf: _tensor(leaf, like), batch)
    return DataBatch(arguments, count_rows(arguments))


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
