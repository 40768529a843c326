"""A network to improve, with its data and recipe: checked before any work is done, and identified by digests."""

import hashlib
import re
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from relucid.data import Data, Split, as_data
from relucid.data.given import SHARE, apart, read
from relucid.studies.source import version_of
from relucid.train import Recipe

EXAMPLES = 8  # inputs on which conversions are checked
HELD = 0.2  # of the training examples, by which the network to hand back is chosen
WATCHED = 2048  # inputs on which units are watched
RECIPE = Recipe(epochs=30, batch_size=64, optimizer="adam", lr=1e-3, normalize=False)
# What decides which network is better, by the name that a training gives it.
MEASURES = {"error": "error %", "mse": "RMSE", "loss": "loss"}


@dataclass(frozen=True, eq=False)
class Subject:
    """A network with its weights, the data to train and test it on, and the recipe.

    Args:
        name: what to call it.
        network: with its weights.
        data: as the network takes them.
        recipe: how to train it further; its loss suits outputs and targets.
        measure: a key of `MEASURES`.
        resplit: whether the data have no test split, so that every seed splits off another one.
    """

    name: str
    network: nn.Module
    data: Data[Split]
    recipe: Recipe
    measure: str
    resplit: bool = False

    @property
    def caution(self) -> str:
        """Why not to take the errors at face value; empty if the data have a test split of their own."""
        if not self.resplit:
            return ""
        return (
            "The data have no test split of their own, so the examples tested on may be among those that the network "
            "was trained on: if so, all errors are too low. Give a test split that the network has not seen."
        )

    @property
    def example(self) -> Tensor:
        """The first inputs of the training split."""
        return self.data.train.inputs[:EXAMPLES]

    @property
    def watched(self) -> Tensor:
        """The inputs on which units are watched."""
        return self.data.train.inputs[:WATCHED]

    def parts(self, seed: int) -> tuple[Split, Split, Split]:
        """The splits that a seed trains on, chooses by and tests on."""
        pool, test = self.data.train, self.data.test
        if self.resplit:
            inputs, targets = torch.cat([pool.inputs, test.inputs]), torch.cat([pool.targets, test.targets])
            pool, test = apart(Split(inputs, targets), SHARE, seed)
        rest, held = apart(pool, HELD, seed)
        return rest, held, test

    def configuration(self) -> dict[str, Any]:
        """What all runs share as plain data: recipe, and digests of network and data to keep results apart."""
        loss = self.recipe.loss
        train, test = self.data.train, self.data.test
        return {
            "network": digest_of(self.network),
            "data": digest(train.inputs, train.targets, test.inputs, test.targets),
            "resplit": self.resplit,
            "recipe": asdict(self.recipe) | {"loss": loss if isinstance(loss, str) else version_of(loss)},
        }


def subject(
    model: nn.Module | Callable[[], nn.Module],
    data: Any,
    *,
    target: str | None = None,
    loss: str | Callable[[Tensor, Tensor], Tensor] | None = None,
    recipe: Recipe = RECIPE,
    name: str | None = None,
) -> Subject:
    """Check that network, data and loss fit together, and return them as the subject of an improvement.

    Args:
        model: a network with its weights, or a function that returns it.
        data: in any form that `relucid.data.as_data` takes.
        target: of a CSV file: the column to predict.
        loss: a name, or a function of outputs and targets; by default what suits them.
        recipe: how to train it further. Inputs are not normalized: data are as the network takes them.
        name: what to call the network.
    """
    network = model if isinstance(model, nn.Module) else model()
    if not isinstance(network, nn.Module):
        raise TypeError(f"the model is a {type(network).__name__}, not a torch.nn.Module")
    _refuse_what_is_not_finite(network)
    given = read(data, target)
    parts = as_data(given)
    dtype = next((p.dtype for p in network.parameters() if p.is_floating_point()), torch.float32)
    parts = Data(_in_precision(parts.train, dtype), _in_precision(parts.test, dtype), parts.classes)
    outputs = _outputs(network, parts.train.inputs[:2])
    chosen = loss or (recipe.loss if recipe.loss != "cross_entropy" else _suited_loss(outputs, parts))
    _check_targets(outputs, parts, chosen)
    recipe = replace(recipe, loss=chosen, normalize=False)
    own = isinstance(given, Data)
    found = Subject(name or type(network).__name__, network, parts, recipe, "loss", resplit=not own)
    return replace(found, measure=_measure(found, outputs))


def digest(*tensors: Tensor) -> str:
    """A digest of numbers, shapes and precisions."""
    found = hashlib.sha256()
    for tensor in tensors:
        found.update(f"{tensor.dtype} {tuple(tensor.shape)} ".encode())
        found.update(tensor.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().tobytes())
    return found.hexdigest()


def digest_of(network: nn.Module) -> str:
    """A digest of a network's structure and weights."""
    kind = type(network)
    layers = re.sub(r" at 0x[0-9a-f]+", "", f"{kind.__qualname__} {network!r}")
    names = " ".join(network.state_dict())
    state = digest(*(value for value in network.state_dict().values() if isinstance(value, Tensor)))
    return hashlib.sha256(f"{layers} {names} {state}".encode()).hexdigest()


def _refuse_what_is_not_finite(network: nn.Module) -> None:
    if not any(True for _ in network.parameters()):
        raise ValueError("the network has no parameters: there is nothing to train")
    for name, value in network.state_dict().items():
        if isinstance(value, Tensor) and value.is_floating_point() and not bool(value.isfinite().all()):
            raise ValueError(f"{name} of the network has values that are not finite: load weights that are")


def _in_precision(split: Split, dtype: torch.dtype) -> Split:
    values = split.targets.is_floating_point()
    return Split(split.inputs.to(dtype), split.targets.to(dtype) if values else split.targets, split.classes)


def _outputs(network: nn.Module, inputs: Tensor) -> Tensor:
    """The network's outputs for two inputs."""
    training, shape = network.training, tuple(inputs.shape[1:])
    try:
        with torch.no_grad():
            outputs = network.eval()(inputs)
    except Exception as error:  # whatever code of the user's raises
        first = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise ValueError(f"the network does not take inputs of shape {shape}: {first}") from error
    finally:
        network.train(training)
    if not isinstance(outputs, Tensor):
        kind = type(outputs).__name__
        raise TypeError(
            f"the network returns a {kind}, not a tensor: let it return the tensor that is compared"
        )
    if outputs.dim() == 0 or len(outputs) != len(inputs):
        raise ValueError(
            f"the network makes {tuple(outputs.shape)} of {len(inputs)} inputs: one output each is needed"
        )
    return outputs


def _suited_loss(outputs: Tensor, data: Data[Split]) -> str:
    if data.train.targets.is_floating_point():
        return "mse"
    binary = outputs.shape[1:].numel() == 1 and data.classes is not None and data.classes <= 2
    return "bce" if binary else "cross_entropy"


def _check_targets(outputs: Tensor, data: Data[Split], loss: Any) -> None:
    """Refuse targets that a loss by name cannot compare with the outputs."""
    if loss == "cross_entropy":
        if outputs.dim() != 2:
            shape = tuple(outputs.shape[1:])
            raise ValueError(f"outputs of shape {shape} are not class scores: name a loss of your own")
        for split in (data.train, data.test):
            low, high = int(split.targets.min()), int(split.targets.max())
            if low < 0 or high >= outputs.shape[1]:
                wrong = low if low < 0 else high
                raise ValueError(
                    f"label {wrong} is out of range: the network has {outputs.shape[1]} outputs, so that labels "
                    f"go from 0 to {outputs.shape[1] - 1}"
                )
    elif isinstance(loss, str):
        wanted, there = outputs.shape[1:].numel(), data.train.targets.shape[1:].numel()
        if wanted != there:
            raise ValueError(
                f"the network has {wanted} outputs per example, but there are {there} targets per example"
            )


def _measure(found: Subject, outputs: Tensor) -> str:
    """The measure that decides which network is better, of those that training records."""
    from relucid.train.measure import measures

    try:
        known = measures(found.recipe.loss, outputs, found.data.train.targets[: len(outputs)])
    except Exception as error:
        first = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise ValueError(f"the loss cannot compare outputs with targets: {first}") from error
    return next(name for name in MEASURES if name in known)
