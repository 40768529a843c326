"""Data that have a name: built-in sets, folders of images, and files of arrays and tables."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from relucid.data.arrays import from_table
from relucid.data.dataset import Data, Split
from relucid.data.folder import Images
from relucid.data.images import cifar10, cifar100, digits, imagenet32
from relucid.data.paths import DamagedDataError
from relucid.data.tables import UCI, banana, levy, uci
from relucid.printing import first_line

TABLES = (".csv", ".parquet")
ARRAYS = (".npy", ".npz", ".pt", ".pth", ".safetensors")
TEST_FOLDERS = ("test", "val", "validation")


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


def named(name: str, target: str | None = None, size: int | None = None) -> Any:
    """A built-in data set, a folder of images, a table or what a file holds; 8-bit images are numbers from 0 to 1."""
    path = Path(name)
    if target is not None and path.suffix not in TABLES:
        raise ValueError(f"target={target!r} names a column, which only a table has, a .csv or .parquet file")
    if size is not None and not path.is_dir():
        raise ValueError(f"size={size} is for a folder of images")
    if name in BUILT_IN:
        data, white = BUILT_IN[name].load(), BUILT_IN[name].white
        return Data(_scaled(data.train, white), _scaled(data.test, white), data.classes)
    if path.is_dir():
        return _folders(path, size)
    if path.suffix not in (*TABLES, *ARRAYS):
        raise ValueError(
            f"there are no data {name}: name a built-in set ({', '.join(BUILT_IN)}), a folder of images, a file "
            f"({', '.join((*TABLES, *ARRAYS))}) or MODULE:FUNCTION"
        )
    if path.suffix in TABLES and target is None:
        raise ValueError(f"say which column of {name} is to be predicted: --target COLUMN")
    if not path.is_file():
        raise ValueError(f"there is no file {name}")
    return from_table(path, str(target)) if path.suffix in TABLES else _arrays(path)


def _arrays(path: Path) -> Any:
    """The array in a file, several by name, or (inputs, targets) of the names x and y; no code in it can run."""
    try:
        content = _loaded(path)
    except OSError as error:
        raise DamagedDataError(f"{path} cannot be read: {error.strerror or error}") from error
    except Exception as error:  # a damaged file can make a reader fail in any way
        raise DamagedDataError(
            f"{path} cannot be read: it is damaged, or holds other things than arrays ({first_line(error)})"
        ) from error
    if isinstance(content, Mapping) and len(content) == 1:
        (content,) = content.values()
    if isinstance(content, Mapping) and content.keys() in ({"x", "y"}, {"inputs", "targets"}):
        return content.get("x", content.get("inputs")), content.get("y", content.get("targets"))
    return content


def _loaded(path: Path) -> Any:
    if path.suffix == ".npy":
        return np.load(path, allow_pickle=False)
    if path.suffix == ".npz":
        with path.open("rb") as file, np.load(file, allow_pickle=False) as archive:
            return dict(archive)
    if path.suffix == ".safetensors":
        from safetensors.torch import load_file

        return load_file(path)
    return torch.load(path, map_location="cpu", weights_only=True)


def _folders(path: Path, size: int | None) -> Any:
    if not any(path.iterdir()):
        raise ValueError(f"{path} is empty: it needs one folder of images per class")
    test = next((path / name for name in TEST_FOLDERS if (path / name).is_dir()), None)
    if not (path / "train").is_dir() or test is None:
        return Images(path, size)
    train = Images(path / "train", size)
    return train, Images(test, size, classes=train.classes)


def _scaled(split: Split, white: int) -> Split:
    if split.inputs.dtype != torch.uint8:
        return split
    return Split(split.inputs / white, split.targets, split.classes)
