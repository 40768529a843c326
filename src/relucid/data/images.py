"""Small images in memory, as uint8: handwritten digits, CIFAR and ImageNet at 32 pixels."""

from dataclasses import dataclass
from functools import lru_cache
from io import BytesIO
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from relucid.data.dataset import Data, Split, holdout
from relucid.data.paths import DamagedDataError, directory, locate


@dataclass(frozen=True)
class Source:
    """Where images come from: their repository on the Hugging Face hub and its layout."""

    hub: str
    classes: int
    label: str = "label"
    test: str = "test"  # the name of the part that is tested on


SOURCES = {
    "cifar10": Source("uoft-cs/cifar10", 10),
    "cifar100": Source("uoft-cs/cifar100", 100, label="fine_label"),
    "imagenet32": Source("benjamin-paine/imagenet-1k-32x32", 1000, test="validation"),
    "imagenet": Source("ILSVRC/imagenet-1k", 1000, test="validation"),
}
SIZE = 32


def digits(seed: int = 0) -> Data[Split]:
    """The 1797 handwritten digits (1, 8, 8) that scikit-learn brings along, a fifth of them for testing.

    >>> data = digits()
    >>> data.classes, len(data.train), len(data.test), data.test.batch(torch.tensor([0]))[0].shape
    (10, 1437, 360, torch.Size([1, 1, 8, 8]))
    """
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


def imagenet32() -> Data[Split]:
    """ImageNet at 32 pixels: 1,281,167 and 50,000 images (3, 32, 32) of 1000 classes."""
    return _in_memory("imagenet32", directory())


def advice(name: str) -> str:
    """What to run where the data set `name` is missing."""
    hub = SOURCES[name].hub
    return f"run `hf download {hub} --repo-type dataset --local-dir {directory() / name}`"


@lru_cache(maxsize=1)  # decoded once a process; a study's runs share it
def _in_memory(name: str, _directory: Path) -> Data[Split]:
    source = SOURCES[name]
    train, test = (_part(name, part) for part in ("train", source.test))
    return Data(train, test, classes=source.classes)


def _part(name: str, part: str) -> Split:
    """The images (N, 3, 32, 32) and labels (N,) of all parquet files of a part."""
    files = sorted(locate(name, advice(name)).rglob(f"{part}*.parquet"))
    if not files:
        raise DamagedDataError(f"{directory() / name} has no {part}*.parquet: {advice(name)}")
    images, labels = zip(*(_decode(file, SOURCES[name]) for file in files), strict=True)
    return Split(torch.cat(images), torch.cat(labels))


def _decode(file: Path, source: Source) -> tuple[Tensor, Tensor]:
    """The images (N, 3, 32, 32) and labels (N,) of a parquet file."""
    from PIL import Image

    column, labels = _columns(file, source)
    pixels = np.empty((len(column), SIZE, SIZE, 3), np.uint8)
    for row, (image, label) in enumerate(zip(column, labels, strict=True)):
        if label is None or not 0 <= label < source.classes:
            last = source.classes - 1
            raise DamagedDataError(f"{file}, row {row}: label {label} is not within 0 to {last}")
        try:
            picture = Image.open(BytesIO(image["bytes"])).convert("RGB")
        except (OSError, SyntaxError, TypeError):  # Pillow raises any of them, depending on where it gives up
            raise DamagedDataError(f"{file}, row {row}: the image does not decode") from None
        if picture.size != (SIZE, SIZE):
            size = "x".join(map(str, picture.size))
            raise DamagedDataError(f"{file}, row {row}: the image has {size} pixels, not {SIZE}x{SIZE}")
        pixels[row] = np.asarray(picture)
    return torch.from_numpy(pixels).permute(0, 3, 1, 2).contiguous(), torch.tensor(labels)


def _columns(file: Path, source: Source) -> tuple[list[dict[str, bytes]], list[int]]:
    """The encoded images and the labels of a parquet file."""
    from pyarrow import ArrowException, parquet

    try:
        table = parquet.read_table(file)
    except (ArrowException, OSError) as error:
        raise DamagedDataError(f"{file} cannot be read as parquet: {error}") from None
    names = table.column_names
    image = "image" if "image" in names else "img"
    for wanted in (image, source.label):
        if wanted not in names:
            raise DamagedDataError(f"{file} has no column `{wanted}`, only {', '.join(names)}")
    return table[image].to_pylist(), table[source.label].to_pylist()
