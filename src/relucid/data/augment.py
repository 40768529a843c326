"""Augmentation of whole batches of images (N, C, H, W), on the device they are on."""

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor
from torch.nn.functional import pad

from relucid.data.dataset import Moments


def flip(images: Tensor) -> Tensor:
    """Mirror each image left to right with probability one half."""
    mirrored = torch.rand(len(images), 1, 1, 1, device=images.device) < 0.5
    return torch.where(mirrored, images.flip(-1), images)


def crop(images: Tensor, padding: int = 4) -> Tensor:
    """Pad each image with `padding` zeros on each side, and cut a random window of the image's size out of it.

    Zeros stand for the mean where the images are normalized first (structure Section 7.1).

    >>> crop(torch.ones(5, 3, 32, 32)).shape
    torch.Size([5, 3, 32, 32])
    """
    n, _, height, width = images.shape
    windows = pad(images, [padding] * 4).unfold(2, height, 1).unfold(3, width, 1)
    top, left = torch.randint(2 * padding + 1, (2, n), device=images.device)
    return windows[torch.arange(n, device=images.device), :, top, left]


def color(images: Tensor, moments: Moments) -> Tensor:
    """Add a random multiple of the colours' principal components to normalized images (AlexNet's scheme).

    Adds sum_i a_i λ_i p_i to every pixel, where p_i and λ_i are the eigenvectors and eigenvalues of the
    covariance of the training set's colours and a_i ~ N(0, 0.1²) is drawn once per image.
    """
    values, vectors = torch.linalg.eigh(moments.covariance)
    # The formula depends on the unit of colour: λ is meant for pixels from 0 to 1, ours go from 0 to 255.
    scaled = vectors * (values / 255) / moments.std.unsqueeze(1)
    strength = 0.1 * torch.randn(len(images), len(values), device=images.device, dtype=images.dtype)
    shift = strength @ scaled.T.to(images.device, images.dtype)  # (N, C)
    return images.add(shift[:, :, None, None])


def augment(images: Tensor, names: tuple[str, ...], moments: Moments) -> Tensor:
    """Apply augmentations to normalized images, in the order of their names: "flip", "crop", "color"."""
    kinds: dict[str, Callable[[Tensor], Tensor]]
    kinds = {"flip": flip, "crop": crop, "color": partial(color, moments=moments)}
    for name in names:
        images = kinds[name](images)
    return images


def ten_crops(images: Tensor, size: int) -> Tensor:
    """The four corners and the centre of each image and their mirror images: (N, 10, C, size, size).

    >>> ten_crops(torch.zeros(2, 3, 256, 256), 224).shape
    torch.Size([2, 10, 3, 224, 224])
    """
    height, width = images.shape[-2] - size, images.shape[-1] - size
    if size < 1 or min(height, width) < 0:
        shape = " x ".join(map(str, images.shape[-2:]))
        raise ValueError(f"images of {shape} cannot be cropped to {size}: give a size that fits into them")
    corners = [(0, 0), (0, width), (height, 0), (height, width), (height // 2, width // 2)]
    crops = torch.stack([images[..., y : y + size, x : x + size] for y, x in corners], 1)
    return torch.cat([crops, crops.flip(-1)], 1)
