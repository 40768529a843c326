"""What a user names on the command line: a network, its weights, its inputs."""

import pickle
import runpy
import sys
from collections.abc import Iterable, Mapping
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
import typer
from torch import Tensor, nn

BATCH = 256  # inputs of a file go through the network so many at a time

Factory = Annotated[
    str,
    typer.Argument(
        metavar="MODULE:FACTORY",
        help="A function that builds the network: my_package.my_module:build, or path/to/my_file.py:build.",
    ),
]
Checkpoint = Annotated[Path | None, typer.Option(help="Weights of the network: .pt, .pth or .safetensors.")]
Unsafe = Annotated[
    bool,
    typer.Option("--unsafe-pickle", help="Load a checkpoint that may run code: only one that you trust."),
]
Shape = Annotated[
    str, typer.Option(help="Shape of an input, such as 1,3,32,32; it is filled with random numbers.")
]
Inputs = Annotated[
    str,
    typer.Option(
        "--data", help="Inputs: a .npy, .pt or .safetensors file, or MODULE:FUNCTION that returns batches."
    ),
]


def build(factory: str, checkpoint: Path | None = None, *, unsafe: bool = False) -> nn.Module:
    """The network that a factory builds, with the weights of a checkpoint."""
    found = imported(factory)
    network = found if isinstance(found, nn.Module) else found()
    if not isinstance(network, nn.Module):
        raise TypeError(f"{factory} gives a {type(network).__name__}, not a torch.nn.Module")
    if checkpoint is None:
        return network
    state = _loaded(checkpoint, unsafe)
    if isinstance(state, nn.Module):
        return state
    try:
        network.load_state_dict(_weights(state, checkpoint))
    except RuntimeError as error:  # a list of all differences, of which the first one suffices
        raise ValueError(
            f"{checkpoint} is not of this network: {str(error).splitlines()[1].strip()}"
        ) from None
    return network


def example_of(shape: str, network: nn.Module) -> Tensor:
    """Random numbers of a shape such as "1,3,32,32", in the precision of the network's weights."""
    sizes = shape.split(",")
    if not all(size.strip().isdecimal() for size in sizes):
        raise ValueError(f"--example {shape} is no shape: give whole numbers, such as 1,3,32,32")
    return _like(torch.randn(*map(int, sizes), generator=torch.Generator().manual_seed(0)), network)


def batches_of(data: str, network: nn.Module) -> Iterable[Any]:
    """Batches of inputs from a function of the user's, or from a file, in the precision of the network's weights."""
    if Path(data).suffix not in (".npy", ".pt", ".pth", ".safetensors"):
        found = imported(data)
        batches: Iterable[Any] = found() if callable(found) else found
        return [batches] if isinstance(batches, Tensor) else batches
    if data.endswith(".npy"):
        inputs: Any = torch.from_numpy(np.load(data, allow_pickle=False))
    else:
        inputs = _loaded(Path(data), unsafe=False)
    if isinstance(inputs, Mapping) and len(inputs) == 1:
        (inputs,) = inputs.values()
    if not isinstance(inputs, Tensor):
        raise TypeError(f"{data} holds a {type(inputs).__name__}, not one tensor of inputs")
    split: tuple[Tensor, ...] = _like(inputs, network).split(BATCH)
    return split


def _like(inputs: Tensor, network: nn.Module) -> Tensor:
    """Inputs in the precision of the network's weights, if they are no whole numbers."""
    floating = (parameter for parameter in network.parameters() if parameter.is_floating_point())
    weight = next(floating, inputs)
    return inputs.to(weight.dtype) if inputs.is_floating_point() else inputs


def imported(name: str) -> Any:
    """What "package.module:name" or "path/to/file.py:name" names."""
    module, _, attribute = name.rpartition(":")
    if not module:
        raise ValueError(f"{name} names no function: write MODULE:FUNCTION, such as my_module:build")
    path = Path(module)
    sys.path.insert(0, str(path.parent.resolve() if path.suffix == ".py" else Path.cwd()))
    try:
        space = runpy.run_path(module) if path.suffix == ".py" else vars(import_module(module))
    except (ModuleNotFoundError, FileNotFoundError) as error:
        raise ValueError(f"{module} cannot be imported: {error}") from error
    if attribute not in space:
        raise ValueError(f"{module} has no {attribute}")
    return space[attribute]


def _loaded(path: Path, unsafe: bool) -> Any:
    if not path.is_file():
        raise ValueError(f"there is no file {path}")
    if path.suffix == ".safetensors":
        from safetensors import SafetensorError
        from safetensors.torch import load_file

        try:
            return load_file(path)
        except SafetensorError as error:
            raise ValueError(f"{path} cannot be read: {error}") from error
    try:
        return torch.load(path, map_location="cpu", weights_only=not unsafe)
    except pickle.UnpicklingError as error:
        raise ValueError(
            f"{path} holds more than weights, and loading it could run code; if you trust it: --unsafe-pickle"
        ) from error


def _weights(state: Any, path: Path) -> dict[str, Tensor]:
    """The weights in a checkpoint, which trainers wrap and prefix in their own ways."""
    for name in ("state_dict", "model_state_dict", "model"):
        if isinstance(state, Mapping) and isinstance(state.get(name), Mapping):
            state = state[name]
    if not isinstance(state, Mapping) or not all(isinstance(value, Tensor) for value in state.values()):
        raise ValueError(f"{path} holds no weights by name, as `torch.save(model.state_dict(), path)` does")
    return {name.removeprefix("module."): value for name, value in state.items()}
