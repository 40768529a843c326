"""Photographs of any size, decoded as they are needed: ImageNet, from parquet files or folders of images."""

import math
import random
from collections.abc import Callable
from functools import partial
from io import BytesIO
from typing import TYPE_CHECKING, Literal

import numpy as np
import torch
from torch import Tensor

from relucid.data.dataset import Data
from relucid.data.images import SOURCES, advice
from relucid.data.paths import DamagedDataError, locate

if TYPE_CHECKING:
    from datasets import Dataset
    from PIL.Image import Image as Picture

AREA, ASPECT, TRIES = (0.08, 1.0), (3 / 4, 4 / 3), 10  # of torchvision's RandomResizedCrop
BILINEAR = 2  # Pillow's number of this filter: Pillow itself is imported where it is needed
Cut = Callable[["Picture", random.Random], "Picture"]
Place = Literal["center", "central", "anywhere"]  # "central": anywhere in the largest central square


class Photos:
    """Photographs as uint8 squares, decoded per batch.

    Args:
        rows: images, not decoded, and labels.
        cut: makes a square of a photograph; what is random about it follows from the second argument.
    """

    def __init__(self, rows: "Dataset", cut: Cut) -> None:
        self.rows, self.cut = rows, cut
        self.targets = torch.tensor(rows["label"][:])
        classes = SOURCES["imagenet"].classes
        if self.targets.is_floating_point():
            raise DamagedDataError(
                f"{rows.split} split of ImageNet: labels are {self.targets.dtype}, not integers"
            )
        wrong = ((self.targets < 0) | (self.targets >= classes)).nonzero()
        if len(wrong):
            row = int(wrong[0])
            label = int(self.targets[row])
            raise DamagedDataError(f"{self._name(row)}: label {label} is not within 0 to {classes - 1}")

    def __len__(self) -> int:
        return len(self.targets)

    def batch(self, indices: Tensor, seed: int = 0) -> tuple[Tensor, Tensor]:
        """The photographs (B, 3, size, size) and labels (B,); what is random about them follows from `seed`."""
        rng = random.Random(seed)
        return torch.stack([self._photo(index, rng) for index in indices.tolist()]), self.targets[indices]

    def _photo(self, index: int, rng: random.Random) -> Tensor:
        from PIL import Image

        raw = self.rows[index]["image"]
        try:
            image = Image.open(raw["path"] if raw["bytes"] is None else BytesIO(raw["bytes"])).convert("RGB")
        except (OSError, SyntaxError):
            raise DamagedDataError(f"{self._name(index)}: the image does not decode") from None
        return torch.from_numpy(np.array(self.cut(image, rng))).permute(2, 0, 1)

    def _name(self, index: int) -> str:
        path = self.rows[index]["image"]["path"]
        return f"{self.rows.split} split of ImageNet, row {index}" + (f" ({path})" if path else "")


def _window(image: "Picture", rng: random.Random, size: int) -> "Picture":
    """Resize a random window of a photograph to a square of `size` pixels."""
    width, height = image.size
    top, left, high, wide = window(height, width, rng)
    return image.crop((left, top, left + wide, top + high)).resize((size, size), BILINEAR)


def window(height: int, width: int, rng: random.Random) -> tuple[int, int, int, int]:
    """Top, left, height and width of a random window in an image of this height and width.

    torchvision's RandomResizedCrop: the area is uniform between 8 and 100% of the image's, the logarithm of width by
    height uniform between those of 3/4 and 4/3. Of ten such windows the first that fits into the image counts; if
    none does, the largest central one whose aspect is allowed.
    """
    for _ in range(TRIES):
        area = height * width * rng.uniform(*AREA)
        aspect = math.exp(rng.uniform(*map(math.log, ASPECT)))
        high, wide = round(math.sqrt(area / aspect)), round(math.sqrt(area * aspect))
        if 0 < high <= height and 0 < wide <= width:
            return rng.randint(0, height - high), rng.randint(0, width - wide), high, wide
    high, wide = min(height, round(width / ASPECT[0])), min(width, round(height * ASPECT[1]))
    return (height - high) // 2, (width - wide) // 2, high, wide


def _square(
    image: "Picture", rng: random.Random, size: int, scales: tuple[int, int], place: Place
) -> "Picture":
    """Resize a photograph's shorter side to a length from `scales`, and cut out a square of `size` pixels."""
    scale = rng.randint(*scales) / min(image.size)
    width, height = (max(size, round(side * scale)) for side in image.size)
    shorter = min(width, height)

    def corner(side: int) -> int:
        if place == "center":
            return (side - size) // 2
        first, room = ((side - shorter) // 2, shorter) if place == "central" else (0, side)
        return first + rng.randint(0, room - size)

    left, top = corner(width), corner(height)
    return image.resize((width, height), BILINEAR).crop((left, top, left + size, top + size))


def imagenet(
    scales: tuple[int, int] = (256, 256),
    size: int = 224,
    test_size: int = 224,
    central: bool = False,
    resized: bool = False,
) -> Data[Photos]:
    """ImageNet (ILSVRC 2012): 1,281,167 and 50,000 photographs of 1000 classes.

    Training: the shorter side is resized to a length from `scales` (gmp: 256 to 480; AlexNet's scheme, which
    crelu follows: 256, and only the `central` square counts) and a random square of `size` is cut out; if `resized`, a
    random window becomes that square instead (fb.resnet.torch, which structure follows). Testing: 256, the center
    square of `test_size` (256 where ten crops of 224 are taken from it).
    """
    from datasets import Image, load_dataset

    folder = locate("imagenet", f"{advice('imagenet')} or put folders train/CLASS and validation/CLASS there")
    parts = []
    for part in ("train", SOURCES["imagenet"].test):
        files = [str(file) for file in sorted(folder.rglob(f"{part}*.parquet"))]
        if files:
            rows = load_dataset("parquet", data_files={part: files}, split=part)
        elif (folder / part).is_dir():
            rows = load_dataset("imagefolder", data_dir=str(folder), split=part)
        else:
            raise DamagedDataError(f"{folder} has neither {part}*.parquet nor a folder {part}")
        parts.append(rows.cast_column("image", Image(decode=False)))
    place: Place = "central" if central else "anywhere"
    cut = partial(_window, size=size) if resized else partial(_square, size=size, scales=scales, place=place)
    center = partial(_square, size=test_size, scales=(256, 256), place="center")
    train, test = parts
    return Data(Photos(train, cut), Photos(test, center), classes=1000)
