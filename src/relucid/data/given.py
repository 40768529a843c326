"""A training and a test split from data in any form."""

from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader

from relucid.data.dataset import Data, Split, holdout
from relucid.data.images import cifar10, cifar100, digits, imagenet32
from relucid.data.own import from_arrays, from_dataset, from_folder, from_table
from relucid.data.tables import UCI, banana, levy, uci

SHARE = 0.2  # split off for testing, where data have no test split
FEWEST = 20  # examples to train on, choose by and test on
BUILT_IN: dict[str, Callable[[], Data[Split]]] = {
    "banana": banana,
    "levy": levy,
    **{f"uci/{name}": partial(uci, name) for name in UCI},
    "digits": digits,
    "cifar10": cifar10,
    "cifar100": cifar100,
    "imagenet32": imagenet32,
}
TEST_FOLDERS = ("test", "val", "validation")


def as_data(given: Any, target: str | None = None, share: float = SHARE) -> Data[Split]:
    """A training and a test split.

    Args:
        given: `Data`; a `Split`, a torch data set, a loader, or a pair of inputs and targets, all of which are split
            in two; a pair of any of these, to train and to test on; or text: the name of a built-in data set, a folder
            with one folder of images per class (or with such folders in `train` and `test`), or a CSV file.
        target: for a CSV file, the name of the column to predict.
        share: the share to split off if there is no test split; always the same examples.

    >>> data = as_data((torch.randn(50, 3), torch.arange(50) % 2))
    >>> len(data.train), len(data.test), data.classes
    (40, 10, 2)
    """
    found = read(given, target)
    if isinstance(found, Split):
        if len(found) < FEWEST:
            raise ValueError(f"there are {len(found)} examples; training and testing take {FEWEST} or more")
        found = Data(*apart(found, share))
    if not isinstance(found.train, Split) or not isinstance(found.test, Split):
        raise TypeError("the data must fit in memory: give arrays, or a smaller data set")
    if not len(found.train) or not len(found.test):
        raise ValueError(
            "there are no examples to train on" if len(found.test) else "there are none to test on"
        )
    values = found.train.targets.is_floating_point()
    return Data(found.train, found.test, None if values else int(found.train.targets.max()) + 1)


def read(given: Any, target: str | None = None) -> Data[Any] | Split:
    """A training and a test split if the data have both, otherwise one split; arguments as for `as_data`."""
    if target is not None and not str(given).endswith(".csv"):
        raise ValueError(f"target={target!r} names a column, which only a CSV file has")
    return _named(str(given), target) if isinstance(given, str | Path) else _parts(given)


def apart(split: Split, share: float, seed: int = 0) -> tuple[Split, Split]:
    """The split without a random share of it, and that share; classes keep their proportions if possible."""
    held = max(1, round(share * len(split)))
    if not split.targets.is_floating_point() and split.targets.dim() == 1:
        counts = split.targets.unique(return_counts=True)[1]
        if int(counts.min()) > 1 and len(counts) <= min(held, len(split) - held):
            return holdout(split, share, seed)
    order = torch.from_numpy(np.random.default_rng(seed).permutation(len(split)))
    return split.take(order[held:]), split.take(order[:held])


def _parts(given: Any) -> Data[Any] | Split:
    """Data, or one split; the second of a pair of data sets is for testing."""
    if isinstance(given, Data):
        return given
    if isinstance(given, tuple | list) and len(given) == 2 and not all(map(_is_array, given)):
        return Data(_split(given[0]), _split(given[1]))
    return _split(given)


def _split(given: Any) -> Split:
    if isinstance(given, Split):
        return given
    if isinstance(given, tuple | list) and len(given) == 2 and all(map(_is_array, given)):
        return from_arrays(*given)
    if isinstance(given, DataLoader):
        return _of_batches(given)
    if (
        hasattr(given, "__getitem__")
        and hasattr(given, "__len__")
        and not isinstance(given, Tensor | np.ndarray)
    ):
        return from_dataset(given)
    if isinstance(given, Iterable) and not isinstance(given, Tensor | np.ndarray):
        return _of_batches(given)
    raise TypeError(
        f"{type(given).__name__} is not data with targets: give a pair of inputs and targets, or a data set"
    )


def _is_array(value: Any) -> bool:
    return isinstance(value, Tensor | np.ndarray)


def _of_batches(batches: Iterable[Any]) -> Split:
    """Concatenate the pairs of inputs and targets that a loader yields."""
    inputs, targets = [], []
    for number, batch in enumerate(batches):
        if not isinstance(batch, tuple | list) or len(batch) != 2:
            raise ValueError(f"batch {number} is a {type(batch).__name__}, not a pair of inputs and targets")
        inputs.append(torch.as_tensor(batch[0]))
        targets.append(torch.as_tensor(batch[1]))
    if not inputs:
        raise ValueError("the data have no batches")
    return from_arrays(torch.cat(inputs), torch.cat(targets))


def _named(name: str, target: str | None) -> Data[Any] | Split:
    """Load a built-in data set, a folder or a file; 8-bit images become numbers from 0 to 1."""
    path = Path(name)
    if name in BUILT_IN:
        found = BUILT_IN[name]()
        white = 16 if name == "digits" else 255
        return Data(_scaled(found.train, white), _scaled(found.test, white), found.classes)
    if path.is_dir():
        return _folders(path)
    if path.suffix == ".csv":
        if target is None:
            raise ValueError(f"say which column of {name} is to be predicted: --target COLUMN")
        if not path.is_file():
            raise ValueError(f"there is no file {name}")
        return from_table(path, target)
    raise ValueError(
        f"there are no data {name}: name a built-in set ({', '.join(BUILT_IN)}), a folder of images, a .csv file, or "
        "MODULE:FUNCTION"
    )


def _folders(path: Path) -> Data[Any] | Split:
    if not any(path.iterdir()):
        raise ValueError(f"{path} is empty: it needs one folder of images per class")
    test = next((path / name for name in TEST_FOLDERS if (path / name).is_dir()), None)
    if not (path / "train").is_dir() or test is None:
        return _scaled(from_folder(path))
    train = from_folder(path / "train")
    return Data(_scaled(train), _scaled(from_folder(test, classes=train.classes)))


def _scaled(split: Split, white: int = 255) -> Split:
    if split.inputs.dtype != torch.uint8:
        return split
    return Split(split.inputs / white, split.targets, split.classes)
