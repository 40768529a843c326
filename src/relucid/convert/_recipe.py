"""The recipe of a conversion: its steps as a buffer of the network, so that they travel with every state dict."""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import fields
from typing import Any

import torch
from torch import Tensor, nn

from relucid._torch import registries
from relucid.convert._edits import Edits
from relucid.convert._renew import Revive
from relucid.convert._steps import Step, step_of
from relucid.convert.errors import ConversionError
from relucid.convert.layout import Layout
from relucid.nn import CReLU
from relucid.nn.kinds import kind_of
from relucid.printing import first_line

RECIPE = "relucid_recipe"  # the buffer's name
LIMIT = 1 << 24  # bytes of a recipe as JSON; that of a network of 1,000 layers has 2^18
Item = dict[str, Any]  # a step as plain values; "in" is the module that it was taken in


def encoded(items: Sequence[Item]) -> Tensor:
    """The recipe as numbers from 0 to 255, which any floating-point format has, and which averages of copies keep.

    >>> items_in(encoded([{"step": "Draw", "name": "0"}]).bfloat16())
    [{'step': 'Draw', 'name': '0'}]
    """
    text = json.dumps(items, separators=(",", ":"), allow_nan=False).encode()
    return torch.frombuffer(bytearray(zlib.compress(text, 9)), dtype=torch.uint8).float()


def items_in(recipe: Tensor) -> list[Item]:
    """The steps in a recipe, as plain values that may come from anyone; see `checked`."""
    try:
        numbers = bytes(recipe.detach().float().cpu().round().clamp(0, 255).byte().flatten().tolist())
        unpack = zlib.decompressobj()
        text = unpack.decompress(numbers, LIMIT)
        items = json.loads(text)
        if unpack.unconsumed_tail or not isinstance(items, list):
            raise ValueError
    except (ValueError, zlib.error, RecursionError):
        raise ConversionError(f"{RECIPE} does not hold the steps of a conversion") from None
    return items


def recipe_of(model: nn.Module) -> list[Item]:
    """How a network was converted, by conversions of the network itself."""
    recipe = registries(model)[1].get(RECIPE)
    return [] if recipe is None else items_in(recipe)


def recipes_of(model: nn.Module) -> list[Item]:
    """How a network was converted, and then modules inside, each by conversions of that module alone."""
    items = recipe_of(model)
    for name, module in model.named_modules():
        if name:
            inside = (f"{name}.{item.get('in', '')}".rstrip(".") for item in recipe_of(module))
            items += [{**item, "in": path} for item, path in zip(recipe_of(module), inside, strict=True)]
    return items


def remember(edits: Edits, known: list[Item], steps: Iterable[Step]) -> None:
    """Leave with a network how it was converted.

    Args:
        edits: The network, after the steps.
        known: What `recipes_of` returned before them.
        steps: The latest; those that only set values, which a state dict has, are left out.
    """
    for name, module in edits.model.named_modules():
        if name and RECIPE in registries(module)[1]:
            edits.forget(module, RECIPE)
    items = known + [step.to_dict() for step in steps if not isinstance(step, Revive)]
    if items:
        like = next(edits.model.parameters(), torch.empty(0))
        edits.buffer(edits.model, RECIPE, encoded(items).to(like.device))


def step_from(item: object, network: nn.Module, longest: int) -> tuple[nn.Module, Step]:
    """The step that plain values from anyone describe, and the module to take it in; refuse all else.

    Args:
        item: The values.
        network: What is to be changed.
        longest: The most channels that a layer may be given.
    """
    if not isinstance(item, dict):
        raise ConversionError(f"no step of a conversion: {str(item)[:80]}")
    values = dict(item)
    try:
        inside = network.get_submodule(values.pop("in", ""))
        module = inside.get_submodule(values["name"])
    except (AttributeError, KeyError, TypeError):
        raise ConversionError(
            f"{type(network).__name__} has no module for the step {str(item)[:80]}"
        ) from None
    _check_layout(values.get("layout"), module, longest)
    try:
        step = step_of(values)
        _check_types(step, longest)
    except (TypeError, ValueError, KeyError, OverflowError):
        raise ConversionError(f"no step of a conversion: {str(item)[:80]}") from None
    for name in _rectifiers(step):
        known = inside.get_submodule(name) if name in dict(inside.named_modules()) else None
        if kind_of(known) is None or isinstance(known, CReLU):
            raise ConversionError(f"{name} is no ReLU that a conversion could replace")
    return inside, step


def _rectifiers(step: Any) -> list[str]:
    """The modules that a step replaces, which are to be rectifications."""
    relu = getattr(step, "relu", None)
    return [step.name] * bool(getattr(step, "replace", False)) + ([] if relu is None else [relu])


def _check_layout(layout: object, module: nn.Module, longest: int) -> None:
    """Refuse a layout that is not one of this module's channels, before it takes any memory."""
    if layout is None:
        return
    sizes = (getattr(module, key, None) for key in ("in_features", "in_channels", "num_features"))
    size = next((s for s in sizes if isinstance(s, int)), 0)
    runs: Any = layout.get("runs") if isinstance(layout, Mapping) else None
    if not isinstance(runs, list) or not all(isinstance(run, list) and len(run) == 3 for run in runs):
        raise ConversionError(f"no channels of a layer: {str(layout)[:80]}")
    total = 0
    for first, count, factor in runs:
        whole = type(first) is int and type(count) is int and type(factor) in (int, float)
        if not whole or not (0 <= first < size and 0 < count <= size - first and abs(factor) < 1e30):
            what = f"{str(first)[:20]}, {str(count)[:20]}, {str(factor)[:20]}"
            raise ConversionError(f"no channels of a {type(module).__name__} with {size}: {what}")
        total += count
    if not 0 < total <= longest:
        raise ConversionError(f"a {type(module).__name__} here cannot have {total:,} channels")


def _check_types(step: Step, longest: int) -> None:
    """Refuse values that are not of the types that a step declares, and numbers that no layer has."""
    kinds: dict[str, tuple[type, ...]] = {
        "str": (str,),
        "int": (int,),
        "bool": (bool,),
        "float": (float, int),
    }
    kinds |= {"None": (type(None),), "Layout": (Layout,)}
    for field in fields(step):
        value = getattr(step, field.name)
        declared = [name.partition("[")[0].strip() for name in str(field.type).split("|")]
        if isinstance(value, tuple) and "tuple" in declared:
            fits = all(type(x) in (int, float, str) for x in value)
        else:
            fits = type(value) in {kind for name in declared for kind in kinds.get(name, ())}
        if not fits or (type(value) is int and abs(value) > longest):
            raise TypeError(field.name)


@contextmanager
def replayed(
    model: nn.Module, items: Sequence[Item], longest: int, optimizers: Iterable[Any] = ()
) -> Iterator[None]:
    """Take the steps of a recipe in a network; an error, in the block as well, puts everything back."""
    with ExitStack() as stack:
        edits: dict[nn.Module, Edits] = {}
        for item in items:
            inside, step = step_from(item, model, longest)
            if inside not in edits:
                edits[inside] = stack.enter_context(Edits(inside, optimizers, others=True))
            try:
                step.apply(edits[inside])
            except (
                ArithmeticError,
                AttributeError,
                LookupError,
                RuntimeError,
                TypeError,
                ValueError,
            ) as error:
                what = f"{step.name}: {first_line(error)}"
                raise ConversionError(
                    f"{type(model).__name__} is not built as the recipe needs: {what}"
                ) from error
        yield
