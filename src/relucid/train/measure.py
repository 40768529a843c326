"""Losses by name, what is measured of a network's outputs, and a loss that is not finite."""

from collections.abc import Callable

from torch import Tensor
from torch.nn import functional


def binary_cross_entropy(outputs: Tensor, targets: Tensor) -> Tensor:
    """Mean cross entropy of classes 0 and 1 (N,) for one logit an example, (N, 1)."""
    return functional.binary_cross_entropy_with_logits(outputs.squeeze(1), targets.to(outputs.dtype))


LOSSES: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "cross_entropy": functional.cross_entropy,
    "bce": binary_cross_entropy,
    "mae": functional.l1_loss,
    "mse": functional.mse_loss,
}


def measures(loss: str, outputs: Tensor, targets: Tensor) -> dict[str, Tensor]:
    """Means over the examples: the loss, and the top-1 and top-5 error in percent or the squared error.

    >>> import torch
    >>> outputs, targets = torch.tensor([[2.0, 1.0], [2.0, 3.0]]), torch.tensor([1, 1])
    >>> measures("cross_entropy", outputs, targets)["error"]
    tensor(50.)
    """
    found = {"loss": LOSSES[loss](outputs, targets)}
    if loss == "cross_entropy":
        found["error"] = error(outputs, targets)
        if outputs.shape[1] > 5:
            found["error5"] = error(outputs, targets, 5)
    elif loss == "bce":
        found["error"] = 100 * ((outputs.squeeze(1) > 0) != targets).to(outputs.dtype).mean()
    else:
        found["mse"] = functional.mse_loss(outputs, targets)
    return found


def error(outputs: Tensor, targets: Tensor, k: int = 1) -> Tensor:
    """Percentage of targets (N,) that are not among the k largest of their outputs (N, classes).

    >>> import torch
    >>> error(torch.tensor([[0.1, 0.7, 0.2], [0.3, 0.2, 0.5]]), torch.tensor([1, 1]), k=2)
    tensor(50.)
    """
    found = (outputs.topk(k).indices == targets.unsqueeze(1)).any(1)
    return 100 - 100 * found.to(outputs.dtype).mean()


class DivergedError(ArithmeticError):
    """The loss is not finite any more; `history` has the epochs before that one."""

    def __init__(self, message: str, history: dict[str, list[float]]) -> None:
        super().__init__(message, history)
        self.history = history

    def __str__(self) -> str:
        return str(self.args[0])
