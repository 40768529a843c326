"""Bring a network to where a converted one was when it was saved: the recipe is in its state dict."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, TypeVar

from torch import Tensor, nn

from relucid import __version__
from relucid._torch import storage_of
from relucid.convert._edits import Edits, optimizers_of, uninterrupted
from relucid.convert._recipe import RECIPE, items_in, recipe_of, replayed
from relucid.convert.errors import ConversionError
from relucid.extras import needed
from relucid.files import replacing

Network = TypeVar("Network", bound=nn.Module)
WEIGHTS = "weights.safetensors"
PREFIXES = ("module.", "_orig_mod.")  # what DataParallel and torch.compile put before every name
DEPTH = 4  # of the mappings in a checkpoint


def restore(model: Network, state_dict: Mapping[str, Any], *, optimizer: Any = None) -> Network:
    """Convert a network as the one was converted whose state dict this is, and load its weights.

    It works with whatever wrote the state dict: `torch.save`, a trainer, safetensors. A network that was not converted,
    or that is converted already, has its weights loaded; so code that resumes can always call it.

    Args:
        model: The network before its conversion, with any weights; it is changed in place, wholly or not at all.
        state_dict: What ``state_dict()`` of the converted network returned, or a checkpoint that holds it.
        optimizer: One or several that already have the network's parameters, to take along.

    >>> from relucid.convert import to_crelu
    >>> import torch
    >>> net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
    >>> weights = to_crelu(net, torch.randn(5, 4)).model.state_dict()
    >>> restore(nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2)), weights)
    Sequential(
      (0): Linear(in_features=4, out_features=8, bias=True)
      (1): CReLU(dim=-1)
      (2): Linear(in_features=16, out_features=2, bias=True)
    )
    """
    weights = _weights_in(state_dict, model)
    with uninterrupted():
        with _prepared(model, weights, optimizers_of(optimizer)):
            _check_fits(model, weights)
        model.load_state_dict(weights, strict=False)
    return model


def _prepared(model: nn.Module, weights: Mapping[str, Tensor], optimizers: Any) -> ExitStack:
    """Take the steps of all recipes in a state dict, of outer modules first; a block that can still undo them."""
    longest = 2 * max((s for x in (*weights.values(), *model.parameters()) for s in x.shape), default=1)
    with ExitStack() as stack:
        for name in sorted((n for n in weights if n == RECIPE or n.endswith(f".{RECIPE}")), key=_depth):
            path = name.removesuffix(RECIPE).removesuffix(".")
            inside = dict(model.named_modules()).get(path)
            if inside is None:
                raise ConversionError(f"{type(model).__name__} has no module {path}, which was converted")
            items, done = items_in(weights[name]), recipe_of(inside)
            if items[: len(done)] != done:
                raise ConversionError(
                    f"{path or type(model).__name__} has been converted in another way than the network of the state "
                    "dict: give one that has not been converted"
                )
            stack.enter_context(replayed(inside, items[len(done) :], longest, optimizers))
            edits = stack.enter_context(Edits(inside))
            edits.touch(inside)
            inside.register_buffer(RECIPE, weights[name].detach().clone())
        return stack.pop_all()


def _depth(name: str) -> int:
    return name.count(".")


def _check_fits(model: nn.Module, weights: Mapping[str, Tensor]) -> None:
    """Raise an error unless a state dict has all tensors of a network, and no others."""
    own = model.state_dict()
    present = {storage_of(own[name]) for name in own if name in weights}
    problems = [
        f"{name} has the shape {(*weights[name].shape,)}, not {(*x.shape,)}"
        for name, x in own.items()
        if name in weights and weights[name].shape != x.shape
    ]
    # Of tensors that share memory, files keep one.
    problems += [
        f"{n} is missing" for n, x in own.items() if n not in weights and storage_of(x) not in present
    ]
    problems += [f"there is no {name}" for name in weights if name not in own]
    if problems:
        raise ConversionError(
            f"the state dict does not fit this {type(model).__name__}: {problems[0]}; build it as it was built before"
        )


def _weights_in(state: Any, model: nn.Module) -> dict[str, Tensor]:
    """The state dict in a checkpoint, under the network's own names."""
    found = list(_state_dicts(state, DEPTH))
    recipes = [weights for weights in found if any(name.endswith(RECIPE) for name in weights)]
    if len(recipes) > 1:
        known = model.state_dict().keys() - {RECIPE}
        recipes = [w for w in recipes if len(known & _unprefixed(w).keys()) * 2 > len(known)]
    found = recipes or found
    if len(found) != 1:
        what = f"{len(found)} state dicts that might be meant: give one of them" if found else "no state dict"
        raise ConversionError(f"the checkpoint has {what}, such as checkpoint['model']")
    weights, modules = _unprefixed(found[0]), dict(model.named_modules())
    paths = [name.removesuffix(f".{RECIPE}") for name in weights if name.endswith(f".{RECIPE}")]
    if len(paths) == 1 and paths[0] not in modules:  # that of a part, for a network that is this part
        return {n.removeprefix(f"{paths[0]}."): x for n, x in weights.items() if n.startswith(f"{paths[0]}.")}
    return weights


def _state_dicts(state: Any, depth: int) -> Iterator[dict[str, Tensor]]:
    if not isinstance(state, Mapping) or not depth:
        return
    if state and all(isinstance(name, str) and isinstance(x, Tensor) for name, x in state.items()):
        yield dict(state)
        return
    for value in state.values():
        yield from _state_dicts(value, depth - 1)


def _unprefixed(weights: dict[str, Tensor]) -> dict[str, Tensor]:
    """The weights without what wrappers put before all names.

    >>> list(_unprefixed({"module._orig_mod.bias": Tensor()}))
    ['bias']
    """
    prefix = next((p for p in PREFIXES if weights and all(n.startswith(p) for n in weights)), "")
    return weights if not prefix else _unprefixed({n.removeprefix(prefix): x for n, x in weights.items()})


def save(model: nn.Module, directory: str | Path) -> None:
    """Write the weights and the recipe of a network into one file of a directory: all of it or nothing."""
    with needed("saving a conversion"):
        from safetensors.torch import save_model
    place = Path(directory)
    place.mkdir(parents=True, exist_ok=True)
    with replacing(place / WEIGHTS) as file:
        # In one entry: safetensors writes several in an order of chance, and equal networks make equal files.
        save_model(model, str(file), metadata={"relucid": f"{__version__} {type(model).__qualname__}"})


def load(directory: str | Path, model: Network) -> Network:
    """Convert ``model``, a new instance of a saved network's class, as it was converted, and load its weights.

    The instance itself is changed, wholly or not at all, and returned.

    Args:
        directory: What `Conversion.save` wrote.
        model: The network before the conversion, with any weights.
    """
    with needed("loading a conversion"):
        from safetensors.torch import load_file
    file = Path(directory) / WEIGHTS
    if not is_saved(directory):
        raise ConversionError(
            f"{directory} has no {WEIGHTS} of a conversion: give a directory that Conversion.save wrote"
        )
    kind = _written(file)["relucid"].partition(" ")[2]
    try:
        return restore(model, load_file(file))
    except ConversionError as error:
        raise ConversionError(f"{directory} holds a converted {kind}: {error}") from error


def is_saved(directory: str | Path) -> bool:
    """Whether `Conversion.save` has written into a directory."""
    file = Path(directory) / WEIGHTS
    return file.is_file() and "relucid" in _written(file)


def _written(file: Path) -> dict[str, str]:
    """What a file of weights says of itself."""
    with needed("loading a conversion"):
        from safetensors import SafetensorError, safe_open
    try:
        with safe_open(file, "pt") as opened:
            return opened.metadata() or {}
    except SafetensorError as error:
        raise ConversionError(f"{file} is damaged, or not a file of weights") from error
