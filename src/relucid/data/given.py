"""Data in any form: examples with targets, read when they are needed, and a training and a test part of them."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, IterableDataset, TensorDataset, default_collate

from relucid._torch import tree_map
from relucid.data.dataset import Data, Split, holdout
from relucid.data.images import cifar10, cifar100, digits, imagenet32
from relucid.data.own import Images, from_arrays, from_table, image_tensor
from relucid.data.tables import UCI, banana, levy, uci
from relucid.randomness import seeded

SHARE = 0.2  # split off for testing, where data have no test part
FEWEST = 20  # examples to train and test on


@dataclass(frozen=True)
class BuiltIn:
    """A data set with a name.

    Args:
        load: the function that loads it.
        file: what it needs in the data directory, if anything.
        white: the largest value of its pixels, if it has images.
    """

    load: Callable[[], Data[Split]]
    file: str | None = None
    white: int = 255


BUILT_IN = {
    "levy": BuiltIn(levy),
    "digits": BuiltIn(digits, white=16),
    "banana": BuiltIn(banana, "banana.csv"),
    **{f"uci/{name}": BuiltIn(partial(uci, name), f"uci/{name}.txt") for name in UCI},
    "cifar10": BuiltIn(cifar10, "cifar10"),
    "cifar100": BuiltIn(cifar100, "cifar100"),
    "imagenet32": BuiltIn(imagenet32, "imagenet32"),
}
TEST_FOLDERS = ("test", "val", "validation")
TARGETS = ("labels", "label", "targets", "target", "y")  # names of the target in an example that is a mapping


class Rows:
    """Examples of a torch data set, read anew whenever they are needed.

    Args:
        dataset: has a length, and an example for every index.
        collate: makes a batch of a list of examples, as the `collate_fn` of a loader does.
        indices: the examples that belong to it; all by default.

    >>> rows = Rows([(torch.zeros(3), 0), (torch.ones(3), 1)])
    >>> rows.batch(torch.tensor([1]))
    (tensor([[1., 1., 1.]]), tensor([1]))
    """

    def __init__(
        self, dataset: Any, collate: Callable[[list[Any]], Any] | None = None, indices: Tensor | None = None
    ) -> None:
        self.dataset, self.collate = dataset, collate or _collated
        self.indices = torch.arange(len(dataset)) if indices is None else indices

    def __len__(self) -> int:
        return len(self.indices)

    def __getitem__(self, index: int) -> Any:
        """One example as the data set has it, for loaders."""
        return self.dataset[int(self.indices[index])]

    @cached_property
    def targets(self) -> Tensor:
        """All targets; every example is read for them, unless they are those of a folder's images."""
        if isinstance(self.dataset, Images) and self.collate is _collated:
            return self.dataset.targets[self.indices]
        return torch.cat([self.batch(chunk)[1] for chunk in torch.arange(len(self)).split(64)])

    def batch(self, indices: Tensor, seed: int = 0) -> tuple[Any, Tensor]:
        """The inputs and targets of these examples; `seed` determines what the data set draws at random."""
        with seeded(seed):
            return inputs_and_targets(self.collate([self[index] for index in indices.tolist()]))

    def take(self, indices: Sequence[int] | Tensor) -> "Rows":
        """Just these examples, in this order."""
        return Rows(self.dataset, self.collate, self.indices[torch.as_tensor(indices)])


class _Columns:
    """The rows of a mapping of arrays, each a mapping of their entries."""

    def __init__(self, columns: Mapping[str, Any]) -> None:
        self.columns = dict(columns)

    def __len__(self) -> int:
        return len(next(iter(self.columns.values())))

    def __getitem__(self, index: int) -> dict[str, Any]:
        return {name: values[index] for name, values in self.columns.items()}


def as_data(
    given: Any, target: str | None = None, share: float = SHARE, size: int | None = None
) -> Data[Any]:
    """A training and a test part of data.

    Args:
        given: `Data`; a torch data set, a loader, a pair of inputs and targets, or a mapping of arrays, all of which
            are split in two; a pair of any of these, to train and to test on; or text: the name of a built-in data
            set, a folder with one folder of images per class (or with such folders in `train` and `test`), or a CSV
            file. Arrays stay in memory as they are; the examples of a data set are read when they are needed.
        target: for a CSV file, the name of the column to predict.
        share: the share to split off if there is no test part; always the same examples.
        size: for a folder, the size to which images are scaled and cut.

    >>> data = as_data((torch.randn(50, 3), torch.arange(50) % 2))
    >>> len(data.train), len(data.test), data.classes
    (40, 10, 2)
    """
    found = read(given, target, size)
    if not isinstance(found, Data):
        found = Data(*apart(found, share))
    for part, what in ((found.train, "train"), (found.test, "test")):
        if not len(part):
            raise ValueError(f"there are no examples to {what} on")
    labels = found.train.targets if isinstance(found.train, Split) else torch.zeros(0)
    return Data(found.train, found.test, None if labels.is_floating_point() else int(labels.max()) + 1)


def read(given: Any, target: str | None = None, size: int | None = None) -> Data[Any] | Split | Rows:
    """A training and a test part if the data have both, otherwise all examples; arguments as for `as_data`."""
    if target is not None and not str(given).endswith(".csv"):
        raise ValueError(f"target={target!r} names a column, which only a CSV file has")
    if size is not None and not (isinstance(given, str | Path) and Path(given).is_dir()):
        raise ValueError(f"size={size} is for a folder of images")
    if isinstance(given, str | Path):
        return _named(str(given), target, size)
    if isinstance(given, Data):
        return given
    return Data(examples(given[0]), examples(given[1])) if is_pair_of_parts(given) else examples(given)


def is_pair_of_parts(given: Any) -> bool:
    """Whether data are a pair, to train and to test on, and not inputs with their targets."""
    return isinstance(given, tuple | list) and len(given) == 2 and not all(map(_is_array, given))


def examples(given: Any) -> Split | Rows:
    """Examples with targets in any form, neither copied nor read yet."""
    if isinstance(given, Split | Rows):
        return given
    if isinstance(given, tuple | list) and len(given) == 2 and all(map(_is_array, given)):
        return _in_memory(*given)
    if isinstance(given, TensorDataset) and len(given.tensors) == 2:
        return _in_memory(*given.tensors)
    if isinstance(given, DataLoader) and not isinstance(given.dataset, IterableDataset):
        plain = given.collate_fn is default_collate
        return examples(given.dataset) if plain else Rows(given.dataset, given.collate_fn)
    if isinstance(given, Mapping) and given and all(map(_is_array, given.values())):
        return Rows(_Columns(given))
    if isinstance(given, IterableDataset | DataLoader | Iterator):
        raise TypeError(
            f"a {type(given).__name__} of examples without an index cannot be shuffled and split: give a data set "
            "with __len__ and __getitem__, or a training function of your own"
        )
    listed = hasattr(given, "__getitem__") and hasattr(given, "__len__")
    if listed and not isinstance(given, Mapping | str | Tensor | np.ndarray):
        return Rows(given)
    raise TypeError(
        f"{type(given).__name__} is not data with targets: give a pair of inputs and targets, or a data set"
    )


def apart(split: Any, share: float, seed: int = 0) -> tuple[Any, Any]:
    """The examples without a random share of them, and that share; classes of arrays keep their proportions."""
    if len(split) < FEWEST:
        raise ValueError(f"there are {len(split)} examples; training and testing take {FEWEST} or more")
    held = max(1, round(share * len(split)))
    if isinstance(split, Split) and not split.targets.is_floating_point() and split.targets.dim() == 1:
        counts = split.targets.unique(return_counts=True)[1]
        if int(counts.min()) > 1 and len(counts) <= min(held, len(split) - held):
            return holdout(split, share, seed)
    order = torch.from_numpy(np.random.default_rng(seed).permutation(len(split)))
    return split.take(order[held:]), split.take(order[:held])


def inputs_and_targets(batch: Any) -> tuple[Any, Tensor]:
    """The inputs of a batch, a tensor, a tuple of several or a mapping of arguments, and its targets.

    >>> inputs_and_targets({"input_ids": torch.zeros(2, 4), "labels": torch.tensor([0, 1])})
    ({'input_ids': tensor([[0., 0., 0., 0.],
            [0., 0., 0., 0.]])}, tensor([0, 1]))
    """
    if isinstance(batch, Mapping):
        name = next((name for name in TARGETS if name in batch), None)
        if name is not None:
            return {key: value for key, value in batch.items() if key != name}, torch.as_tensor(batch[name])
        raise ValueError(
            f"an example has {', '.join(batch)} and no target: name it {' or '.join(TARGETS[:2])}"
        )
    if not isinstance(batch, tuple | list) or len(batch) < 2:
        raise ValueError(f"an example is a {type(batch).__name__}, not a pair of input and target")
    *inputs, targets = batch
    found = inputs[0] if len(inputs) == 1 else inputs
    return tuple(found) if isinstance(found, list) else found, torch.as_tensor(targets)


def _is_array(value: Any) -> bool:
    return isinstance(value, Tensor | np.ndarray)


def _in_memory(inputs: Any, targets: Any) -> Split:
    """Arrays as they are: integers may be tokens, and a target may have a class per pixel or per label."""
    many = (
        targets.ndim > 1
        and targets.shape[1:] != (1,)
        and not torch.as_tensor(targets[:1]).is_floating_point()
    )
    split = from_arrays(inputs, np.zeros(len(targets)) if many else targets)
    whole = torch.as_tensor(inputs)
    found = split.inputs if whole.is_floating_point() else whole
    return Split(found, torch.as_tensor(targets) if many else split.targets, split.classes)


def _collated(rows: list[Any]) -> Any:
    """Make a batch as torch's loaders do, of Pillow's images as well."""
    try:
        return default_collate([tree_map(_plain, row) for row in rows])
    except RuntimeError as error:
        raise ValueError(
            f"examples cannot be put into one batch ({str(error).splitlines()[0]}): give them one shape, or give a "
            "loader with a collate_fn"
        ) from error


def _plain(value: Any) -> Any:
    return image_tensor(value) if hasattr(value, "convert") and hasattr(value, "size") else value


def _named(name: str, target: str | None, size: int | None) -> Data[Any] | Split | Rows:
    """A built-in data set, a folder or a file; 8-bit images become numbers from 0 to 1."""
    path = Path(name)
    if name in BUILT_IN:
        found, white = BUILT_IN[name].load(), BUILT_IN[name].white
        return Data(_scaled(found.train, white), _scaled(found.test, white), found.classes)
    if path.is_dir():
        return _folders(path, size)
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


def _folders(path: Path, size: int | None) -> Data[Any] | Rows:
    if not any(path.iterdir()):
        raise ValueError(f"{path} is empty: it needs one folder of images per class")
    test = next((path / name for name in TEST_FOLDERS if (path / name).is_dir()), None)
    if not (path / "train").is_dir() or test is None:
        return Rows(Images(path, size))
    train = Images(path / "train", size)
    return Data(Rows(train), Rows(Images(test, size, classes=train.classes)))


def _scaled(split: Split, white: int) -> Split:
    if split.inputs.dtype != torch.uint8:
        return split
    return Split(split.inputs / white, split.targets, split.classes)
