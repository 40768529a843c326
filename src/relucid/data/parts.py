"""A training and a test part of data in any form."""

from inspect import getattr_static
from typing import Any

import numpy as np
import torch
from torch import Tensor

from relucid.data.dataset import Arrays, Data, Examples, Split, held_out
from relucid.data.source import Rows, Stream, source

SHARE = 0.2  # split off for testing, where data have no test part
FEWEST = 20  # examples to train and test on


def as_data(
    given: Any, target: str | None = None, share: float = SHARE, size: int | None = None
) -> Data[Any]:
    """A training and a test part of data.

    Args:
        given: data in any form that `relucid.data.source` takes, with targets. Arrays stay in memory as they are; the
            examples of a data set are read when they are needed.
        target: of a table, the column to predict.
        share: the share to split off if there is no test part; always the same examples.
        size: of a folder, the size to which images are scaled and cut.

    >>> data = as_data((torch.randn(50, 3), torch.arange(50) % 2))
    >>> len(data.train), len(data.test), data.classes
    (40, 10, 2)
    """
    data = with_targets(given, target, size)
    if not isinstance(data, Data):
        data = Data(*apart(data, share))
    for part, what in ((data.train, "train"), (data.test, "test")):
        if not len(part):
            raise ValueError(f"there are no examples to {what} on")
    labels = data.train.targets if isinstance(data.train, Split) else torch.zeros(0)
    return Data(data.train, data.test, None if labels.is_floating_point() else int(labels.max()) + 1)


def as_examples(given: Any) -> Examples:
    """Data in any form as examples in one part, to train or to test on; examples stay as they are."""
    if all(getattr_static(given, name, None) is not None for name in ("batch", "targets")):  # nothing is read
        examples: Examples = given
        return examples
    data = with_targets(given)
    if isinstance(data, Data):
        raise TypeError("the data have a part to train and a part to test on: give one of them")
    return data  # type: ignore[return-value]  # with targets


def with_targets(given: Any, target: str | None = None, size: int | None = None) -> Data[Any] | Arrays | Rows:
    """Data in any form; refuse what cannot be shuffled or has no targets."""
    data = source(given, target, size)
    for part in (data.train, data.test) if isinstance(data, Data) else (data,):
        if isinstance(part, Stream):
            raise TypeError(
                f"batches of a {type(part.batches).__name__} cannot be shuffled and split: give a tuple of inputs and "
                "targets, a data set with __len__ and __getitem__, or a training function of your own"
            )
        if isinstance(part, Arrays) and part.targets is None:
            raise TypeError(
                "the data have no targets: give a tuple of inputs and targets, or a data set of pairs"
            )
    return data  # type: ignore[return-value]  # no Stream


def apart(split: Any, share: float, seed: int = 0) -> tuple[Any, Any]:
    """The examples without a random share of them, and that share; classes of arrays keep their proportions."""
    rest, held = indices_apart(split, share, seed)
    return split.take(rest), split.take(held)


def indices_apart(split: Any, share: float, seed: int = 0) -> tuple[Tensor, Tensor]:
    """The indices of both parts."""
    if len(split) < FEWEST:
        raise ValueError(f"there are {len(split)} examples; training and testing take {FEWEST} or more")
    held = max(1, round(share * len(split)))
    if isinstance(split, Split) and not split.targets.is_floating_point() and split.targets.dim() == 1:
        counts = split.targets.unique(return_counts=True)[1]
        if int(counts.min()) > 1 and len(counts) <= min(held, len(split) - held):
            return held_out(split, share, seed)
    order = torch.from_numpy(np.random.default_rng(seed).permutation(len(split)))
    return order[held:], order[:held]
