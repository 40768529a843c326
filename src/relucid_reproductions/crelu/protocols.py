"""How crelu Section 3.1 trains and tests on CIFAR: "Single", and leaving out each of ten folds."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import nn

from relucid.data import Data, Split, holdout, k_fold
from relucid.experiments import Column
from relucid.train import Fitted, Machine, Recipe, fit
from relucid.train.measure import error

AVERAGE, VOTE = "Average %", "Vote %"
SINGLE = {"protocol": "single"}
FOLDS: tuple[Any, Any] = {"protocol": "folds", "seed": 0}, {"fold": range(10)}
TEN_FOLDS = {AVERAGE: Column("error", *FOLDS), VOTE: Column("error", *FOLDS, vote=True)}
# What a run that tries a rate adds: it trains without the last fold, and the test images play no part.
TRIES_RATE: dict[str, Any] = {"protocol": "folds", "fold": 9, "seed": 0, "held_out_only": True}
Measure = Callable[[Fitted], tuple[Mapping[str, float], Mapping[str, Any]]]


def outcome(
    build: Callable[[], nn.Module],
    data: Data[Split],
    recipe: Recipe,
    training: Mapping[str, Any],
    held_out_only: bool,
    machine: Machine | None,
    measure: Measure = lambda fitted: ({}, {}),
) -> dict[str, Any]:
    """Train a network by a protocol and test it: what a run returns.

    Args:
        build: makes a new network.
        data: its training split is trained on.
        recipe: how to train.
        training: see `trained`.
        held_out_only: return the error on held-out images only: a run that tries a rate does not see the test images.
        machine: where to train.
        measure: metrics and arrays of a network trained by "Single".
    """
    fitted = trained(build, data, recipe, training, machine)
    history = fitted.history
    if held_out_only:
        return {"val_error": history["val_error"][-1], "history": history}
    outputs, targets = fitted.predict(data.test), data.test.targets
    metrics = {"error": float(error(outputs, targets)), "history": history}
    if "val_error" in history:
        metrics["val_error"] = min(history["val_error"])
    if training["protocol"] == "folds":  # the outputs vote
        return {**metrics, "arrays": {"outputs": outputs.numpy(), "targets": targets.numpy()}}
    measured, arrays = measure(fitted)
    return {**metrics, **measured, "train_error": fitted.evaluate(data.train)["error"], "arrays": arrays}


def trained(
    build: Callable[[], nn.Module],
    data: Data[Split],
    recipe: Recipe,
    training: Mapping[str, Any],
    machine: Machine | None,
) -> Fitted:
    """Train a network by the `protocol` in `training`; the seed or the fold's number draws its weights.

    "single" has the "seed" and the "share" that is held out to decide when to stop, 0 to train on everything for all
    epochs; "folds" the number of the held-out "fold", of so many "folds".
    """
    seed = training["fold" if training["protocol"] == "folds" else "seed"]

    def seeded() -> nn.Module:
        torch.manual_seed(seed)
        return build()

    if training["protocol"] == "folds":
        rest, held = k_fold(data.train, seed, training["folds"])
        return fit(seeded(), rest, recipe, held, seed=seed, machine=machine)
    if not training["share"]:
        return fit(seeded(), data.train, recipe, seed=seed, machine=machine)
    return single(seeded, data.train, recipe, share=training["share"], seed=seed, machine=machine)


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
