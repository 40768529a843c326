"""How crelu Section 3.1 trains and tests on CIFAR: "Single", and leaving out each of ten folds."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import nn

from relucid.data import Data, Split, holdout, k_fold
from relucid.studies import Column, Result
from relucid.train import Fitted, Machine, Recipe, fit
from relucid.train.measure import error

AVERAGE, VOTE = "Average %", "Vote %"
SINGLE = {"protocol": "single"}
FOLDS: dict[str, Any] = {"config": {"protocol": "folds", "seed": 0}, "repeat": {"fold": range(10)}}
# What a run that tries a rate adds: it trains without the last fold, and the test images play no part.
TRIES_RATE = {"protocol": "folds", "fold": 9, "seed": 0, "held_out_only": True}
TEN_FOLDS = {AVERAGE: Column("error", **FOLDS), VOTE: Column("error", **FOLDS, summary="vote")}


def trained(
    build: Callable[[], nn.Module],
    data: Data[Split],
    recipe: Recipe,
    config: dict[str, Any],
    machine: Machine,
) -> Fitted:
    """Train a network by the configuration's ``protocol``; the seed or the fold's number draws its weights.

    Args:
        build: makes a new network.
        data: its training split is trained on.
        recipe: how to train.
        config: "protocol": "single" with the "seed" and the "share" held out to decide when to stop, 0 to train on
            everything for all epochs; or "folds" with the number "fold" of the held-out fold.
        machine: where to train.
    """
    seed = config["fold"] if config["protocol"] == "folds" else config["seed"]

    def seeded() -> nn.Module:
        torch.manual_seed(seed)
        return build()

    if config["protocol"] == "folds":
        rest, held = k_fold(data.train, seed, config["folds"])
        return fit(seeded(), rest, recipe, held, seed=seed, machine=machine)
    if not config["share"]:
        return fit(seeded(), data.train, recipe, seed=seed, machine=machine)
    return single(seeded, data.train, recipe, share=config["share"], seed=seed, machine=machine)


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


def tested(fitted: Fitted, data: Data[Split]) -> Result:
    """Test a network: its errors in percent on the test and held-out splits, and its outputs for a vote."""
    outputs, targets = fitted.predict(data.test), data.test.targets
    metrics = {"error": float(error(outputs, targets))}
    if "val_error" in fitted.history:
        metrics["val_error"] = min(fitted.history["val_error"])
    arrays = {"outputs": outputs.numpy(), "targets": targets.numpy()}
    return Result(metrics, fitted.history, arrays)
