"""Inputs in whatever form a person has them at hand, as batches that a network takes."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from relucid._torch import tree_leaves, tree_map
from relucid.data import in_batches
from relucid.data.source import count_rows
from relucid.inspect.execution import Arguments, Given, Method, function_of

SIZE = 256  # rows per batch when inputs are not in batches yet


@dataclass(frozen=True)
class CalledParts:
    """Batches by the part of a network that was called on them: "" for the network itself, as `Watch` keeps them."""

    batches: Mapping[str, list[Given]] = field(default_factory=dict)


def parts_of(
    model: nn.Module, inputs: Any, call: Method | None = None
) -> Iterator[tuple[str, nn.Module, Iterable[Given]]]:
    """Yield every part to run, by name, and the batches to run it on."""
    if isinstance(inputs, CalledParts):
        for name, batches in inputs.batches.items():
            yield name, model.get_submodule(name), batches
    else:
        yield "", model, batches_for(model, inputs, call)


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
    function = function_of(model, call)
    like = next((p for p in model.parameters() if p.is_floating_point()), None)
    signature = _signature(function)
    whole = isinstance(inputs, tuple | Mapping | Arguments)
    empty = True
    for given in _chunks(fitted(inputs, signature)) if whole else in_batches(inputs, SIZE):
        batch = given if isinstance(given, Arguments) else fitted(given, signature)
        batch = Arguments(*tree_map(lambda leaf: _tensor(leaf, like), (batch.args, dict(batch.kwargs))))
        _check(batch)
        empty = False
        yield batch
    if empty:
        raise ValueError("there are no inputs: give at least one")


def fitted(given: Any, signature: inspect.Signature | None) -> Arguments:
    """The arguments of one call that a network's signature takes; labels after them are left out."""
    if isinstance(given, Arguments):
        return given
    forms: list[Arguments] = []
    if isinstance(given, Mapping):
        unlabelled = {name: value for name, value in given.items() if name not in ("labels", "label")}
        forms = [Arguments((), dict(given)), Arguments((), unlabelled), Arguments((dict(given),))]
    elif isinstance(given, tuple | list) and given:
        forms = [
            Arguments(tuple(given)),
            *(Arguments(tuple(given[:n])) for n in range(len(given) - 1, 0, -1)),
        ]
        forms.append(Arguments((given,)))
    else:
        forms = [Arguments((given,))]
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
    if isinstance(given, Tensor | np.ndarray):
        return f"a {type(given).__name__} of shape {tuple(given.shape)}"
    name = type(given).__name__
    article = "an" if name[0].lower() in "aeiou" else "a"
    if isinstance(given, tuple | list) and 0 < len(given) < 5 and not isinstance(given[0], int | float):
        parts = [
            spoken(each) if not isinstance(each, tuple | list) else f"a {type(each).__name__}"
            for each in given
        ]
        return f"{article} {name} of {' and '.join(parts)}"
    if isinstance(given, Mapping):
        return f"{article} {name} with {', '.join(map(str, given)) or 'nothing'}"
    return f"{article} {name}"


def _signature(function: Any) -> inspect.Signature | None:
    try:
        return inspect.signature(function.forward if isinstance(function, nn.Module) else function)
    except (TypeError, ValueError):
        return None


def _chunks(whole: Arguments) -> Iterator[Arguments]:
    """Parts of some rows each, if all arrays have equally many rows."""
    leaves = [leaf for leaf in tree_leaves((whole.args, dict(whole.kwargs))) if _is_array(leaf)]
    rows = {len(leaf) for leaf in leaves if leaf.ndim}
    if len(rows) != 1 or (total := rows.pop()) <= SIZE or any(not leaf.ndim for leaf in leaves):
        yield whole
        return
    for start in range(0, total, SIZE):
        part = slice(start, start + SIZE)

        def cut(leaf: Any, part: slice = part) -> Any:
            return leaf[part] if _is_array(leaf) else leaf

        args, kwargs = tree_map(cut, (whole.args, dict(whole.kwargs)))
        yield Arguments(args, kwargs)


def _is_array(leaf: Any) -> bool:
    return isinstance(leaf, Tensor | np.ndarray)


def _tensor(leaf: Any, like: Tensor | None) -> Any:
    """An array as a tensor on the network's device, with its dtype if it is floating-point."""
    value = torch.from_numpy(leaf) if isinstance(leaf, np.ndarray) else leaf
    if like is None or not isinstance(value, Tensor):
        return value
    return value.detach().to(like.device, like.dtype if value.is_floating_point() else value.dtype)


def _check(batch: Arguments) -> None:
    """Refuse no rows, and nan: every unit would look dead on them."""
    for leaf in tree_leaves((batch.args, dict(batch.kwargs))):
        if isinstance(leaf, Tensor) and leaf.dim() and not len(leaf):
            raise ValueError("the inputs are empty: give at least one")
        if isinstance(leaf, Tensor) and leaf.is_floating_point() and bool(leaf.isnan().any()):
            raise ValueError(
                f"the inputs hold nan ({int(leaf.isnan().sum()):,} values): remove or replace those"
            )


def inputs_in(batch: Given) -> int:
    """The number of inputs in a batch: rows, or tokens of sequences of whole numbers."""
    tree = (batch.args, dict(batch.kwargs)) if isinstance(batch, Arguments) else batch
    leaf = next((x for x in tree_leaves(tree) if isinstance(x, Tensor) and x.dim()), None)
    if leaf is not None and leaf.dim() == 2 and leaf.dtype in (torch.int64, torch.int32):
        return leaf.numel()
    return count_rows(tree)
