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

from relucid.cli.foreign import foreign
from relucid.printing import printable

WRAPPINGS = ("state_dict", "model_state_dict", "model")


def restore(network: nn.Module, path: Path, *, unsafe: bool = False) -> nn.Module:
    """Load the weights of a checkpoint, or of the network pickled in it, into a network."""
    state = load(path, unsafe=unsafe)
    if isinstance(state, nn.Module):
        state = state.state_dict()
    weights = unprefixed(_weights(state, path), network.state_dict(), path)
    try:
        network.load_state_dict(weights)
    except RuntimeError as error:  # it lists all differences; the first one is enough
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        raise ValueError(f"{path} does not fit this network: {lines[min(1, len(lines) - 1)]}") from None
    return network


def load(path: Path, *, unsafe: bool = False) -> Any:
    """Load a .pt, .pth, .ckpt or .safetensors file; without `unsafe`, no code in it can run."""
    if not path.is_file():
        raise ValueError(f"there is no file {path}")
    if path.suffix != ".safetensors":
        _refuse_torchscript(path)
    try:
        return _load_weights(path)
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


def _load_weights(path: Path) -> Any:
    if path.suffix == ".safetensors":
        from safetensors.torch import load_file

        return load_file(path)
    return torch.load(path, map_location="cpu", weights_only=True)


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


def _weights(state: Any, path: Path) -> dict[str, Tensor]:
    """The weights in a checkpoint; every trainer wraps them in its own way."""
    for name in WRAPPINGS:
        if isinstance(state, Mapping) and isinstance(state.get(name), Mapping):
            state = state[name]
    if not isinstance(state, Mapping) or not all(
        isinstance(name, str) and isinstance(value, Tensor) for name, value in state.items()
    ):
        raise ValueError(f"{path} holds no named weights; `torch.save(model.state_dict(), path)` writes some")
    return dict(state)


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
