"""Photographs of any size, decoded as they are needed: ImageNet, from parquet files or folders of images."""

import random
from io import BytesIO
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from relucid.data.augment import windows
from relucid.data.dataset import Data
from relucid.data.images import SOURCES, advice
from relucid.data.paths import DamagedDataError, locate

if TYPE_CHECKING:
    from datasets import Dataset
    from PIL.Image import Image as Picture

BILINEAR = 2  # Pillow's number of this filter: Pillow itself is imported where it is needed


class Photos:
    """Photographs as uint8 squares of `size` pixels, decoded per batch.

    Args:
        rows: images, not decoded, and labels.
        size: pixels of a side.
        scales: the shorter side is resized to a length drawn from this range.
        jitter: the square is cut out at random instead of from the centre.
        central: cut only from the central square of the resized photograph, as large as its shorter side.
        resized: instead of all this, a random window of the photograph becomes the square, see `windows`.
    """

    def __init__(
        self,
        rows: "Dataset",
        size: int,
        scales: tuple[int, int],
        jitter: bool,
        central: bool = False,
        resized: bool = False,
    ) -> None:
        self.rows, self.size, self.scales, self.jitter, self.central = rows, size, scales, jitter, central
        self.resized = resized
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
        """The photographs (B, 3, size, size) and labels (B,); scales and windows follow from `seed`."""
        rng = random.Random(seed)
        return torch.stack([self._photo(index, rng) for index in indices.tolist()]), self.targets[indices]

    def _photo(self, index: int, rng: random.Random) -> Tensor:
        from PIL import Image

        raw = self.rows[index]["image"]
        try:
            image = Image.open(raw["path"] if raw["bytes"] is None else BytesIO(raw["bytes"])).convert("RGB")
        except (OSError, SyntaxError):
            raise DamagedDataError(f"{self._name(index)}: the image does not decode") from None
        square = self._window(image, rng) if self.resized else self._cut(image, rng)
        return torch.from_numpy(np.array(square)).permute(2, 0, 1)

    def _window(self, image: "Picture", rng: random.Random) -> "Picture":
        """Resize a random window of a photograph to a square."""
        width, height = (torch.tensor([side]) for side in image.size)
        generator = torch.Generator().manual_seed(rng.getrandbits(63))
        top, left, high, wide = windows(height, width, generator)[0].tolist()
        return image.crop((left, top, left + wide, top + high)).resize((self.size, self.size), BILINEAR)

    def _cut(self, image: "Picture", rng: random.Random) -> "Picture":
        """Resize a photograph and cut a square out of it."""
        scale = rng.randint(*self.scales) / min(image.size)
        width, height = (max(self.size, round(side * scale)) for side in image.size)
        left, top = (self._corner(side, min(width, height), rng) for side in (width, height))
        return image.resize((width, height), BILINEAR).crop((left, top, left + self.size, top + self.size))

    def _corner(self, side: int, shorter: int, rng: random.Random) -> int:
        """The offset of the square along one side."""
        if not self.jitter:
            return (side - self.size) // 2
        first, room = ((side - shorter) // 2, shorter) if self.central else (0, side)
        return first + rng.randint(0, room - self.size)

    def _name(self, index: int) -> str:
        path = self.rows[index]["image"]["path"]
        return f"{self.rows.split} split of ImageNet, row {index}" + (f" ({path})" if path else "")


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
    random window becomes that square instead (fb.resnet.torch, which structure follows). Testing: 256, the centre
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
    train, test = parts
    return Data(
        Photos(train, size, scales, True, central, resized),
        Photos(test, test_size, (256, 256), False),
        classes=1000,
    )
