"""Inputs of a network: what the user gives, and inputs made of it, with other sizes."""

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import Dataset

from relucid._torch import tree_leaves, tree_map, tree_map_only
from relucid.convert.errors import ArgumentError
from relucid.data import in_batches
from relucid.inspect.batches import fitted
from relucid.inspect.execution import Arguments, Method, function_of

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
        function = function_of(model, call)
        given = given if isinstance(given, list) and not _is_pair(given) else [given]
        examples = [_arguments(one, function) for one in given]
    except (TypeError, ValueError, StopIteration) as error:
        raise ArgumentError(str(error) or "the example holds no batch") from error
    if not examples:
        raise ArgumentError("the list of examples is empty; give at least one")
    like = next((p for p in model.parameters() if p.is_floating_point()), None)
    tensors: list[Example] = tree_map(lambda leaf: _tensor(leaf, like), examples)
    for example in tensors:
        _check(example)
    return tensors


def _arguments(given: Any, function: Callable[..., Any]) -> Example:
    signature: inspect.Signature | None
    try:
        signature = inspect.signature(function.forward if isinstance(function, nn.Module) else function)
    except (TypeError, ValueError):
        signature = None
    if not isinstance(given, Tensor | np.ndarray | tuple | Mapping | Arguments | list):
        given = (
            next(iter(in_batches(given)))
            if hasattr(given, "__iter__") or hasattr(given, "__getitem__")
            else given
        )
    call = fitted(tuple(given) if isinstance(given, list) else given, signature)
    return call.args, dict(call.kwargs)


def _is_pair(given: list[Any]) -> bool:
    """Whether a list is one batch with its labels, as a loader makes it, and not two examples."""
    if len(given) != 2 or not all(isinstance(x, Tensor | np.ndarray) and x.ndim for x in given):
        return False
    return len(given[0]) == len(given[1]) and given[1].ndim == 1 < given[0].ndim


def _tensor(leaf: Any, like: Tensor | None) -> Any:
    value = torch.from_numpy(leaf) if isinstance(leaf, np.ndarray) else leaf
    if not isinstance(value, Tensor):
        return value
    value = value.detach()
    value = value.clone() if value.is_inference() else value
    dtype = like.dtype if like is not None and value.is_floating_point() else value.dtype
    return value if like is None else value.to(like.device, dtype)


def _check(example: Example) -> None:
    """Refuse an example on which every network would seem to compute the same."""
    tensors = [x for x in tree_leaves(example) if isinstance(x, Tensor)]
    if tensors and not any(x.numel() for x in tensors):
        raise ArgumentError("the example has no elements; give a batch of at least one input")
    if any(bool((x.isnan() | x.isposinf()).any()) for x in tensors if x.is_floating_point()):
        # Negative infinity is what masks of attention are made of.
        raise ArgumentError("the example holds NaN or infinity; give one of finite numbers")


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
