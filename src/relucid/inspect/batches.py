"""Inputs in whatever form a person has them at hand, as batches that a network takes."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from relucid._torch import tree_map
from relucid.data.source import count_rows, in_batches
from relucid.inspect.execution import Arguments, Given, Method, function_of

LABELS = ("labels", "label")  # names of arguments that many networks do not take
SIZE = 256  # rows per batch when inputs are not in batches yet, and no example tells how large they are


@dataclass(frozen=True)
class CalledParts:
    """Batches by the part of a network that was called on them: "" for the network itself, as `Watch` keeps them."""

    batches: Mapping[str, list[Given]] = field(default_factory=dict)


def parts_of(
    model: nn.Module, inputs: Any, call: Method | None = None
) -> Iterator[tuple[str, nn.Module, Method | None, Iterable[Given]]]:
    """Yield every part to run, by name, how it is used, and the batches to run it on."""
    if isinstance(inputs, CalledParts):
        for name, batches in inputs.batches.items():
            yield name, model.get_submodule(name), None if name else call, batches
    else:
        yield "", model, call, batches_for(model, inputs, call)


def joined(batches: list[Arguments]) -> list[Arguments]:
    """Several calls as one, if they differ in the rows of tensors only; otherwise as they are."""
    trees = [(batch.args, dict(batch.kwargs)) for batch in batches]
    try:
        return [Arguments(*tree_map(_concatenated, *trees, is_leaf=_is_whole))]
    except (ValueError, TypeError, RuntimeError):
        return [*batches]


def _is_whole(tree: Any) -> bool:
    """Whether a tuple has names, as packed sequences do, whose parts belong to each other."""
    return isinstance(tree, tuple) and hasattr(tree, "_fields")


def _concatenated(first: Any, *others: Any) -> Any:
    if isinstance(first, Tensor):
        return torch.cat([first, *others])
    if any(other is not first and other != first for other in others):
        raise ValueError("other values than tensors differ")
    return first


def batches_for(model: nn.Module, inputs: Any, call: Method | None = None) -> Iterator[Given]:
    """Yield inputs as batches that a network takes: tensors on its device, without labels that it has no place for.

    Args:
        model: The network.
        inputs: A tensor or array, a tuple of arguments or a pair of inputs and labels, a mapping of arguments, a data
            set, a loader or any other iterable of batches.
        call: How the network is used, if not through its forward.

    >>> [batch.args[0].shape for batch in batches_for(nn.Linear(3, 2), (np.zeros((300, 3)), np.zeros(300)))]
    [torch.Size([256, 3]), torch.Size([44, 3])]
    """
    signature = signature_of(model, call)
    like = _floating_parameter(model)
    whole = isinstance(inputs, tuple | Mapping | Arguments)
    number = -1
    for number, given in enumerate(_chunks(fitted(inputs, signature)) if whole else in_batches(inputs, SIZE)):
        batch = _like(fitted(given, signature), like)
        _check(batch, number)
        yield batch
    if number < 0:
        raise ValueError("there are no inputs: give at least one")


def example_for(model: nn.Module, given: Any, call: Method | None = None) -> Arguments:
    """The arguments of one call: tensors on the network's device and of its dtype, without labels.

    Args:
        model: The network.
        given: One batch in any form; of a loader, a data set or any other iterable, the first batch.
        call: How the network is used, if not through its forward.

    >>> example_for(nn.Linear(3, 2), (np.zeros((4, 3)), np.zeros(4))).args[0].dtype
    torch.float32
    """
    if not is_one_batch(given) and (hasattr(given, "__iter__") or hasattr(given, "__getitem__")):
        given = next(iter(in_batches(given)))
    return _like(fitted(given, signature_of(model, call)), _floating_parameter(model))


def is_one_batch(given: Any) -> bool:
    """Whether these are the arguments of one call, not a collection of batches."""
    return isinstance(given, Tensor | np.ndarray | tuple | list | Mapping | Arguments | PackedSequence)


def _floating_parameter(model: nn.Module) -> Tensor | None:
    return next((p for p in model.parameters() if p.is_floating_point()), None)


def batches_of(data: Any, example: Arguments) -> Iterator[Arguments]:
    """Yield the batches of ``data`` as arguments like those of an example, with its dtype and device.

    Args:
        data: In any form that `relucid.data.in_batches` takes. Labels may follow the inputs of a batch.
        example: The arguments of one call.

    >>> batches = batches_of(np.zeros((100, 3)), Arguments((torch.zeros(1, 3),)))
    >>> [(batch.args[0].shape, batch.args[0].dtype) for batch in batches]
    [(torch.Size([64, 3]), torch.float32), (torch.Size([36, 3]), torch.float32)]
    """
    like = next((leaf for leaf in example.leaves if _is_floating(leaf)), None)
    empty = True
    for number, given in enumerate(in_batches(data)):
        batch = _like(_formed(given, example), like)
        if any(leaf.dim() and not len(leaf) for leaf in batch.leaves if isinstance(leaf, Tensor)):
            continue
        _check(batch, number)
        empty = False
        yield batch
    if empty:
        raise ValueError("the data is empty: give at least one batch of inputs")


def _formed(batch: Any, example: Arguments) -> Arguments:
    """A batch in the form of the example, without the labels."""
    first = batch[0] if isinstance(batch, tuple | list) else batch
    if example.kwargs:
        return Arguments((), {n: x for n, x in first.items() if n in example.kwargs or n not in LABELS})
    if len(example.args) != 1:
        return Arguments(tuple(batch[: len(example.args)]))
    (only,) = example.args
    if isinstance(only, Tensor):
        if isinstance(batch, Mapping):
            raise TypeError(
                f"the example is one tensor, but a batch of the data names its arguments ({', '.join(batch)}): "
                "give the example as a mapping, too"
            )
        return Arguments((first,))
    same = type(batch) is type(only) and (isinstance(only, Mapping) or len(batch) == len(only))
    return Arguments((batch if same else first,))


def signature_of(model: nn.Module, call: Method | None = None) -> inspect.Signature | None:
    """The arguments that a network takes, if they can be known."""
    function = function_of(model, call)
    try:
        return inspect.signature(function.forward if isinstance(function, nn.Module) else function)
    except (TypeError, ValueError):
        return None


def fitted(given: Any, signature: inspect.Signature | None) -> Arguments:
    """The arguments of one call that a network's signature takes; labels after them are left out."""
    if isinstance(given, Arguments):
        return given
    forms = [Arguments((given,))]
    if isinstance(given, Mapping):
        unlabelled = {name: value for name, value in given.items() if name not in LABELS}
        forms = [Arguments((), dict(given)), Arguments((), unlabelled), Arguments((dict(given),))]
    elif isinstance(given, tuple | list) and given and not isinstance(given, PackedSequence):
        forms = [Arguments(tuple(given[:n])) for n in range(len(given), 0, -1)] + forms
    if signature is None:
        return forms[0]
    for form in forms:
        try:
            signature.bind(*form.args, **form.kwargs)
        except TypeError:
            continue
        return form
    takes = ", ".join(signature.parameters) or "nothing"
    raise TypeError(
        f"the network takes ({takes}), but its inputs are {spoken(given)}: give a tensor, a tuple of its arguments, a "
        "mapping of them, or a loader"
    )


def spoken(given: Any) -> str:
    """What was given, in words.

    >>> spoken((torch.zeros(4, 3), [1, 2]))
    'a tuple of a Tensor of shape (4, 3) and a list'
    """
    if _is_array(given):
        return f"a {type(given).__name__} of shape {tuple(given.shape)}"
    name = type(given).__name__
    article = "an" if name[0].lower() in "aeiou" else "a"
    if isinstance(given, tuple | list) and 0 < len(given) < 5 and not isinstance(given[0], int | float):
        parts = [f"a {type(x).__name__}" if isinstance(x, tuple | list) else spoken(x) for x in given]
        return f"{article} {name} of {' and '.join(parts)}"
    if isinstance(given, Mapping):
        return f"{article} {name} with {', '.join(map(str, given)) or 'nothing'}"
    return f"{article} {name}"


def _chunks(whole: Arguments) -> Iterator[Arguments]:
    """Parts of some rows each, if all arrays have equally many rows and none relates rows to rows."""
    arrays = [leaf for leaf in whole.leaves if _is_array(leaf)]
    rows = {len(leaf) if leaf.ndim else 0 for leaf in arrays}
    total = max(rows, default=0)
    if len(rows) != 1 or total <= SIZE or any(leaf.shape[1:] == (total,) for leaf in arrays):
        yield whole
        return
    for start in range(0, total, SIZE):
        part = slice(start, start + SIZE)

        def cut(leaf: Any, part: slice = part) -> Any:
            return leaf[part] if _is_array(leaf) else leaf

        yield whole.map(cut)


def _like(batch: Arguments, like: Tensor | None) -> Arguments:
    """Arrays as tensors, on the device of another and with its dtype if they are floating-point."""

    def tensor(leaf: Any) -> Any:
        value = torch.from_numpy(leaf) if isinstance(leaf, np.ndarray) else leaf
        if not isinstance(value, Tensor):
            return value
        value = value.detach().clone() if value.is_inference() else value.detach()
        if like is None:
            return value
        return value.to(like.device, like.dtype if value.is_floating_point() else value.dtype)

    return batch.map(tensor)


def _check(batch: Arguments, number: int) -> None:
    """Refuse nan and infinity, on which every unit would look dead; only masks after the input hold infinity."""
    for place, leaf in enumerate(batch.leaves):
        if isinstance(leaf, Tensor) and leaf.dim() and not len(leaf):
            raise ValueError("the inputs are empty: give at least one")
        # Summing is fast. The sum of finite values may still overflow, so a suspect is checked value by value.
        if not _is_floating(leaf) or bool(leaf.sum().isfinite()):
            continue
        wrong = int((~leaf.isfinite() if place == 0 else leaf.isnan()).sum())
        if wrong:
            raise ValueError(
                f"batch {number} of the data holds nan or infinity ({wrong:,} of {leaf.numel():,} values): "
                "remove or replace those inputs"
            )


def _is_array(leaf: Any) -> bool:
    return isinstance(leaf, Tensor | np.ndarray)


def _is_floating(leaf: Any) -> bool:
    return isinstance(leaf, Tensor) and leaf.is_floating_point()


def inputs_in(batch: Given) -> int:
    """The number of inputs in a batch: rows, or tokens of sequences of whole numbers."""
    leaves = Arguments.of(batch).leaves
    leaf = next((x for x in leaves if isinstance(x, Tensor) and x.dim()), None)
    if leaf is not None and leaf.dim() == 2 and leaf.dtype in (torch.int64, torch.int32):
        return leaf.numel()
    return count_rows(leaves)
