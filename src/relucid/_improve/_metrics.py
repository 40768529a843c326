"""What networks are judged by: metrics by name, computed batch by batch, and the user's own."""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from relucid.train.measure import IGNORED, Loss, measures

Measure = Callable[[nn.Module, Any], Any]  # of a network and data, to a number or several by name


@dataclass(frozen=True)
class Metric:
    """What networks are judged by.

    Args:
        label: its name in tables.
        higher: whether higher values are better.
        function: the user's own; None for a metric that relucid computes.
        measured: the name that training gives it, if it is a mean over examples.
    """

    label: str
    higher: bool = False
    function: Measure | None = None
    measured: str = ""


METRICS = {
    "error": Metric("error %", measured="error"),
    "rmse": Metric("RMSE", measured="mse"),
    "loss": Metric("loss", measured="loss"),
    "f1": Metric("F1", higher=True),
    "auc": Metric("AUC", higher=True),
}


def score(metric: Metric, loss: str | Loss, batches: Iterable[tuple[Any, Tensor]]) -> float:
    """A metric by name, over batches of outputs and targets."""
    if not metric.measured:
        outputs, targets = (torch.cat(tensors).cpu() for tensors in zip(*batches, strict=True))
        if outputs.dim() == 1:  # one logit per example: (N,) and (N, 1) mean the same, as for the losses
            outputs = outputs.unsqueeze(1)
        return (f1 if metric.label == "F1" else auc)(outputs, targets)
    total, count = 0.0, 0
    for outputs, targets in batches:
        counted = int((targets != IGNORED).sum()) if metric.measured == "error" else len(targets)
        if counted:
            total += float(measures(loss, outputs, targets)[metric.measured].double()) * counted
            count += counted
    if metric.measured == "error":
        return exact_share(total / count, count)
    return math.sqrt(total / count) if metric.measured == "mse" else total / count


def f1(outputs: Tensor, targets: Tensor) -> float:
    """The F1 score: of class 1 if there are two classes, otherwise the mean over classes or labels.

    >>> f1(torch.tensor([[0.0, 1.0], [0.0, 1.0], [1.0, 0.0]]), torch.tensor([1, 0, 1]))
    0.5
    """
    from sklearn.metrics import f1_score

    signs = outputs.shape == targets.shape or outputs.shape[1] == 1
    predicted = outputs > 0 if signs else outputs.argmax(1)
    labels = outputs.shape == targets.shape and outputs.dim() == 2 and outputs.shape[1] > 1
    if not labels:
        targets, predicted = targets.flatten(), predicted.flatten()
    two = not labels and outputs.shape[1] <= 2
    return float(f1_score(targets, predicted, average="binary" if two else "macro", zero_division=0.0))


def auc(outputs: Tensor, targets: Tensor) -> float:
    """The area under the ROC curve; of several classes each against the rest, the mean.

    >>> auc(torch.tensor([[0.9], [0.1], [0.5]]), torch.tensor([1, 0, 1]))
    1.0
    """
    from sklearn.metrics import roc_auc_score

    if outputs.dim() != 2:
        raise ValueError(f"AUC takes scores (N, classes), not {tuple(outputs.shape)}")
    scores = outputs.double()
    if outputs.shape != targets.shape:
        scores = (
            scores[:, -1] - scores[:, 0] * (outputs.shape[1] == 2)
            if outputs.shape[1] <= 2
            else scores.softmax(1)
        )
    return float(roc_auc_score(targets.squeeze(-1), scores.squeeze(-1), multi_class="ovr"))


def exact_share(percent: float, count: int) -> float:
    """A percentage of a count, exact: float32 has kept seven digits of it, and equal differences must stay equal.

    >>> exact_share(33.333332, 3) == 100 / 3
    True
    """
    exact = 100 * round(percent / 100 * count) / count
    return exact if math.isclose(exact, percent, rel_tol=1e-5) else percent
