"""Parameterizations of VGG-6 and ResNet-50 on photographs: the runs of gmp Tables 1 and 2."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Literal

from relucid.data import Data, cifar10, digits, holdout, imagenet, imagenet32
from relucid.experiments import Results, runner
from relucid.models import create
from relucid.report.figure import Figure
from relucid.report.plots import curves
from relucid.train import Machine, Recipe
from relucid.train.recipe import Decay
from relucid_reproductions.images import channels, held_out, part, trained

LOADERS: dict[str, Callable[[], Data[Any]]] = {
    "imagenet": lambda: imagenet(scales=(256, 480)),
    "imagenet32": partial(imagenet32, original=True),
    "cifar10": cifar10,
    "digits": digits,
}
BEST = "GmP+IMN"
THRESHOLD = 0.01  # points of accuracy: Keras's 1e-4, for shares
# gmp 4.3 sets r = 1; the rows without this begin with the lengths of Glorot's weights, the authors' setup with those of
# its own, whose fan-out leaves out the kernel's area.
R_IS_ONE = {"init": "one"}
HELD_OUT = 0.1  # share of the training images by which a learning rate is chosen


@runner("gmp/images")
def run(
    backbone: str,
    design: str,
    data: str,
    images: Sequence[int] | None,
    width: float,
    batch: int,
    times: int,
    rate: float | Mapping[str, float],
    weight_decay: float,
    epochs: int,
    augment: Sequence[str],
    seed: int,
    decay: Decay = "groups",
    steps: Sequence[float] | None = None,
    pool: int = 1,
    normalize: bool | Literal["mean", "mean_image"] | None = None,
    init: str = "glorot",
    authors: bool = False,
    held_out_only: bool = False,
    machine: Machine | None = None,
) -> dict[str, Any]:
    """Train one network; as in the paper, the split that decides when to stop is the one that is reported.

    Args:
        backbone: "vgg6" or "resnet50".
        design: the parameterization, as in the names of networks.
        data: one of `LOADERS`.
        images: how many to train and to validate with; None for all.
        width: of the network, relative to the paper's.
        batch: the smallest batch size.
        times: its multiple that this run takes.
        rate: of learning, or one for every multiple of the smallest batch size.
        weight_decay: of SGD.
        epochs: at most so many, or exactly with `steps`.
        augment: of the training images.
        seed: of the initial weights and the order.
        decay: what weight decay acts on.
        steps: where a fixed schedule cuts the rate; then the validation split decides nothing.
        pool: how many pixels a side are averaged to one.
        normalize: of the images; by default mean and deviation, or the mean as in the authors' runs.
        init: "one" for r = 1.
        authors: whether initial weights, norms and plateaus are the authors'.
        held_out_only: to choose a rate, on images held out of the training set: the test set is not seen.
        machine: what to train on.
    """
    for_training, for_tests = images or (None, None)
    parts = part(LOADERS[data](), for_training, for_tests, pool)
    train, test = holdout(parts.train, HELD_OUT, seed) if held_out_only else (parts.train, parts.test)
    build = partial(
        create,
        f"gmp/{backbone}-{design}{'-authors' if authors else ''}",
        num_classes=parts.classes or 0,
        in_channels=channels(train),
        width=width,
        init=None if authors or init == "one" else "glorot",
    )
    plateau = {
        "patience": 5,
        "stop": 10,
        "threshold": THRESHOLD if authors else 0.0,
        "monitor": "val_error5" if authors else "val_error",
    }
    recipe = Recipe(
        epochs=epochs,
        batch_size=batch * times,
        lr=float(rate[str(times)] if isinstance(rate, Mapping) else rate),
        weight_decay=weight_decay,
        decay=decay,
        **({"steps": steps} if steps is not None else plateau),
        augment=augment,
        normalize=normalize if normalize is not None else "mean" if authors else True,
    )
    fitted = trained(build, train, recipe, test, seed=seed, machine=machine)
    if held_out_only:
        return held_out(fitted)
    errors = fitted.evaluate(test)
    return {"top1": 100 - errors["error"], "top5": 100 - errors["error5"], "history": fitted.history}


def training_curves(results: Results, column: str) -> list[Figure]:
    """Draw the top-5 errors of training and of validation, for the epochs that all seeds reached (gmp Fig. 4)."""
    return [
        figure
        for split, name in (("training", "train_error5"), ("validation", "val_error5"))
        for figure in curves(results, name, f"top-5 {split} error %", f"Top-5 error, {split}", [column])
    ]
