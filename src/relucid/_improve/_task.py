"""What an improvement works on: a network, its data, how it is trained further and by what it is judged."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from copy import deepcopy
from dataclasses import asdict, dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from relucid._improve._digests import (
    digest_of_code,
    digest_of_data,
    digest_of_network,
    digest_of_values,
    version_of,
)
from relucid._improve._files import LARGE, kept, mapped, nbytes
from relucid._improve._metrics import METRICS, Measure, Metric, score
from relucid._torch import tree_leaves, tree_map, tree_map_only
from relucid.data import Arrays, Data, Part, Rows
from relucid.data.parts import SHARE, apart, indices_apart, with_targets
from relucid.data.source import are_two_parts, in_pairs
from relucid.experiments._study import named
from relucid.printing import counted, first_line
from relucid.randomness import seeded
from relucid.train import Machine, Recipe, fit
from relucid.train.measure import IGNORED, Loss, measures

EXAMPLES = 8  # inputs on which conversions are checked
WATCHED = 2048  # inputs on which units are counted
BATCH = 64
CURVES = ("train_loss", "train_error")  # kept of every epoch
RECIPE = Recipe(epochs=30, batch_size=BATCH, optimizer="adam", lr=1e-3, normalize=False)

Train = Callable[[nn.Module, Any, int], nn.Module | None]


@dataclass(frozen=True, eq=False)
class Task:
    """A network with its weights, its data, how to train it further, and what decides.

    Args:
        name: what to call it.
        network: with its weights.
        data: as they were given; a pair is a part to train on and a part to test on.
        train: a recipe, or the user's own function of a network, data and a seed.
        metric: what decides.
        parts: the data as examples, or as `Data` if they have a test part; None if only the user's own functions read
            them.
        inputs: examples or a batch to look at the network with, where there are no parts.
        floats: whether the network takes floating-point numbers where the data have integers.
        loss: compares outputs with targets, where relucid trains or judges.
        random: whether the network has other weights each time it is built.
        store: directory of the results, where workers find large data.
        frozen: modules that the user has put into evaluation, in a network in training mode.
    """

    name: str
    network: nn.Module
    data: Any
    train: Recipe | Train
    metric: Metric
    parts: Any = None
    inputs: Any = None
    floats: bool = False
    loss: str | Loss = "cross_entropy"
    random: bool = False
    store: Path | None = None
    frozen: tuple[str, ...] = ()

    def __getstate__(self) -> dict[str, Any]:
        """What a worker needs: large arrays go once through a file that all workers map into memory."""
        theirs = not isinstance(self.train, Recipe) or self.metric.function is not None
        state = vars(self) | {"data": self.data if theirs else None}
        if self.store is None or theirs or nbytes(self.parts) < LARGE:
            return state
        return state | {"parts": None, "shared": kept(self.parts, self.store / "data")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Map the arrays of the file; workers share its pages."""
        if "shared" in state:
            state["parts"] = mapped(state.pop("shared"))
        vars(self).update(state)

    @property
    def resplit(self) -> bool:
        """Whether the data have no test part, so that every seed splits off another one."""
        return self.parts is not None and not isinstance(self.parts, Data)

    @property
    def cautions(self) -> list[str]:
        """Why not to take the results at face value, in sentences."""
        sentences = []
        if self.random:
            sentences.append(
                "The network has random weights, different ones each time it is built: load trained ones to improve a "
                "trained network (--checkpoint)."
            )
        if self.resplit:
            sentences.append(
                "The data have no test part of their own, so the network may have been trained on the examples that it "
                "is tested on: if so, all results are too good. Give a test part that it has not seen."
            )
        return sentences

    @property
    def training(self) -> str:
        """How networks are trained further, in a sentence."""
        recipe = self.train
        if not isinstance(recipe, Recipe):
            return f"Training: your function {name_of(recipe)}."
        words = [
            f"{counted(recipe.epochs, 'epoch')} of {recipe.optimizer}",
            f"loss {recipe.loss if isinstance(recipe.loss, str) else name_of(recipe.loss)}",
            f"rate {recipe.lr:g}",
        ]
        if recipe.steps:
            words.append(f"times {recipe.factor:g} at {', '.join(f'{step:g}' for step in recipe.steps)}")
        words.append(f"batches of {recipe.batch_size or 'all examples'}")
        if recipe.weight_decay:
            words.append(f"weight decay {recipe.weight_decay:g}")
        if recipe.augment:
            words.append(f"augmentation {', '.join(recipe.augment)}")
        return f"Training: {', '.join(words)}."

    @property
    def example(self) -> Any:
        """A few inputs on which conversions are checked; not views of the data, which would be saved with them."""
        return tree_map(
            lambda leaf: leaf[:EXAMPLES].clone() if _has_rows(leaf) else leaf, next(self.watched())
        )

    def watched(self) -> Iterator[Any]:
        """Yield batches of inputs on which units are counted."""
        examples = self.inputs if self.parts is None else pool(self.parts)
        batches: Iterable[Any] = [(examples, None)]
        if isinstance(examples, Arrays | Part | Rows):
            batches = islice(in_pairs(examples, BATCH), WATCHED // BATCH)
        for inputs, _ in batches:
            yield cast(inputs, self.network, self.floats)

    def split(self, seed: int) -> tuple[Any, Any]:
        """The parts of the data that a seed trains and tests on, without a copy of arrays."""
        if not self.resplit:
            return self.parts.train, self.parts.test
        rest, held = indices_apart(self.parts, SHARE, seed)
        if not isinstance(self.parts, Arrays):
            return self.parts.take(rest), self.parts.take(held)
        return Part(self.parts, rest), Part(self.parts, held)

    def given(self, seed: int) -> tuple[Any, Any]:
        """The same for the user's own functions: the two parts of a pair as they are, or else all data for both."""
        if are_two_parts(self.data):
            return self.data[0], self.data[1]
        if self.parts is None:
            return self.data, self.data
        return apart(self.parts, SHARE, seed) if self.resplit else (self.parts.train, self.parts.test)

    def trained(
        self, network: nn.Module, seed: int, machine: Machine
    ) -> tuple[nn.Module, dict[str, list[float]]]:
        """Train a network further, in place; return it with the measures of every epoch."""
        network.train()  # it was examined and converted in evaluation
        for name, module in network.named_modules():
            if name in self.frozen:
                module.eval()
        if isinstance(self.train, Recipe):
            fitted = fit(self.called(network), self.split(seed)[0], self.train, seed=seed, machine=machine)
            return network.cpu(), {name: fitted.history[name] for name in CURVES if name in fitted.history}
        before = {name: value.shape for name, value in network.state_dict().items()}
        with seeded(seed):
            returned = self.train(network, self.given(seed)[0], seed)
        result = network if returned is None else returned
        if not isinstance(result, nn.Module) or before != {
            n: v.shape for n, v in result.state_dict().items()
        }:
            raise TypeError(f"{name_of(self.train)} does not return the network it was given, trained")
        return result.cpu(), {}

    @torch.no_grad()
    def measured(self, network: nn.Module, seed: int) -> dict[str, float]:
        """What the network achieves on the test part of a seed; the first number decides."""
        function = self.metric.function
        if function is None:
            part, device = self.split(seed)[1], "cuda" if torch.cuda.is_available() else "cpu"
            called = self.called(network.eval().to(device))
            outputs = ((tree_map_only(Tensor, Tensor.cpu, called(x)), y) for x, y in in_pairs(part, BATCH))
            value = score(self.metric, self.loss, outputs)
            network.cpu()
            return {self.metric.label: value}
        with seeded(seed):
            value = function(network.eval(), self.given(seed)[1])
        several = value if isinstance(value, Mapping) else {self.metric.label: value}
        try:
            return {str(name): float(value) for name, value in several.items()}
        except (TypeError, ValueError):
            raise TypeError(
                f"{name_of(function)} returns {value!r}, not a number or a dict of numbers"
            ) from None

    def configuration(self) -> dict[str, Any]:
        """What all runs share, as plain data: it keeps results of other networks, data and functions apart."""
        train, measure = self.train, self.metric.function
        if isinstance(train, Recipe):
            loss = train.loss if isinstance(train.loss, str) else version_of(train.loss)
            train = asdict(replace(train, loss="mse")) | {"loss": loss}  # type: ignore[assignment]
        return {
            "network": digest_of_network(self.network),
            "code": digest_of_code(self.network),
            "computes": digest_of_values(self._computed()),
            "data": digest_of_data(self.data if self.parts is None else self.parts),
            "train": version_of(train) if callable(train) else train,
            "metric": self.metric.label if measure is None else version_of(measure),
        }

    def _computed(self) -> list[Any]:
        """What the network computes from the example, in evaluation and, where it needs no targets, in training."""
        outputs = []
        for training in (False, True):
            network = deepcopy(self.network).train(training)
            try:
                with seeded(), torch.no_grad():
                    outputs.append(Called(network, self.floats, raw=True)(self.example))
            except Exception:
                outputs.append(None)
        return outputs

    def called(self, network: nn.Module) -> "Called":
        """The network as it is trained and tested: called with inputs in any form."""
        return Called(network, self.floats, raw=not isinstance(self.loss, str))


class Called(nn.Module):
    """A network called with one input, several or named ones, for the tensor that a loss compares.

    Args:
        network: the network.
        floats: whether integers become floating-point numbers.
        raw: whether all that the network returns is passed on, for a loss of the user's own.
    """

    def __init__(self, network: nn.Module, floats: bool = False, raw: bool = False) -> None:
        super().__init__()
        self.network, self.floats, self.raw = network, floats, raw

    def forward(self, inputs: Any) -> Any:
        """The outputs for inputs in any form."""
        inputs = cast(inputs, self.network, self.floats)
        if isinstance(inputs, Mapping):
            outputs = self.network(**inputs)
        else:
            outputs = self.network(*inputs) if isinstance(inputs, tuple | list) else self.network(inputs)
        return outputs if self.raw else scores(outputs)


def task(
    model: nn.Module | Callable[[], nn.Module],
    data: Any,
    *,
    train: Train | None = None,
    metric: str | Measure | None = None,
    higher: bool = False,
    example: Any = None,
    target: str | None = None,
    size: int | None = None,
    loss: str | Loss | None = None,
    recipe: Recipe = RECIPE,
    name: str | None = None,
) -> Task:
    """Check that network, data, training and metric fit together; the arguments are those of `improve`."""
    network, random, frozen = _built(model)
    name = name or type(network).__name__
    if train is not None and loss is not None:
        raise ValueError("a loss is part of a recipe: with a training function of your own, compute it there")
    if train is not None and callable(metric) and not isinstance(data, str | Path):
        inputs = _readable(data) if example is None else example
        own = Metric(name_of(metric), higher, metric)
        return Task(name, network, data, train, own, inputs=inputs, random=random, frozen=frozen)
    parts = with_targets(data, target, size)
    inputs, targets = pool(parts).batch(torch.arange(min(BATCH, len(pool(parts)))))
    floats, outputs = _tried(network, inputs)
    chosen = loss or (recipe.loss if recipe.loss != "cross_entropy" else _suited_loss(outputs, targets))
    recipe = replace(recipe, loss=chosen, normalize=False)
    decides = _metric(metric, higher, chosen)
    whole = Task(
        name, network, data, train or recipe, decides, parts,
        floats=floats, loss=chosen, random=random, frozen=frozen,
    )  # fmt: skip
    if train is None:
        _check_loss(whole, inputs, targets)
    if recipe.augment and not (isinstance(inputs, Tensor) and inputs.dim() == 4):
        raise ValueError(f"augmentation ({', '.join(recipe.augment)}) is for images (N, C, H, W)")
    return whole


def pool(parts: Any) -> Any:
    """The examples to train on, of data with a test part or without."""
    return parts.train if isinstance(parts, Data) else parts


def _check_loss(whole: Task, inputs: Any, targets: Tensor) -> None:
    """Refuse data whose targets the loss cannot compare with the network's outputs."""
    outputs = whole.called(whole.network)(inputs)
    for part in (whole.parts.train, whole.parts.test) if isinstance(whole.parts, Data) else (whole.parts,):
        in_memory = isinstance(part, Arrays)
        _check_targets(outputs, part.targets if in_memory else part.batch(torch.arange(1))[1], whole.loss)
    try:
        measures(whole.loss, outputs, targets)
    except Exception as error:
        raise ValueError(f"the loss cannot compare outputs with targets: {first_line(error)}") from error


def cast(inputs: Any, network: nn.Module, floats: bool = False) -> Any:
    """Inputs in the network's precision and on its device; integers stay as they are, unless it takes floats."""
    weight = next(parameter for parameter in network.parameters() if parameter.is_floating_point())

    def change(leaf: Any) -> Any:
        if not isinstance(leaf, Tensor):
            return torch.as_tensor(leaf) if isinstance(leaf, np.ndarray) else leaf
        real = leaf.is_floating_point() or leaf.dtype == torch.uint8 or (floats and leaf.dtype != torch.bool)
        return leaf.to(weight.device, weight.dtype if real else leaf.dtype)

    return tree_map(change, dict(inputs) if isinstance(inputs, Mapping) else inputs)


def scores(outputs: Any) -> Tensor:
    """The tensor that a loss compares, of outputs that may have it by the name of "logits" or "out".

    >>> scores({"out": torch.zeros(2), "aux": torch.ones(2)})
    tensor([0., 0.])
    """
    if isinstance(outputs, Tensor):
        return outputs
    fields = outputs if isinstance(outputs, Mapping) else getattr(outputs, "__dict__", {})
    if hasattr(outputs, "_fields"):
        fields = outputs._asdict()
    tensors = {key: value for key, value in fields.items() if isinstance(value, Tensor)}
    for key in ("logits", "out", *(tensors if len(tensors) == 1 else ())):
        if key in tensors:
            return tensors[key]
    kind = type(outputs).__name__
    raise TypeError(f"the network returns a {kind}, not a tensor: name a loss of your own that takes it")


def _built(model: nn.Module | Callable[[], nn.Module]) -> tuple[nn.Module, bool, tuple[str, ...]]:
    """The network, whether it has other weights each time it is built, and the modules that the user has frozen."""
    network = model if isinstance(model, nn.Module) else model()
    if not isinstance(network, nn.Module):
        raise TypeError(f"the model is a {type(network).__name__}, not a torch.nn.Module")
    if not any(True for _ in network.parameters()):
        raise ValueError("the network has no parameters: there is nothing to train")
    for name, value in network.state_dict().items():
        if isinstance(value, Tensor) and value.is_floating_point() and not bool(value.isfinite().all()):
            raise ValueError(f"{name} of the network has values that are not finite: load weights that are")
    random = not isinstance(model, nn.Module) and digest_of_network(model()) != digest_of_network(network)
    modes = {name: module.training for name, module in network.named_modules()}
    frozen = tuple(name for name, training in modes.items() if network.training and not training)
    return deepcopy(network).cpu().eval(), random, frozen  # the user's own is left as it is


def _tried(network: nn.Module, inputs: Any) -> tuple[bool, Any]:
    """Whether the network needs integers as floating-point numbers, and its outputs for these inputs."""
    whole = any(isinstance(leaf, Tensor) and not leaf.is_floating_point() for leaf in tree_leaves(inputs))
    errors = []
    for floats in (False, True) if whole else (False,):
        try:
            with torch.no_grad():
                return floats, Called(network, floats, raw=True)(inputs)
        except Exception as error:  # whatever the user's code raises
            errors.append(error)
    shapes = ", ".join(str(tuple(leaf.shape[1:])) for leaf in tree_leaves(inputs) if isinstance(leaf, Tensor))
    message = f"the network does not take inputs of shape {shapes}: {first_line(errors[0])}"
    raise ValueError(message) from errors[0]


def _suited_loss(outputs: Any, targets: Tensor) -> str:
    """The loss that suits outputs and targets; where two would, the user is asked."""
    outputs = scores(outputs)
    binary = bool(((targets == 0) | (targets == 1)).all()) and len(targets.unique()) == 2
    columns = targets.shape[1:].numel()
    if binary and (targets.is_floating_point() or (columns > 1 and outputs.shape == targets.shape)):
        several = f" in {columns} columns" if columns > 1 else ""
        raise ValueError(
            f"targets are 0 and 1{several}: say loss='bce' if they are labels, of which an example may have several "
            "(binary cross-entropy), or loss='mse' if they are values"
        )
    if targets.is_floating_point():
        return "mse"
    return "bce" if binary and outputs.shape[1:].numel() == 1 else "cross_entropy"


def _check_targets(outputs: Any, targets: Tensor, loss: str | Loss) -> None:
    """Refuse targets that a loss by name cannot compare with the outputs."""
    if not isinstance(loss, str):
        return
    if loss == "cross_entropy":
        if outputs.dim() < 2:
            raise ValueError(
                f"outputs of shape {tuple(outputs.shape[1:])} are not class scores: name another loss"
            )
        counted = targets[targets != IGNORED]
        low, high = (int(counted.min()), int(counted.max())) if len(counted) else (0, 0)
        if low < 0 or high >= outputs.shape[1]:
            raise ValueError(
                f"label {low if low < 0 else high} is out of range: the network has {outputs.shape[1]} outputs, so "
                f"that labels go from 0 to {outputs.shape[1] - 1}"
            )
    elif outputs.shape[1:].numel() != targets.shape[1:].numel():
        raise ValueError(
            f"the network has {outputs.shape[1:].numel()} outputs per example, but there are "
            f"{targets.shape[1:].numel()} targets per example"
        )


def _metric(metric: str | Measure | None, higher: bool, loss: str | Loss) -> Metric:
    """The metric that was named or given, or else the one that the loss suggests: a loss of one's own decides."""
    if callable(metric):
        return Metric(name_of(metric), higher, metric)
    if higher:
        raise ValueError(
            "higher is for a metric of your own; relucid knows which values of its own are better"
        )
    usual = {"cross_entropy": "error", "bce": "error", "mse": "rmse"}
    chosen: Metric = named(metric or usual.get(str(loss), "loss"), METRICS, "metric")
    return chosen


def _readable(data: Any) -> Arrays | Rows:
    """The examples in data for the user's own functions, to look at the network with."""
    try:
        return with_targets(data[0] if are_two_parts(data) else data)  # type: ignore[return-value]
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"give an example, some inputs of the network: the data have none that can be read ({error})"
        ) from error


def _has_rows(leaf: Any) -> bool:
    return isinstance(leaf, Tensor) and leaf.dim() > 0


def name_of(function: Any) -> str:
    """The name of a function, for people."""
    return str(getattr(function, "__name__", type(function).__name__))
