"""What a network looks like: the classes of its modules, and the shapes of their tensors."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from torch import nn

from relucid.convert._recipe import RECIPE

Signature = Mapping[str, tuple[str, dict[str, tuple[int, ...]]]]


def signature(model: nn.Module) -> Signature:
    """The class of every module, and the shapes of its own tensors.

    >>> signature(nn.Linear(2, 3))
    {'': ('Linear', {'weight': (3, 2), 'bias': (3,)})}
    """
    return {
        name: (type(module).__name__, {k: shape for k, shape in _shapes(module) if k != RECIPE})
        for name, module in model.named_modules()
    }


def _shapes(module: nn.Module) -> Iterable[tuple[str, tuple[int, ...]]]:
    for key, value in (*module.named_parameters(recurse=False), *module.named_buffers(recurse=False)):
        yield key, tuple(value.shape)


def difference(original: Signature, other: Signature) -> str:
    """The first difference of a network from the original; "" if there is none."""
    for name in (*original, *other):
        a, b = original.get(name), other.get(name)
        if a == b:
            continue
        where = name or "the network"
        if a is None or b is None:
            return f"{where} is in {'the twin' if a is None else 'the original'} only"
        if a[0] != b[0]:
            return f"{where} is a {b[0]}, not a {a[0]}"
        key = next(k for k in (*a[1], *b[1]) if a[1].get(k) != b[1].get(k))
        return f"{f'{name}.' if name else ''}{key} has the shape {b[1].get(key)}, not {a[1].get(key)}"
    return ""
