"""Weights from the files that people have: state_dicts, trainers' checkpoints around them, safetensors."""

import pickletools
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
import typer
from torch import Tensor, nn
from torch.serialization import get_unsafe_globals_in_checkpoint

from relucid import convert
from relucid.cli.foreign import foreign
from relucid.convert._recipe import RECIPE
from relucid.printing import printable

DEPTH = 4  # of the mappings in a checkpoint


def restore(network: nn.Module, path: Path, *, unsafe: bool = False, key: str | None = None) -> nn.Module:
    """Load the weights of a checkpoint, or of the network pickled in it, into a network.

    If they are those of a converted network, the network is converted, too.

    Args:
        network: takes the weights.
        path: the file.
        unsafe: whether loading it may run code.
        key: which of its mappings holds the weights, as `ema.model`; by default the only one that fits.
    """
    mappings = _mappings(load(path, unsafe=unsafe))
    recipes = {place: weights for place, weights in mappings.items() if RECIPE in _leaves(weights)}
    if recipes and (key in recipes or key is None):
        try:
            return convert.restore(network, recipes if key is None else recipes[key])
        except convert.ConversionError as error:
            raise ValueError(f"{path}: {error}") from error
    found = _chosen(mappings, network.state_dict(), path, key)
    weights = unprefixed(found, network.state_dict(), path)
    try:
        network.load_state_dict(weights)
    except RuntimeError as error:  # it lists all differences; the first one is enough
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        raise ValueError(f"{path} does not fit this network: {lines[min(1, len(lines) - 1)]}") from None
    return network


def _leaves(weights: Mapping[str, Tensor]) -> set[str]:
    return {name.rpartition(".")[2] for name in weights}


def load(path: Path, *, unsafe: bool = False) -> Any:
    """Load a .pt, .pth, .ckpt or .safetensors file; without `unsafe`, no code in it can run."""
    if not path.is_file():
        raise ValueError(f"there is no file {path}")
    if path.suffix != ".safetensors":
        _refuse_torchscript(path)
    try:
        if path.suffix == ".safetensors":
            from safetensors.torch import load_file

            return load_file(path)
        return torch.load(path, map_location="cpu", weights_only=True)
    except OSError as error:
        raise ValueError(f"{path} cannot be read: {error.strerror or error}") from error
    except Exception as error:  # a damaged file can make a reader fail in any way
        if path.suffix == ".safetensors" or not _holds_code(path):
            raise ValueError(f"{path} cannot be read: it is damaged, or not a checkpoint") from error
        if not unsafe:
            raise ValueError(
                f"{path} holds more than weights, and loading it could run code; "
                "if you trust it, pass --unsafe-pickle"
            ) from error
    with foreign(f"{path} cannot be unpickled"):
        return torch.load(path, map_location="cpu", weights_only=False)


def unprefixed(weights: Mapping[str, Tensor], wanted: Mapping[str, Tensor], path: Path) -> dict[str, Tensor]:
    """The weights under the network's own names, if the checkpoint adds the same prefix to all of them.

    >>> weights = {"net.bias": torch.zeros(1), "loss.weight": torch.ones(1)}
    >>> unprefixed(weights, {"bias": torch.ones(1)}, Path("epoch.ckpt"))
    {'bias': tensor([0.])}
    """
    if not wanted or not weights.keys().isdisjoint(wanted):
        return dict(weights)
    first = next(iter(wanted))
    prefixes = [name.removesuffix(first) for name in weights if name.endswith(f".{first}")]
    found = [
        prefix
        for prefix in prefixes
        if all(
            prefix + name in weights and weights[prefix + name].shape == x.shape for name, x in wanted.items()
        )
    ]
    if len(found) > 1:
        names = ", ".join(f"{prefix}*" for prefix in found)
        raise ValueError(f"{path} has weights for several such networks, {names}: save one of them alone")
    if not found:
        return dict(weights)
    (prefix,) = found
    left = [name for name in weights if not name.startswith(prefix)]
    others = f"; not used: {', '.join(left[:3])}{', ...' * (len(left) > 3)}" if left else ""
    typer.echo(printable(f"{path}: weights are named {prefix}*, ignoring the prefix{others}"), err=True)
    return {name: weights[prefix + name] for name in wanted}


def _mappings(state: Any, name: str = "", depth: int = DEPTH) -> dict[str, dict[str, Tensor]]:
    """All named weights in a checkpoint, by where they are; every trainer wraps them in its own way."""
    if isinstance(state, nn.Module):
        state = state.state_dict()
    if not isinstance(state, Mapping) or not depth:
        return {}
    texts = all(isinstance(key, str) for key in state)
    if texts and state and all(isinstance(value, Tensor) for value in state.values()):
        return {name: dict(state)}
    parts = (_mappings(value, f"{name}.{key}".lstrip("."), depth - 1) for key, value in state.items())
    return {place: weights for part in parts for place, weights in part.items()}


def _chosen(
    found: Mapping[str, dict[str, Tensor]], wanted: Mapping[str, Tensor], path: Path, key: str | None
) -> dict[str, Tensor]:
    """The weights at a key, or the only ones that fit."""
    if not found:
        raise ValueError(f"{path} holds no named weights; `torch.save(model.state_dict(), path)` writes some")
    if key is not None:
        if key not in found:
            raise ValueError(f"{path} has no weights {key}; --key can be {', '.join(found)}")
        return found[key]
    if len(found) == 1:
        return next(iter(found.values()))
    fitting = [place for place, weights in found.items() if _fits(weights, wanted)]
    if len(fitting) != 1:
        what = f"{len(fitting)} that fit" if fitting else "none that fits this network"
        raise ValueError(
            f"{path} has several weights, {what}: choose one by --key, {', '.join(fitting or found)}"
        )
    return found[fitting[0]]


def _fits(weights: Mapping[str, Tensor], wanted: Mapping[str, Tensor]) -> bool:
    """Whether all weights of a network are there, perhaps behind a prefix."""
    shapes = {(name, value.shape) for name, value in weights.items()}
    return all(
        any(have.endswith(name) and at == value.shape for have, at in shapes)
        for name, value in wanted.items()
    )


def _holds_code(path: Path) -> bool:
    """Whether a file is an intact checkpoint with more in it than weights; nothing in it is run."""
    try:
        if zipfile.is_zipfile(path):
            return bool(get_unsafe_globals_in_checkpoint(str(path)))
        with path.open("rb") as file:
            for _ in range(4):  # before torch 1.6: a magic number, a version, the machine, the object
                for _ in pickletools.genops(file):
                    pass
    except Exception:  # damaged
        return False
    return True


def _refuse_torchscript(path: Path) -> None:
    try:
        with zipfile.ZipFile(path) as archive:
            names = archive.namelist()
    except (zipfile.BadZipFile, OSError):
        return
    if any(name.endswith("/constants.pkl") for name in names):
        raise ValueError(
            f"{path} is a TorchScript program, not weights; its weights are torch.jit.load(...).state_dict()"
        )
