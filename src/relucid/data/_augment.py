"""Augmentation of whole batches of images (N, C, H, W), on the device they are on."""

from collections.abc import Callable, Iterator
from itertools import chain

import torch
from torch import Tensor
from torch.nn.functional import pad

from relucid.data.dataset import Moments

LUMA = (0.299, 0.587, 0.114)  # of red, green and blue in grey
WHITE = 255.0


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


def jitter(images: Tensor, moments: Moments, strength: float = 0.4) -> Tensor:
    """Change brightness, contrast and saturation of normalized color images, in an order drawn for each image.

    torchvision's ColorJitter without hue: pixels, from 0 to 255, move from black (brightness), from the image's mean
    grey (contrast) or from their own grey (saturation), each by a factor between 1 - strength and 1 + strength, and
    are clipped.
    """
    if images.shape[1] != len(LUMA):
        raise ValueError(
            f"jitter takes images with red, green and blue channels, not with {images.shape[1]} channels"
        )
    n, (shift, scale) = len(images), moments.shift_and_scale(images)
    luma = images.new_tensor(LUMA)[:, None, None]
    pixels = images * scale + shift
    factors = 1 + strength * (2 * torch.rand(3, n, 1, 1, 1, device=images.device, dtype=images.dtype) - 1)
    for kind in torch.rand(n, 3, device=images.device).argsort(1).T[..., None, None, None]:
        grey = (pixels * luma).sum(1, keepdim=True)
        towards = torch.where(kind == 0, 0, torch.where(kind == 1, grey.mean((2, 3), keepdim=True), grey))
        factor = factors.gather(0, kind.unsqueeze(0)).squeeze(0)
        pixels = (towards + factor * (pixels - towards)).clamp(0, WHITE)
    return pixels.sub(shift).div(scale)


def color(images: Tensor, moments: Moments) -> Tensor:
    """Add a random multiple of the colors' principal components to normalized images (AlexNet's scheme).

    Adds sum_i a_i λ_i p_i to every pixel, where p_i and λ_i are the eigenvectors and eigenvalues of the
    covariance of the training set's colors and a_i ~ N(0, 0.1²) is drawn once per image.
    """
    values, vectors = torch.linalg.eigh(moments.covariance)
    # The formula depends on the unit of color: λ is meant for pixels from 0 to 1, ours go from 0 to 255.
    scaled = vectors * (values / WHITE) / moments.shift_and_scale(images)[1].flatten(1).double().cpu()
    strength = 0.1 * torch.randn(len(images), len(values), device=images.device, dtype=images.dtype)
    shift = strength @ scaled.T.to(images.device, images.dtype)  # (N, C)
    return images.add(shift[:, :, None, None])


AUGMENTATIONS: dict[str, Callable[[Tensor, Moments], Tensor]] = {
    "flip": lambda images, _: flip(images),
    "crop": lambda images, _: crop(images),
    "jitter": jitter,
    "color": color,
}
"""Augmentations of normalized images by name, with the moments that normalized them."""


def augment(images: Tensor, names: tuple[str, ...], moments: Moments) -> Tensor:
    """Apply augmentations, by their names in `AUGMENTATIONS`, to normalized images, in the order of the names."""
    for name in names:
        images = AUGMENTATIONS[name](images, moments)
    return images


def ten_crops(images: Tensor, size: int) -> Iterator[Tensor]:
    """The four corners and the center of all images, then their mirror images: ten times (N, C, size, size).

    They come one after the other, since ten at once take ten times the memory.

    >>> [crops.shape for crops in ten_crops(torch.zeros(2, 3, 256, 256), 224)][:1]
    [torch.Size([2, 3, 224, 224])]
    """
    height, width = images.shape[-2] - size, images.shape[-1] - size
    if size < 1 or min(height, width) < 0:
        shape = " x ".join(map(str, images.shape[-2:]))
        raise ValueError(f"images of {shape} cannot be cropped to {size}: give a size that fits into them")
    corners = [(0, 0), (0, width), (height, 0), (height, width), (height // 2, width // 2)]
    crops = [images[..., y : y + size, x : x + size] for y, x in corners]
    return chain(crops, (crop.flip(-1) for crop in crops))
