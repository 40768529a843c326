"""Inputs of a network: what the user gives, and inputs made of it, with other sizes."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import Dataset

from relucid._torch import tree_leaves, tree_map_only
from relucid.convert.errors import ConversionError
from relucid.inspect.batches import example_for
from relucid.inspect.execution import Arguments, Method

# What a user has at hand: arrays, tuples and mappings of arguments, loaders, data sets, lists of several examples.
Given = Tensor | np.ndarray | Iterable[Any] | Dataset[Any] | Arguments
Example = tuple[tuple[Any, ...], dict[str, Any]]  # the arguments of one call
Sizes = Mapping[tuple[int, int], int]  # by dimension and size in the example: the new size


def examples_of(model: nn.Module, given: Any, call: Method | None = None) -> list[Example]:
    """The arguments of one or several calls, in whatever form they are at hand.

    A list is several examples. Labels that the network has no place for are left out, arrays become tensors of its
    dtype. Of a data set, a loader or any other iterable, the first batch is taken.

    >>> net = nn.Linear(3, 2)
    >>> [args[0].shape for args, _ in examples_of(net, [np.zeros((4, 3)), (torch.zeros(5, 3), torch.zeros(5))])]
    [torch.Size([4, 3]), torch.Size([5, 3])]
    """
    try:
        given = given if isinstance(given, list) and not _is_pair(given) else [given]
        calls = [example_for(model, tuple(x) if isinstance(x, list) else x, call) for x in given]
    except (TypeError, ValueError, StopIteration) as error:
        raise ConversionError(str(error) or "the example holds no batch") from error
    if not calls:
        raise ConversionError("the list of examples is empty; give at least one")
    examples = [(one.args, dict(one.kwargs)) for one in calls]
    for example in examples:
        _check(example)
    return examples


def _is_pair(given: list[Any]) -> bool:
    """Whether a list is one batch with its labels, as a loader makes it, and not two examples."""
    if len(given) != 2 or not all(isinstance(x, Tensor | np.ndarray) and x.ndim for x in given):
        return False
    return len(given[0]) == len(given[1]) and given[1].ndim == 1 < given[0].ndim


def _check(example: Example) -> None:
    """Refuse an example on which every network would seem to compute the same."""
    tensors = [x for x in tree_leaves(example) if isinstance(x, Tensor)]
    if tensors and not any(x.numel() for x in tensors):
        raise ConversionError("the example has no elements; give a batch of at least one input")
    if any(bool((x.isnan() | x.isposinf()).any()) for x in tensors if x.is_floating_point()):
        # Negative infinity is what masks of attention are made of.
        raise ConversionError("the example holds NaN or infinity; give one of finite numbers")


def sizes_of(example: Example) -> str:
    """The sizes of an example in words."""
    tensors = [x for x in tree_leaves(example) if isinstance(x, Tensor)]
    return "an input of " + " and ".join("x".join(map(str, x.shape)) or "one number" for x in tensors[:3])


def alternatives(example: Example) -> Iterator[Iterator[Example]]:
    """Yield series of examples with other sizes; the first of each series that a network takes is enough.

    >>> [tuple(next(series)[0][0].shape) for series in alternatives(((torch.randn(8, 3, 8, 8),), {}))]
    [(3, 3, 9, 9), (1, 3, 8, 8)]
    """
    for changes in _changes(example):
        yield (resized(example, sizes) for sizes in changes)


def _changes(example: Example) -> Iterator[list[Sizes]]:
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


def _largest(example: Example) -> Tensor | None:
    tensors = [x for x in tree_leaves(example) if isinstance(x, Tensor)]
    return max(tensors, key=Tensor.dim, default=None)


def batch_size(example: Example) -> int:
    """The first size of the tensor with the most dimensions; 1 if there is none."""
    first = _largest(example)
    return 1 if first is None or first.dim() == 0 else first.shape[0]


def resized(example: Example, sizes: Sizes) -> Example:
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

    made: Example = tree_map_only(Tensor, make, example)
    return made
