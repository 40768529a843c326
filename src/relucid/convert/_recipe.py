"""The recipe of a conversion: its steps as a buffer of the network, so that they travel with every state dict."""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from relucid._torch import registries
from relucid.convert._edits import Edits
from relucid.convert._renew import Revive
from relucid.convert._steps import Step, step_of
from relucid.convert.errors import ConversionError
from relucid.convert.flow import is_within
from relucid.printing import first_line

RECIPE = "relucid_recipe"  # the buffer's name
LIMIT = 1 << 24  # bytes of a recipe as JSON; that of a network of 1,000 layers has 2^18
Item = dict[str, Any]  # a step as plain values; "in" is the module that it was taken in


def encoded(items: Sequence[Item]) -> Tensor:
    """The recipe as numbers from 0 to 255, which any floating-point format has, and which averages of copies keep.

    >>> items_in(encoded([{"step": "Draw", "name": "0", "half": True}]).bfloat16())
    [{'step': 'Draw', 'name': '0', 'half': True}]
    """
    text = json.dumps(items, separators=(",", ":"), allow_nan=False).encode()
    return torch.frombuffer(bytearray(zlib.compress(text, 9)), dtype=torch.uint8).float()


def items_in(recipe: Tensor) -> list[Item]:
    """The steps in a recipe, as plain values that may come from anyone; see `step_from`."""
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
            edits.touch(module)
            del registries(module)[1][RECIPE]
    items = known + [step.to_dict() for step in steps if not isinstance(step, Revive)]
    if items:
        like = next(edits.model.parameters(), torch.empty(0))
        edits.touch(edits.model)
        edits.model.register_buffer(RECIPE, encoded(items).to(like.device))


def step_from(item: Any, network: nn.Module, longest: int) -> tuple[nn.Module, Step]:
    """The step that plain values from anyone describe, and the module to take it in.

    Steps are looked up in a table, and nothing is larger than what a layer here can have.

    Args:
        item: The values.
        network: What is to be changed.
        longest: The most channels that a layer may be given.
    """
    try:
        values = dict(item)
        inside = network.get_submodule(values.pop("in", ""))
        inside.get_submodule(values["name"])
        runs = (values.get("layout") or {"runs": ()})["runs"]
        sizes = [sum(abs(count) for _, count, _ in runs), *(n for run in runs for n in run), *values.values()]
        if any(type(size) is int and abs(size) > longest for size in sizes):
            raise ValueError
        return inside, step_of(values)
    except (AttributeError, KeyError, TypeError, ValueError):
        what = str(item)[:80]
        raise ConversionError(
            f"{type(network).__name__} does not take the step {what} of a conversion"
        ) from None


def applied(
    steps: Iterable[Step], model: nn.Module, optimizers: Iterable[Optimizer] = (), *, others: bool = False
) -> nn.Module:
    """Change a network by steps, wholly or not at all.

    Args:
        steps: The changes, in order.
        model: The network.
        optimizers: What goes along.
        others: Whether optimizers that were not given may have stepped its parameters.
    """
    steps = list(steps)
    with Edits(model, optimizers, others=others) as edits:
        take(steps, edits)
    return model


def take(steps: Sequence[Step], edits: Edits) -> None:
    """Take steps, and leave the recipe with the network."""
    model, known = edits.model, recipes_of(edits.model)
    for step in steps:
        _apply(step, edits)
    for name in fast_layers(model, steps):
        # Its fast path multiplies by the weights of its modules, whatever these have become.
        edits.set(model.get_submodule(name), "activation_relu_or_gelu", 0)
    remember(edits, known, steps)


def fast_layers(model: nn.Module, steps: Iterable[Step]) -> list[str]:
    """The transformer layers with a changed module inside."""
    changed = [name for step in steps for name in (step.name, *step.modules)]
    return [
        name
        for name, module in model.named_modules()
        if isinstance(module, nn.TransformerEncoderLayer) and any(is_within(step, name) for step in changed)
    ]


def _apply(step: Step, edits: Edits) -> None:
    try:
        step.apply(edits)
    except ConversionError:
        raise
    except (ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError, ValueError) as error:
        network, what = type(edits.model).__name__, f"{step.name}: {first_line(error)}"
        raise ConversionError(f"{network} is not built as the conversion needs: {what}") from error


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
            _apply(step, edits[inside])
        yield
