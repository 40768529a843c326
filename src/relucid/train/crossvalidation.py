"""How crelu Table 1 trains and tests where there is no validation set.

"Single" is `single`. For "Average" and "Vote" a network is trained without each `fold` of the training set:
"Average" is the mean of their test errors, "Vote" is `vote`, the error of their mean probabilities.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

import torch
from torch import Tensor, nn

from relucid.data import Split, holdout
from relucid.train.fit import Fitted, fit
from relucid.train.measure import error
from relucid.train.recipe import Recipe
from relucid.train.resources import Machine


def single(
    build: Callable[[], nn.Module],
    train: Split,
    recipe: Recipe,
    *,
    share: float = 0.1,
    seed: int = 0,
    machine: Machine | None = None,
) -> Fitted:
    """Train a network on the whole split, for as long as proved best on a held-out share of it.

    "Single": a first network is trained without the share. The second one, from scratch and on everything, stops at
    the training loss of the first one's epoch with the lowest error on the share. The history is that of the second
    network, except for the "val_" entries, which are the first one's.
    """
    machine = machine or Machine()
    rest, held = holdout(train, share, seed)
    history = fit(build(), rest, recipe, held, seed=seed, machine=machine.within("part")).history
    _, target = min(zip(history["val_error"], history["train_loss"], strict=True), key=lambda pair: pair[0])
    whole = replace(recipe, target_loss=target)
    fitted = fit(build(), train, whole, seed=seed, machine=machine.within("whole"))
    held_out = {name: values for name, values in history.items() if name.startswith("val_")}
    return replace(fitted, history={**fitted.history, **held_out})


def vote(outputs: Sequence[Tensor], targets: Tensor) -> float:
    """The error in percent of several networks' mean probabilities, from their outputs (N, classes).

    >>> sure, unsure = torch.tensor([[5.0, 0.0]]), torch.tensor([[0.0, 1.0]])
    >>> vote([sure, unsure], torch.tensor([0])), vote([unsure], torch.tensor([0]))
    (0.0, 100.0)
    """
    return error(torch.stack([output.softmax(1) for output in outputs]).mean(0), targets).item()
