"""Small images in memory, as uint8: handwritten digits, CIFAR and ImageNet at 32 pixels."""

import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from relucid.data.dataset import Data, Split, holdout
from relucid.data.paths import DamagedDataError, directory, locate
from relucid.extras import needed


@dataclass(frozen=True)
class HubSource:
    """Where images come from: their repository on the Hugging Face hub, its layout and how many there are."""

    hub: str
    classes: int
    rows: tuple[int, int]  # for training, for testing
    label: str = "label"
    test: str = "test"  # how the files of the test split begin


CIFAR, IMAGENET = (50_000, 10_000), (1_281_167, 50_000)
SOURCES = {
    "cifar10": HubSource("uoft-cs/cifar10", 10, CIFAR),
    "cifar100": HubSource("uoft-cs/cifar100", 100, CIFAR, label="fine_label"),
    "imagenet32": HubSource("benjamin-paine/imagenet-1k-32x32", 1000, IMAGENET, test="validation"),
    "imagenet": HubSource("ILSVRC/imagenet-1k", 1000, IMAGENET, test="validation"),
}
SIZE = 32
# The files of ImageNet32's source, and how to get them.
TRAIN, TEST = "train_data_batch_*.npz", "val_data.npz"
NPZ = "download ImageNet 32x32 (npz format) from https://image-net.org and unpack it there"


def digits(seed: int = 0) -> Data[Split]:
    """The 1797 handwritten digits (1, 8, 8) that come with scikit-learn, a fifth of them for testing.

    >>> data = digits()
    >>> data.classes, len(data.train), len(data.test), data.test.batch(torch.tensor([0]))[0].shape
    (10, 1437, 360, torch.Size([1, 1, 8, 8]))
    """
    with needed("digits()"):
        from sklearn.datasets import load_digits

    bunch = load_digits()
    inputs = torch.from_numpy(bunch.images).to(torch.uint8).unsqueeze(1)
    return Data(*holdout(Split(inputs, torch.from_numpy(bunch.target).long()), 0.2, seed), classes=10)


def cifar10() -> Data[Split]:
    """CIFAR-10: 50,000 and 10,000 images (3, 32, 32) of 10 classes."""
    return _in_memory("cifar10", directory())


def cifar100() -> Data[Split]:
    """CIFAR-100: 50,000 and 10,000 images (3, 32, 32) of 100 classes."""
    return _in_memory("cifar100", directory())


def imagenet32(original: bool = False) -> Data[Split]:
    """ImageNet at 32 pixels: 1,281,167 and 50,000 images (3, 32, 32) of 1000 classes.

    The files of its source (Chrabaszcz et al.; `train_data_batch_1.npz` to `10` and `val_data.npz` from image-net.org)
    hold whole photographs, squashed to squares by a box filter. Copies elsewhere, such as the one that `hf download`
    gets, may show only the central square of a photograph, by another filter: with them an experiment is another one.

    Args:
        original: refuse such a copy; otherwise it is read if the files of the source are missing.
    """
    return _in_memory("imagenet32", directory(), original)


def advice(name: str) -> str:
    """The command that gets the missing data set `name`."""
    hub = SOURCES[name].hub
    return f"run `hf download {hub} --repo-type dataset --local-dir {directory() / name}`"


@lru_cache(maxsize=1)  # decoded once per process; all runs of a study share it
def _in_memory(name: str, _directory: Path, original: bool = False) -> Data[Split]:
    source = SOURCES[name]
    if name == "imagenet32":
        folder = locate(name, NPZ if original else advice(name))
        if original or list(folder.rglob(TRAIN)):
            parts = zip((TRAIN, TEST), source.rows, strict=True)
            train, test = (_arrays(folder, pattern, rows) for pattern, rows in parts)
            return Data(train, test, classes=source.classes)
    files = [
        _files(name, split, rows) for split, rows in zip(("train", source.test), source.rows, strict=True)
    ]
    train, test = (_split(file, source) for file in files)
    return Data(train, test, classes=source.classes)


def _arrays(folder: Path, pattern: str, rows: int) -> Split:
    """Read the images (N, 3, 32, 32) and labels (N,), which count from 1 in the files, of a split of the source."""
    files = sorted(folder.rglob(pattern))
    if not files:
        raise DamagedDataError(f"{folder} has no {pattern}: {NPZ}")
    images, labels = [], []
    for file in files:
        try:
            with np.load(file, allow_pickle=False) as arrays:
                pixels, classes = arrays["data"], arrays["labels"]
        except (OSError, KeyError, ValueError, zipfile.BadZipFile) as error:
            raise DamagedDataError(f"{file} cannot be read as arrays `data` and `labels`: {error}") from None
        if pixels.dtype != np.uint8 or pixels.shape != (len(classes), 3 * SIZE**2):
            shape = "x".join(map(str, pixels.shape))
            raise DamagedDataError(f"{file}: data are {shape} {pixels.dtype}, not {len(classes)}x3072 uint8")
        images.append(torch.from_numpy(pixels).view(-1, 3, SIZE, SIZE))
        labels.append(torch.from_numpy(classes).long() - 1)
    split = Split(torch.cat(images), torch.cat(labels))
    if len(split) != rows:
        raise DamagedDataError(f"{folder} has {len(split)} images in {pattern}; there are {rows}")
    if not 0 <= int(split.targets.min()) <= int(split.targets.max()) < SOURCES["imagenet32"].classes:
        raise DamagedDataError(f"{folder}: labels in {pattern} are not within 1 to 1000")
    return split


def _files(name: str, split: str, rows: int) -> list[Path]:
    """The parquet files of a split, which together have `rows` rows."""
    from pyarrow import parquet

    folder = locate(name, advice(name))
    files = sorted(folder.rglob(f"{split}*.parquet"))
    if not files:
        raise DamagedDataError(f"{folder} has no {split}*.parquet: {advice(name)}")
    count = sum(_read(file, parquet.read_metadata).num_rows for file in files)
    if count != rows:
        listed = ", ".join(str(file.relative_to(folder)) for file in files)
        raise DamagedDataError(
            f"{folder} has {count} rows in {listed}; the {split} split of {name} has {rows}"
        )
    return files


def _split(files: list[Path], source: HubSource) -> Split:
    """Read the images (N, 3, 32, 32) and labels (N,) of all files of a split."""
    images, labels = zip(*(_decode(file, source) for file in files), strict=True)
    return Split(torch.cat(images), torch.cat(labels))


def _decode(file: Path, source: HubSource) -> tuple[Tensor, Tensor]:
    """Decode the images (N, 3, 32, 32) and labels (N,) of a parquet file."""
    from PIL import Image

    column, labels = _columns(file, source)
    pixels = np.empty((len(column), SIZE, SIZE, 3), np.uint8)
    for row, (image, label) in enumerate(zip(column, labels, strict=True)):
        if label is None or not 0 <= label < source.classes:
            last = source.classes - 1
            raise DamagedDataError(f"{file}, row {row}: label {label} is not within 0 to {last}")
        try:
            picture = Image.open(BytesIO(image["bytes"])).convert("RGB")
        except (OSError, SyntaxError, TypeError):  # Pillow may raise any of these
            raise DamagedDataError(f"{file}, row {row}: the image does not decode") from None
        if picture.size != (SIZE, SIZE):
            size = "x".join(map(str, picture.size))
            raise DamagedDataError(f"{file}, row {row}: the image has {size} pixels, not {SIZE}x{SIZE}")
        pixels[row] = np.asarray(picture)
    return torch.from_numpy(pixels).permute(0, 3, 1, 2).contiguous(), torch.tensor(labels)


def _read(file: Path, reader: Callable[[Path], Any]) -> Any:
    """What one of pyarrow's functions reads of a parquet file; an error names the file."""
    from pyarrow import ArrowException

    try:
        return reader(file)
    except (ArrowException, OSError) as error:
        raise DamagedDataError(f"{file} cannot be read as parquet: {error}") from None


def _columns(file: Path, source: HubSource) -> tuple[list[dict[str, bytes]], list[int]]:
    """Read the encoded images and the labels of a parquet file."""
    from pyarrow import parquet, types

    table = _read(file, parquet.read_table)
    names = table.column_names
    image = "image" if "image" in names else "img"
    for wanted in (image, source.label):
        if wanted not in names:
            raise DamagedDataError(f"{file} has no column `{wanted}`, only {', '.join(names)}")
    labels = table[source.label]
    if not types.is_integer(labels.type):
        raise DamagedDataError(
            f"{file}: column `{source.label}` is of type {labels.type}; labels are integers"
        )
    return table[image].to_pylist(), labels.to_pylist()
