"""One reader of data in any form: arrays in memory, rows that can be indexed, or a stream of batches.

A tuple of two arrays is inputs and targets; a list holds batches or examples.
"""

import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils.rnn import PackedSequence
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset, default_collate

from relucid._torch import tree_leaves, tree_map
from relucid.data.arrays import from_arrays, from_table
from relucid.data.dataset import Arrays, Data, Part, Split
from relucid.data.folder import Images, image_tensor
from relucid.data.named import named
from relucid.randomness import seeded

SIZE = 64  # rows per batch when data are not in batches yet
TARGETS = ("labels", "label", "targets", "target", "y")  # names of the target in an example that is a mapping


class Rows:
    """Examples of anything with a length and an index, read whenever they are needed.

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
        """All targets: as the data set lists them, or else by reading every example."""
        known = self._listed() if self.collate is _collated else None
        if known is not None:
            return known[self.indices]
        return torch.cat([self.batch(chunk)[1] for chunk in torch.arange(len(self)).split(SIZE)])

    def _listed(self) -> Tensor | None:
        """The numbers of a folder's classes, or of a column of Hugging Face's, without reading an example."""
        if isinstance(self.dataset, Images):
            return self.dataset.targets
        names = getattr(self.dataset, "column_names", None) or ()
        column = next((name for name in TARGETS if name in names), None)
        if column is None:
            return None
        values = np.asarray(self.dataset[column])
        return torch.as_tensor(values) if values.dtype.kind in "fiub" else None

    def whole(self, indices: Tensor, seed: int = 0) -> Any:
        """A batch of these examples, as `collate` makes it; `seed` determines what the data set draws at random."""
        with seeded(seed):
            return self.collate([self[index] for index in indices.tolist()])

    def batch(self, indices: Tensor, seed: int = 0) -> tuple[Any, Tensor]:
        """The inputs and targets of these examples."""
        return inputs_and_targets(self.whole(indices, seed))

    def take(self, indices: Sequence[int] | Tensor) -> "Rows":
        """Just these examples, in this order."""
        return Rows(self.dataset, self.collate, self.indices[torch.as_tensor(indices)])


@dataclass(frozen=True)
class Stream:
    """Batches that can only be iterated."""

    batches: Iterable[Any]


Source = Arrays | Part | Rows | Stream


def source(given: Any, target: str | None = None, size: int | None = None) -> Source | Data[Any]:
    """Data in any form as one of three kinds, neither copied nor read yet; or two of them, to train and to test on.

    Args:
        given: a tensor or array of inputs; a tuple of inputs and targets; a mapping of arrays; a data set of torch or
            Hugging Face; a loader; a list of examples or batches, or any iterable of batches; a frame with `target`;
            `Data`, or a tuple of two of these, to train and to test on; or text: the name of a built-in data set, a
            folder of images, or a file (.npy, .npz, .pt, .safetensors, .csv, .parquet).
        target: of a table, the column to predict.
        size: of a folder, the size to which images are scaled and cut.

    >>> type(source(torch.zeros(3, 2))).__name__, type(source([(torch.zeros(2), 0)] * 3)).__name__
    ('Arrays', 'Rows')
    """
    if isinstance(given, str | Path):
        return source(named(str(given), target, size))
    if target is not None and not hasattr(given, "iloc"):
        raise ValueError(f"target={target!r} names a column, which only a table has")
    if size is not None:
        raise ValueError(f"size={size} is for a folder of images")
    if isinstance(given, Data | Source):
        return given
    if hasattr(given, "iloc"):
        if target is None:
            raise ValueError("say which column of the frame is to be predicted: target=...")
        return from_table(given, target)
    if isinstance(given, Tensor | np.ndarray):
        return Arrays(torch.as_tensor(given))
    if isinstance(given, tuple | list) and _are_pair(given):
        return _in_memory(*given)
    if are_two_parts(given):
        train, test = map(source, given)
        return Data(train, test)
    if isinstance(given, Mapping):
        return _columns(given)
    return _collection(given)


def _collection(given: Any) -> Source:
    """A data set, a loader, a list or an iterable."""
    if isinstance(given, TensorDataset) and len(given.tensors) == 2:
        return _in_memory(*given.tensors)
    if isinstance(given, DataLoader) and not isinstance(given.dataset, IterableDataset):
        plain = given.collate_fn is default_collate
        return _collection(given.dataset) if plain else Rows(given.dataset, given.collate_fn)
    if hasattr(given, "__getitem__") and hasattr(given, "__len__") and not isinstance(given, str | bytes):
        batched = isinstance(given, list | tuple) and (not given or _is_batch(given[0]))
        return Stream(given) if batched else Rows(given)
    if isinstance(given, Iterable) and not isinstance(given, str | bytes):
        return Stream(given)
    raise TypeError(
        "expected data: arrays, a tuple of inputs and targets, a mapping, a data set or batches, "
        f"not {type(given).__name__}"
    )


def in_batches(data: Any, size: int = SIZE) -> Iterable[Any]:
    """The batches of data in any form, in order: inputs, with targets where the data have any.

    Args:
        data: in any form that `source` takes; of two parts, the batches of both.
        size: rows per batch; data that are in batches already stay as they are.

    >>> [tuple(batch.shape) for batch in in_batches(torch.zeros(100, 3))]
    [(64, 3), (36, 3)]
    """
    if isinstance(data, DataLoader):  # it may have a sampler and workers of its own
        return data
    rows = source(data)
    if isinstance(rows, Data):
        return chain(in_batches(rows.train, size), in_batches(rows.test, size))
    return rows.batches if isinstance(rows, Stream) else Chunks(rows, size)


def in_pairs(examples: Arrays | Part | Rows, size: int = SIZE) -> Iterator[tuple[Any, Tensor]]:
    """The inputs and targets of examples, batch by batch, in order."""
    for number, part in enumerate(torch.arange(len(examples)).split(size)):
        yield examples.batch(part, number)


@dataclass(frozen=True)
class Chunks:
    """Batches of so many rows, each made when it is needed.

    >>> len(Chunks(Arrays(torch.zeros(100)), 64))
    2
    """

    rows: Arrays | Part | Rows
    size: int

    def __len__(self) -> int:
        return -(-len(self.rows) // self.size)

    def __iter__(self) -> Iterator[Any]:
        for number, part in enumerate(torch.arange(len(self.rows)).split(self.size)):
            if len(part):
                yield self.rows.whole(part, number)


def inputs_and_targets(batch: Any) -> tuple[Any, Tensor]:
    """The inputs of a batch, a tensor, a tuple of several or a mapping of arguments, and its targets.

    >>> inputs_and_targets({"input_ids": torch.zeros(2, 4), "labels": torch.tensor([0, 1])})
    ({'input_ids': tensor([[0., 0., 0., 0.],
            [0., 0., 0., 0.]])}, tensor([0, 1]))
    """
    if isinstance(batch, Mapping):
        name = _target_of(batch)
        if name is not None:
            return {key: value for key, value in batch.items() if key != name}, torch.as_tensor(batch[name])
        raise ValueError(
            f"an example has {', '.join(batch)} and no target: name it {' or '.join(TARGETS[:2])}"
        )
    if not isinstance(batch, tuple | list) or len(batch) < 2:
        raise ValueError(f"an example is a {type(batch).__name__}, not a pair of input and target")
    *inputs, targets = batch
    first = inputs[0] if len(inputs) == 1 else inputs
    return tuple(first) if isinstance(first, list) else first, torch.as_tensor(targets)


def count_rows(arguments: Any) -> int:
    """The number of rows of the first array among the arguments; 1 if there is none."""
    return next((len(leaf) for leaf in tree_leaves(arguments) if _is_array(leaf) and leaf.ndim), 1)


def _target_of(names: Iterable[str]) -> str | None:
    return next((name for name in TARGETS if name in names), None)


def are_two_parts(given: Any) -> bool:
    """Whether data are a part to train and a part to test on, and not inputs with their targets."""
    if not isinstance(given, tuple | list) or len(given) != 2 or all(map(_is_array, given)):
        return False
    return isinstance(given, tuple) or all(isinstance(part, Dataset | DataLoader | Source) for part in given)


def _is_array(value: Any) -> bool:
    return isinstance(value, Tensor | np.ndarray)


def _are_pair(given: Sequence[Any]) -> bool:
    """Whether two arrays are inputs and targets: a tuple is, a list holds batches."""
    if len(given) != 2 or not all(_is_array(array) and array.ndim for array in given):
        return False
    inputs, targets = given
    if isinstance(given, list):  # as releases before 0.4 took it where only a pair makes sense
        old = len(inputs) == len(targets) and inputs.ndim > targets.ndim
        if old:
            _deprecated("a list of two arrays is taken for inputs and targets: give a tuple")
        return old
    if inputs.shape[1:] == targets.shape[1:] and _are_cut_from_one(inputs, targets):
        _deprecated("a tuple of two arrays cut from one is taken for two batches: give a list")
        return False
    return True


def _are_cut_from_one(a: Any, b: Any) -> bool:
    if isinstance(a, Tensor) and isinstance(b, Tensor):
        return a.untyped_storage().data_ptr() == b.untyped_storage().data_ptr()
    base = getattr(a, "base", None)
    return base is not None and base is getattr(b, "base", None)


def _deprecated(what: str) -> None:
    warnings.warn(
        f"{what}; the next release takes a list for batches or examples", FutureWarning, stacklevel=4
    )


def _is_batch(first: Any) -> bool:
    """Whether the first entry of a list is a batch and not an example: arrays of equally many rows, one a matrix."""
    if isinstance(first, PackedSequence):
        return True
    if isinstance(first, Mapping):
        first = list(first.values())
    arrays = [part for part in (first if isinstance(first, tuple | list) else [first]) if part is not None]
    if not arrays or not all(_is_array(part) and part.ndim for part in arrays):
        return False
    return len({len(part) for part in arrays}) == 1 and max(part.ndim for part in arrays) > 1


def _in_memory(inputs: Any, targets: Any) -> Split:
    """Arrays as they are: integers may be tokens, and a target may have a class per pixel or per label."""
    many = (
        targets.ndim > 1
        and targets.shape[1:] != (1,)
        and not torch.as_tensor(targets[:1]).is_floating_point()
    )
    split = from_arrays(inputs, np.zeros(len(targets)) if many else targets, copy=False)
    whole = torch.as_tensor(inputs)
    kept = split.inputs if whole.is_floating_point() else whole
    return Split(kept, torch.as_tensor(targets) if many else split.targets, split.classes)


def _columns(given: Mapping[str, Any]) -> Source:
    """A mapping of arrays by name; what has no row per example belongs to every batch as it is."""
    columns = {name: torch.as_tensor(value) if _is_array(value) else value for name, value in given.items()}
    name = _target_of(columns)
    targets = columns.get(name) if name else None
    inputs = {key: value for key, value in columns.items() if key != name}
    if not isinstance(targets, Tensor):
        return Arrays(columns)
    return Arrays(inputs, targets, name=name)


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
