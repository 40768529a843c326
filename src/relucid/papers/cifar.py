"""CIFAR-10 as the studies take it: a smaller copy of its images, and a caveat about the recorded runs."""

from torch.nn.functional import avg_pool2d

from relucid.data import Split

REENCODED = "The recorded runs used a copy of CIFAR-10 with images re-encoded as JPEG (quality 75)."


def shrunk(part: Split, factor: int) -> Split:
    """The same images with the mean of each square of pixels in its place, rounded if they are integers."""
    if factor == 1:
        return part
    pooled = avg_pool2d(part.inputs.float(), factor)
    inputs = pooled if part.inputs.is_floating_point() else pooled.round()
    return Split(inputs.to(part.inputs.dtype), part.targets)
