"""What training on ImageNet takes, for estimates of studies that have not been run."""

from collections.abc import Callable

from torch import nn

from relucid.data.images import SOURCES
from relucid.train.flops import training_flops

PIXELS = {"imagenet": 224, "imagenet32": 32}  # a side, of what networks are shown


def imagenet_flops(
    build: Callable[[], nn.Module], data: str, epochs: int, *, validations: int
) -> float | None:
    """Operations of a run: so many epochs of training, and so many passes over the validation images.

    Args:
        build: makes the network.
        data: "imagenet" or "imagenet32"; None is returned for any other data set.
        epochs: of training.
        validations: passes over the validation images; ten crops of each are ten.
    """
    if data not in PIXELS:
        return None
    images, tests = SOURCES[data].rows
    shape = (3, PIXELS[data], PIXELS[data])
    return training_flops(build, shape, trained=epochs * images, evaluated=validations * tests)
