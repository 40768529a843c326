"""Inputs of a network: the user's data, and inputs made from an example, with other sizes."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

from relucid._torch import tree_leaves, tree_map_only
from relucid.convert.errors import ArgumentError
from relucid.inspect.batches import batches_of

Batch = Tensor | tuple[Any, ...] | Mapping[str, Any]
Sizes = Mapping[tuple[int, int], int]  # by dimension and size in the example: the new size


def arguments(example: Batch) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The positional and keyword arguments that an example stands for.

    >>> arguments((1, 2)), arguments({"x": 1})
    (((1, 2), {}), ((), {'x': 1}))
    """
    if isinstance(example, Mapping):
        return (), dict(example)
    return (example if isinstance(example, tuple) else (example,)), {}


def batches(data: Any, example: Batch) -> list[Any]:
    """The batches of data in any form that `relucid.inspect.examine` takes, in the form of the example.

    >>> [tuple(batch.shape) for batch in batches(torch.zeros(100, 3), torch.zeros(1, 3))]
    [(64, 3), (36, 3)]
    """
    try:
        return [batch.arguments for batch in batches_of(data, example)]
    except (TypeError, ValueError) as error:
        raise ArgumentError(str(error)) from error


def alternatives(example: Batch) -> Iterator[Iterator[Batch]]:
    """Yield series of examples with other sizes; the first of each series that a network takes is enough.

    >>> [tuple(next(series).shape) for series in alternatives(torch.randn(8, 3, 8, 8))]
    [(3, 3, 9, 9), (1, 3, 8, 8)]
    """
    for changes in _changes(example):
        yield (resized(example, sizes) for sizes in changes)


def _changes(example: Batch) -> Iterator[list[Sizes]]:
    """Yield lists of alternative sizes; the first of each list that the network takes is used."""
    first = _largest(example)
    if first is None or first.dim() == 0:
        return
    n = first.shape[0]
    # A small batch costs little; but where norms see two values, they amplify rounding.
    batch = {(0, n): 1 if n == 2 else min(3, max(2, n // 2))}
    places = [(d, first.shape[d]) for d in range(2, first.dim())]
    changes: list[Callable[[int], int]] = [lambda s: s + 1, lambda s: s // 2, lambda s: s + 32]
    if places and min(s for _, s in places) >= 16:
        changes.insert(0, lambda s: s // 2 + 1)
    larger = [{place: change(place[1]) for place in places} for change in changes] if places else []
    yield [*({**batch, **sizes} for sizes in larger), batch, *larger]
    if n > 2:
        yield [{(0, n): 1}]
    if first.dim() in (2, 3):  # (batch, length), (batch, length, features)
        yield [{**batch, (1, first.shape[1]): first.shape[1] + 1}]


def _largest(example: Batch) -> Tensor | None:
    found = [x for x in tree_leaves(arguments(example)) if isinstance(x, Tensor)]
    return max(found, key=Tensor.dim, default=None)


def batch_size(example: Batch) -> int:
    """The first size of the tensor with the most dimensions; 1 if there is none."""
    first = _largest(example)
    return 1 if first is None or first.dim() == 0 else first.shape[0]


def resized(example: Batch, sizes: Sizes) -> Batch:
    """An example with other sizes; its entries are drawn from the example's, with noise added."""
    generator = torch.Generator().manual_seed(1)

    def make(x: Tensor) -> Tensor:
        shape = [sizes.get((d, s), s) for d, s in enumerate(x.shape)]
        if not x.numel():
            return x.new_zeros(shape)
        flat = x.detach().flatten()
        entries = flat[torch.randint(len(flat), shape, generator=generator).to(x.device)]
        if not x.is_floating_point() or not bool(flat.isfinite().all()):
            return entries
        spread = flat.std(correction=0) if len(flat) > 1 else flat.new_zeros(())
        noise = torch.randn(shape, generator=generator, dtype=torch.float64).to(x)
        return entries + 2 * torch.where(spread == 0, 1, spread) * noise

    made: Batch = tree_map_only(Tensor, make, example)
    return made
