"""How crelu Section 3.1 trains and tests on CIFAR: "Single", and leaving out each of ten folds."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from torch import nn

from relucid.data import Data, Split, holdout, k_fold
from relucid.experiments import Column
from relucid.train import Fitted, Machine, Recipe
from relucid.train.measure import error
from relucid_reproductions.images import held_out, trained

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
    machine: Machine | None,
    measure: Measure = lambda fitted: ({}, {}),
    *,
    protocol: str,
    share: float,
    folds: int,
    seed: int = 0,
    fold: int | None = None,
    held_out_only: bool = False,
) -> dict[str, Any]:
    """Train a network by a protocol and test it: what a run returns.

    Args:
        build: makes a new network.
        data: its training split is trained on.
        recipe: how to train.
        machine: where to train.
        measure: metrics and arrays of a network trained by "Single".
        protocol: "single" or "folds".
        share: held out by "single" to decide when to stop, 0 to train on everything for all epochs.
        folds: of which "folds" holds one out.
        seed: of "single".
        fold: that is held out; it draws the weights as well.
        held_out_only: for a run that tries a rate, which does not see the test images.
    """
    if protocol == "folds":
        assert fold is not None
        rest, held = k_fold(data.train, fold, folds)
        fitted = trained(build, rest, recipe, held, seed=fold, machine=machine)
    elif share:
        fitted = single(build, data.train, recipe, share=share, seed=seed, machine=machine)
    else:
        fitted = trained(build, data.train, recipe, seed=seed, machine=machine)
    if held_out_only:
        return held_out(fitted)
    outputs, targets = fitted.predict(data.test), data.test.targets
    metrics = {"error": float(error(outputs, targets)), "history": fitted.history}
    if "val_error" in fitted.history:
        metrics["val_error"] = min(fitted.history["val_error"])
    if protocol == "folds":  # the outputs vote
        return {**metrics, "arrays": {"outputs": outputs.numpy(), "targets": targets.numpy()}}
    measured, arrays = measure(fitted)
    return {**metrics, **measured, "train_error": fitted.evaluate(data.train)["error"], "arrays": arrays}


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
    history = trained(build, rest, recipe, held, seed=seed, machine=machine.within("part")).history
    _, target = min(zip(history["val_error"], history["train_loss"], strict=True), key=lambda pair: pair[0])
    whole = replace(recipe, target_loss=target)
    fitted = trained(build, train, whole, seed=seed, machine=machine.within("whole"))
    held_out = {name: values for name, values in history.items() if name.startswith("val_")}
    return replace(fitted, history={**fitted.history, **held_out})
