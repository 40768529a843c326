"""Train one network: on any device, resumable, repeatable."""

import math
from dataclasses import dataclass, field
from functools import reduce
from typing import Any

import torch
from torch import Tensor, nn

from relucid.data import Examples, Moments, Split, mean_image, moments, ten_crops
from relucid.data.parts import as_examples
from relucid.printing import Summarized
from relucid.train.batches import Batches, are_numbers
from relucid.train.engine import CONTIGUOUS, Engine
from relucid.train.loop import train_network
from relucid.train.measure import Loss, measures, same_classes, same_kind
from relucid.train.recipe import Recipe
from relucid.train.resources import Machine

DECODED = 5000  # examples whose moments are computed where each must be decoded first


@dataclass(frozen=True, eq=False)
class Fitted(Summarized):
    """A trained network, the moments that normalize its inputs, and the measures of every epoch."""

    network: nn.Module
    moments: Moments
    history: dict[str, list[float]]
    loss: str | Loss
    device: torch.device
    engine: Engine = CONTIGUOUS  # how its steps were computed
    classes: tuple[str, ...] | None = None  # names of the classes, where the training split has them
    machine: Machine = field(default_factory=Machine)

    def summary(self) -> str:
        """Summarize the measures of the last epoch."""
        epochs = max(map(len, self.history.values()), default=0)
        last = (f"{name} {values[-1]:.4g}" for name, values in self.history.items() if values)
        return f"after {epochs} epochs: {', '.join(last)}"

    @torch.no_grad()
    def predict(self, examples: Examples, crops: int | None = None, batch_size: int = 500) -> Tensor:
        """The outputs (N, ...); with `crops`, the log of the mean probabilities over ten crops of that size."""
        self.network.eval().to(self.device)
        dtype = next(self.network.parameters()).dtype
        outputs = []
        # All examples even if training was distributed; `batches` would give each process only its share.
        for inputs, _ in Batches(examples, batch_size, workers=self.machine.workers_for(examples)).epoch():
            inputs = inputs.to(self.device)
            if are_numbers(inputs):  # tokens go to the network as they are, as in training
                inputs = self.moments.normalize(inputs).to(dtype)
            outputs.append((self._called(inputs) if crops is None else self._voted(inputs, crops)).cpu())
        return torch.cat(outputs)

    def _called(self, inputs: Any) -> Tensor:
        outputs: Tensor = self.network(self.engine.arrange(inputs))
        return outputs

    def _voted(self, images: Tensor, size: int) -> Tensor:
        """The log of the mean probabilities over ten crops, which stays finite where probabilities underflow."""
        logs = (self._called(crop).log_softmax(1) for crop in ten_crops(images, size))
        return reduce(torch.logaddexp, logs) - math.log(10)

    def evaluate(self, data: Any, crops: int | None = None) -> dict[str, float]:
        """The loss on data in any form, and the errors in percent or the squared error."""
        examples = as_examples(data)
        same_classes(self.classes, _class_names(examples))
        values = measures(self.loss, self.predict(examples, crops), examples.targets)
        return {name: value.item() for name, value in values.items()}


def fit(
    network: nn.Module,
    train: Any,
    recipe: Recipe,
    validation: Any = None,
    *,
    seed: int = 0,
    machine: Machine | None = None,
) -> Fitted:
    """Train a network by a recipe; resume where the last checkpoint was written if training was killed.

    Args:
        network: trained in place.
        train: examples (`Split`, `Photos`), or data in any form that `relucid.data.as_data` takes.
        recipe: how to train.
        validation: likewise, measured after every epoch.
        seed: decides the order of the examples, and all that is drawn at random.
        machine: where to train, and where to keep checkpoints.

    Raises:
        DivergedError: if the loss becomes NaN or infinite.
        ValueError: if outputs and targets cannot be compared.

    >>> from relucid.data import digits
    >>> data = digits()
    >>> network = nn.Sequential(nn.Flatten(), nn.Linear(64, 10))
    >>> fitted = fit(network, data.train, Recipe(epochs=3, lr=0.05))
    >>> len(fitted.history["train_loss"]), fitted.evaluate(data.test)["error"] < 10
    (3, True)
    """
    train, validation = as_examples(train), None if validation is None else as_examples(validation)
    if validation is not None:
        same_kind(train.targets, validation.targets)
        same_classes(_class_names(train), _class_names(validation))
    normal, machine = _moments(train, recipe), machine or Machine()
    history, device, engine = train_network(network, train, recipe, validation, normal, seed, machine)
    return Fitted(network, normal, history, recipe.loss, device, engine, _class_names(train), machine)


def _class_names(examples: Examples) -> tuple[str, ...] | None:
    return examples.classes if isinstance(examples, Split) else None


def _moments(train: Examples, recipe: Recipe) -> Moments:
    """The moments by which a recipe normalizes inputs."""
    limit = {} if isinstance(train, Split) else {"limit": DECODED}
    if recipe.normalize is True:
        return moments(train, **limit)
    first = train.batch(torch.tensor([0]))[0]
    if not recipe.normalize:
        channels = first.shape[1] if are_numbers(first) and first.dim() > 1 else 1
        return Moments(torch.zeros(channels), torch.eye(channels, dtype=torch.float64))
    spread = moments(train, **limit)
    mean = spread.mean if recipe.normalize == "mean" else mean_image(train, **limit)
    return Moments(mean, spread.covariance, 1.0 if first.is_floating_point() else 255.0)
