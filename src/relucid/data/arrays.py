"""Arrays and tables as a `Split`."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from relucid.data.csvfile import read_csv
from relucid.data.dataset import Split
from relucid.data.paths import DamagedDataError

Task = Literal["classification", "regression"]
Classes = Sequence[str]


def from_arrays(
    inputs: ArrayLike | Tensor,
    targets: ArrayLike | Tensor,
    *,
    task: Task | None = None,
    classes: Classes | None = None,
    copy: bool = True,
) -> Split:
    """Make a split of arrays (N, ...) and their targets (N,) or (N, K).

    Args:
        inputs: numbers; uint8 stays as it is (images), all else becomes floating point.
        targets: text, booleans and integers are classes, other numbers are values.
        task: "classification" or "regression" where the targets' type does not tell.
        classes: names of the classes in order; pass `train.classes` of another split so that both number them
            alike. By default text is numbered in alphabetical order, and integers are the numbers themselves.
        copy: whether numbers that need no conversion are copied, so that the split does not follow the arrays.

    >>> split = from_arrays([[0.5, 1.0], [2.0, 3.0], [0.0, 1.0]], ["cat", "dog", "cat"])
    >>> split.targets.tolist(), split.classes
    ([0, 1, 0], ('cat', 'dog'))
    """
    if task not in (None, "classification", "regression"):
        raise ValueError(f"task={task!r} must be classification or regression")
    features, labels = _array(inputs), _array(targets)
    for what, array in (("inputs", features), ("targets", labels)):
        if array.ndim == 0 or not len(array):
            raise ValueError(f"there are no examples in {what} of shape {array.shape}: give (N, ...) of them")
    if task is None:
        task = "regression" if labels.dtype.kind == "f" and classes is None else "classification"
    numbers = _numbers("inputs", features, copy)
    rows = numbers.unsqueeze(1) if numbers.dim() == 1 else numbers
    if task == "regression":
        return Split(rows, _numbers("targets", labels).to(torch.get_default_dtype()))
    return Split(rows, *class_numbers(labels, classes))


def from_table(
    table: Any,
    target: str,
    *,
    columns: Sequence[str] | None = None,
    task: Task | None = None,
    classes: Classes | None = None,
) -> Split:
    """Make a split of the rows of a table: inputs (N, columns) and the column `target`.

    Args:
        table: a CSV file with a header, a Parquet file, or anything with named columns, such as a pandas frame.
        target: name of the column to predict.
        columns: the columns to predict it from, all others by default; they must hold numbers.
        task: as for `from_arrays`; say "regression" for values that are whole numbers.
        classes: as for `from_arrays`.
    """
    named = _read(Path(table)) if isinstance(table, str | Path) else _columns(table)
    used = [name for name in named if name != target] if columns is None else list(columns)
    for name in (target, *used):
        if name not in named:
            raise ValueError(f"there is no column {name!r}; there are {', '.join(named)}")
    if not used:
        raise ValueError(f"there is no column besides {target!r} to predict it from")
    for name in used:
        if named[name].dtype.kind not in "fiub":
            raise ValueError(
                f"column {name!r} does not hold numbers: encode it, or leave it out by columns=[...]"
            )
    inputs = np.stack([named[name].astype(float) for name in used], 1)
    return from_arrays(inputs, named[target], task=task, classes=classes)


def _read(path: Path) -> dict[str, NDArray[Any]]:
    """The columns of a file by name."""
    if path.suffix != ".parquet":
        return read_csv(path)
    from pyarrow import ArrowException, parquet

    try:
        columns = parquet.read_table(path)
    except FileNotFoundError:
        raise FileNotFoundError(f"there is no file {path}") from None
    except (ArrowException, OSError) as error:
        raise DamagedDataError(f"{path} cannot be read as Parquet: {str(error).splitlines()[0]}") from None
    return {name: columns[name].to_numpy() for name in columns.column_names}


def _array(values: ArrayLike | Tensor) -> NDArray[Any]:
    return values.detach().cpu().numpy() if isinstance(values, Tensor) else np.asarray(values)


def _numbers(what: str, array: NDArray[Any], copy: bool = True) -> Tensor:
    """Numbers as a tensor, bytes as they are, else floating point; refuse what is not finite."""
    if array.dtype.kind not in "fiub":
        raise ValueError(f"{what} must be numbers, not {array.dtype}")
    if array.dtype.kind == "f":
        rows = ~np.isfinite(array.reshape(len(array), -1)).all(1)
        if rows.any():
            raise ValueError(
                f"{what} of {rows.sum()} examples are not finite, the first of them number {rows.argmax()}"
            )
    kind = torch.uint8 if array.dtype == np.uint8 else torch.get_default_dtype()
    return (torch.tensor if copy else torch.as_tensor)(np.ascontiguousarray(array), dtype=kind)


def class_numbers(labels: NDArray[Any], names: Classes | None) -> tuple[Tensor, tuple[str, ...] | None]:
    """The class numbers (N,) and the names of the classes, if they have any."""
    if labels.ndim == 2 and labels.shape[1] == 1:
        labels = labels[:, 0]
    if labels.ndim != 1:
        raise ValueError(f"classes need the shape (N,), not {labels.shape}")
    if labels.dtype.kind == "O" and any(label is None or label != label for label in labels):
        raise ValueError("a class is missing: leave out the examples without one")
    if labels.dtype.kind == "f":
        if (labels != np.round(labels)).any():
            raise ValueError("classes must be whole numbers or text; say task='regression' for values")
        labels = labels.astype(np.int64)
    if names is None and labels.dtype.kind in "iub":
        if len(labels) and labels.min() < 0:
            raise ValueError(
                f"classes are numbered from 0, not from {labels.min()}: name them by classes=[...], or say "
                "task='regression' for values"
            )
        return torch.from_numpy(labels.astype(np.int64)), None
    texts = [str(label) for label in labels.tolist()]
    names = tuple(map(str, names)) if names is not None else tuple(sorted(set(texts)))
    place = {name: number for number, name in enumerate(names)}
    if unknown := sorted(set(texts) - set(names)):
        raise ValueError(f"{unknown[0]!r} is not among the classes {', '.join(names)}")
    return torch.tensor([place[text] for text in texts], dtype=torch.long), names


def _columns(table: Any) -> dict[str, NDArray[Any]]:
    """The columns of a frame by name."""
    names = getattr(table, "columns", None)
    if names is None:
        raise ValueError(f"a {type(table).__name__} has no named columns: give a CSV file or a frame")
    return {str(name): np.asarray(table[name]) for name in names}
