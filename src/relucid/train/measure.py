"""Losses by name, what is measured of a network's outputs, and the error raised when a loss is not finite."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor
from torch.nn import functional

IGNORED = -100  # a class that does not count, as in torch's cross entropy


def aligned(outputs: Tensor, targets: Tensor, *, classes: bool) -> Tensor:
    """The targets in the shape that a loss expects with outputs (N, ...): (N,) and (N, 1) mean the same.

    Args:
        outputs: what the network returned.
        targets: classes, one per output, or values in the shape of the outputs.
        classes: which of the two they are; outputs (N, classes, ...) have classes (N, ...).

    >>> aligned(torch.zeros(3, 1), torch.arange(3.0), classes=False).shape
    torch.Size([3, 1])
    """
    expected = outputs.shape[:1] + outputs.shape[2:] if classes else outputs.shape
    if _without_last_one(targets.shape) != _without_last_one(expected):
        wanted = f"(N{''.join(f', {size}' for size in expected[1:]) or ','})"
        kind = f"classes need the shape {wanted}" if classes else "values need the shape of the outputs"
        raise ValueError(
            f"outputs {tuple(outputs.shape)} cannot be compared with targets {tuple(targets.shape)}: {kind}"
        )
    return targets.reshape(expected)


def same_kind(train: Tensor, other: Tensor) -> None:
    """Refuse targets (M, ...) with a different shape per example than the training targets (N, ...)."""
    if _without_last_one(train.shape)[1:] != _without_last_one(other.shape)[1:]:
        raise ValueError(
            f"targets {tuple(other.shape)} differ from those of training, {tuple(train.shape)}, "
            "in more than their number: both need one shape per example"
        )


def same_classes(train: tuple[str, ...] | None, other: tuple[str, ...] | None) -> None:
    """Refuse classes numbered differently from those of training."""
    if train and other and train != other:
        raise ValueError(
            f"classes {', '.join(other)} are not those of training, {', '.join(train)}: give both splits the same"
            " `classes`"
        )


def _without_last_one(shape: torch.Size) -> tuple[int, ...]:
    return shape[:1] if len(shape) == 2 and shape[1] == 1 else shape


def binary_cross_entropy(outputs: Tensor, targets: Tensor) -> Tensor:
    """The mean cross entropy of classes 0 and 1 (N,) for one logit per example, (N, 1)."""
    targets = aligned(outputs, targets, classes=False)
    return functional.binary_cross_entropy_with_logits(outputs, targets.to(outputs.dtype))


Loss = Callable[[Tensor, Tensor], Tensor]
LOSSES: dict[str, Loss] = {
    "cross_entropy": functional.cross_entropy,
    "bce": binary_cross_entropy,
    "mae": functional.l1_loss,
    "mse": functional.mse_loss,
}


def measures(loss: str | Loss, outputs: Tensor, targets: Tensor) -> dict[str, Tensor]:
    """Means over the examples: the loss, and the top-1 and top-5 error in percent or the squared error.

    With a custom loss, errors are measured if outputs are (N, classes) and targets (N,) integers. A class of -100 is
    ignored, as by torch's cross entropy.

    >>> outputs, targets = torch.tensor([[2.0, 1.0], [2.0, 3.0]]), torch.tensor([1, 1])
    >>> measures("cross_entropy", outputs, targets)["error"]
    tensor(50.)
    """
    if not isinstance(loss, str):
        values = {"loss": loss(outputs, targets)}
        scores = isinstance(outputs, Tensor) and outputs.dim() == 2
        if scores and targets.dim() == 1 and not targets.is_floating_point():
            values["error"] = error(outputs, targets)
        return values
    classes = loss == "cross_entropy"
    if classes and targets.is_floating_point():
        raise ValueError(f"cross_entropy needs classes as integers, not {targets.dtype}")
    targets = aligned(outputs, targets, classes=classes)
    values = {"loss": LOSSES[loss](outputs, targets)}
    if classes:
        values["error"] = error(outputs, targets)
        if outputs.shape[1] > 5:
            values["error5"] = error(outputs, targets, 5)
    elif loss == "bce":
        values["error"] = 100 * ((outputs > 0) != targets).to(outputs.dtype).mean()
    else:
        values["mse"] = functional.mse_loss(outputs, targets)
    return values


def error(outputs: Tensor, targets: Tensor, k: int = 1) -> Tensor:
    """The percentage of targets (N, ...) that are not among the k largest of their outputs (N, classes, ...).

    >>> error(torch.tensor([[0.1, 0.7, 0.2], [0.3, 0.2, 0.5]]), torch.tensor([1, 1]), k=2)
    tensor(50.)
    """
    targets = aligned(outputs, targets, classes=True)
    hits = (outputs.topk(k, dim=1).indices == targets.unsqueeze(1)).any(1)[targets != IGNORED]
    return 100 - 100 * hits.to(torch.promote_types(outputs.dtype, torch.float32)).mean()


def vote(outputs: Sequence[Tensor], targets: Tensor) -> float:
    """The error in percent of several networks' mean probabilities, from their outputs (N, classes).

    >>> sure, unsure = torch.tensor([[5.0, 0.0]]), torch.tensor([[0.0, 1.0]])
    >>> vote([sure, unsure], torch.tensor([0])), vote([unsure], torch.tensor([0]))
    (0.0, 100.0)
    """
    return error(torch.stack([output.softmax(1) for output in outputs]).mean(0), targets).item()


class DivergedError(ArithmeticError):
    """The loss is no longer finite; `history` has the epochs before that one."""

    def __init__(self, message: str, history: dict[str, list[float]]) -> None:
        super().__init__(message, history)
        self.history = history

    def __str__(self) -> str:
        return str(self.args[0])
