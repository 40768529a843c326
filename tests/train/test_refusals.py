"""What the room refuses: the call, and the value that the message names."""

from functools import partial

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.optim import Adam

from relucid.data import Split
from relucid.train import Engine, Plateau, Recipe, ensemble, fit
from relucid.train.measure import measures
from relucid.train.stream import Stream

from .problems import small_images, small_network
from .test_recipe import CRELU

PART = Split(torch.zeros(4, 1), torch.zeros(4, 1))
NETWORKS = [nn.Linear(1, 1) for _ in range(2)]


def recipe(**wrong):
    return partial(Recipe, **{"epochs": 10, **wrong})


def together(train=(PART, PART), monitor=(PART, PART), rates=(0.1, 0.1)):
    return partial(ensemble, NETWORKS, train, monitor, rates=rates, epochs=1, loss=F.mse_loss)


def compared(loss, outputs, targets, kind=torch.long):
    return partial(measures, loss, torch.zeros(outputs), torch.zeros(targets, dtype=kind))


def two_groups(line):
    return Adam([{"params": [line.weight]}, {"params": [line.bias]}])


def one_step_ahead():
    optimizers = [Adam(line.parameters()) for line in NETWORKS]
    for line, optimizer, steps in zip(NETWORKS, optimizers, (1, 2), strict=True):
        for _ in range(steps):
            line(torch.zeros(1, 1)).sum().backward()
            optimizer.step()
    return Stream(NETWORKS, optimizers)


REFUSALS = [
    (one_step_ahead, r"different numbers of steps: \[1, 2\]"),
    (partial(Engine, "nhwc"), "nhwc"),
    *((partial(Plateau, patience, stop=5), f"patience={patience}") for patience in (0, 6)),
    (
        partial(fit, small_network(), small_images(), Recipe(epochs=2, patience=1, stop=2)),
        "'val_error' .* train_loss",
    ),
    (partial(Stream, NETWORKS, [*map(two_groups, NETWORKS)]), "one group of parameters, not 2"),
    (together(train=[PART]), "2 networks need 2 train, not 1"),
    (together(monitor=[PART]), "2 networks need 2 monitor, not 1"),
    (together(rates=[0.1]), "2 networks need 2 rates, not 1"),
    (
        together(train=[Split(torch.zeros(4, 1), torch.zeros(4, 2))] * 2),
        r"outputs \(4, 1\) .* targets \(4, 2\)",
    ),
    (compared("cross_entropy", (4, 2), (4,), torch.float32), "integers"),
    (compared("mse", (6, 1), (6, 2)), r"\(6, 1\) .* \(6, 2\): .* the shape of the outputs"),
    (compared("mae", (6, 6), (6,)), r"\(6, 6\) .* \(6,\): .* the shape of the outputs"),
    (compared("bce", (6, 2), (6,)), r"\(6, 2\) .* \(6,\): .* the shape of the outputs"),
    (compared("cross_entropy", (6, 3), (6, 3)), r"\(6, 3\) .* \(6, 3\): .* the shape \(N,\)"),
    (compared("cross_entropy", (5, 3), (6,)), r"\(5, 3\) .* \(6,\): .* the shape \(N,\)"),
    (recipe(loss="l2"), "no loss 'l2'; there are cross_entropy"),
    (recipe(optimizer="adamw"), "no optimizer 'adamw'; there are sgd"),
    (recipe(augment=("flip", "flop")), "no augmentation 'flop'; there are flip, crop"),
    (recipe(decay="some"), "no decay 'some'; there are groups"),
    (recipe(dampening=0.9, optimizer="nesterov"), "dampening"),
    (recipe(normalize="median"), "no way to normalize 'median'; there are mean"),
    (recipe(epochs=0), "epochs .* at least 1, not 0"),
    (recipe(batch_size=0), "batch_size .* at least 1, not 0"),
    (recipe(lr=float("nan")), "lr .* not nan"),
    (recipe(lr=float("inf")), "lr .* not inf"),
    (recipe(lr=-1), "lr .* at least 0, not -1"),
    (recipe(lr="0.1"), "lr .* not '0.1'"),
    (recipe(weight_decay=-1e-4), "weight_decay .* not -0.0001"),
    (recipe(table=((10, -0.1, 0.0),)), "rate up to epoch 10 .* not -0.1"),
    (recipe(warmup=(0.01,)), r"warm-up is a rate .* not \(0.01,\)"),
    (recipe(warmup=(-0.01, 80)), "warm-up .* not -0.01"),
    (recipe(patience=5), "both patience and stop"),
    (recipe(threshold=0.01), "threshold"),
    (recipe(patience=9, stop=5), "patience=9"),
    (recipe(steps=(0.5,), table=CRELU), "one schedule"),
    (recipe(table=CRELU, epochs=50), "ends at epoch 45 of 50"),
]


@pytest.mark.parametrize("call, value", REFUSALS, ids=map(str, range(len(REFUSALS))))
def test_it_is_refused_with_the_value(call, value):
    with pytest.raises(ValueError, match=value):
        call()
