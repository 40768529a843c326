"""Folders of images as a data set."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset

from relucid.data.arrays import Classes, class_numbers
from relucid.data.paths import DamagedDataError

if TYPE_CHECKING:
    from PIL.Image import Image

IMAGES = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp", ".ppm", ".pgm", ".tif", ".tiff")


class Images(Dataset[tuple[Tensor, int]]):
    """The images of a folder that has one folder per class, decoded when they are needed.

    An example is an image (3, H, W) from 0 to 1, and the number of its class.

    Args:
        folder: `folder/cat/1.png` is of class "cat".
        size: images are scaled to this length of their shorter side, and the center square is cut out. By default
            they are left as they are and must have one size.
        classes: as for `from_arrays`.
    """

    def __init__(
        self, folder: str | Path, size: int | None = None, *, classes: Classes | None = None
    ) -> None:
        folder, self.size = Path(folder), size
        if not folder.is_dir():
            raise ValueError(f"{folder} is not a folder")
        files = (file for file in folder.rglob("[!.]*") if file.suffix.lower() in IMAGES and file.is_file())
        self.files = sorted(files)
        expected = f"images lie in one folder per class, as {folder / 'cat' / '1.png'} would"
        if not self.files:
            raise ValueError(f"{folder} has no images: {expected}")
        for file in self.files:
            if len(file.relative_to(folder).parts) != 2:
                raise ValueError(f"{file} has no class in {folder}: {expected}")
        self.targets, names = class_numbers(np.array([file.parent.name for file in self.files]), classes)
        self.classes = names or ()
        if size is None:
            self._check_sizes()

    def _check_sizes(self) -> None:
        """Refuse images of different sizes, going by the heads of their files."""
        sizes = []
        for file in self.files:
            with _opened(file) as image:
                sizes.append("x".join(map(str, image.size)))
            if sizes[-1] != sizes[0]:
                raise ValueError(
                    f"{file} has {sizes[-1]} pixels and {self.files[0]} {sizes[0]}: give a size for all of them"
                )

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        from PIL import ImageOps

        with _opened(self.files[index]) as opened:
            if self.size is not None:  # a JPEG of twice the size or more is decoded at a half or less
                opened.draft("RGB", (self.size, self.size))
            image = ImageOps.exif_transpose(opened).convert("RGB")
        if self.size is not None:
            image = ImageOps.fit(image, (self.size, self.size))
        return image_tensor(image), int(self.targets[index])


@contextmanager
def _opened(file: Path) -> "Iterator[Image]":
    """Open an image; name the file in errors."""
    from PIL import Image

    try:
        with Image.open(file) as opened:
            yield opened
    except Image.DecompressionBombError:
        raise DamagedDataError(f"{file} has more pixels than an image to learn from can have") from None
    except (OSError, SyntaxError, ValueError):
        raise DamagedDataError(f"{file} does not decode as an image") from None


def image_tensor(image: "Image") -> Tensor:
    """One of Pillow's images as a tensor (3, H, W) from 0 to 1."""
    return torch.from_numpy(np.array(image.convert("RGB"), dtype=np.uint8)).permute(2, 0, 1) / 255
