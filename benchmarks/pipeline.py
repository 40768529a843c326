"""The input pipeline for CIFAR-10 (normalize, flip, crop; batches of 128) against one image at a time with Pillow.

Run it with nothing else on the machine: ``python benchmarks/pipeline.py``.
"""

import numpy as np
import torch
import torch.nn.functional as F
from measure import Row, interleaved, report
from PIL import Image, ImageOps
from torch import Tensor

from relucid.data import Split, augment, moments
from relucid.models import create

BATCH = 128


def images(count: int = 4096) -> Split:
    """As many bytes as CIFAR-10 has for each image; what they show does not matter to the time."""
    generator = torch.Generator().manual_seed(0)
    pixels = torch.randint(0, 256, (count, 3, 32, 32), dtype=torch.uint8, generator=generator)
    return Split(pixels, torch.randint(10, (count,), generator=generator))


def one_by_one(pictures, indices, mean: Tensor, std: Tensor, rng: np.random.Generator) -> Tensor:
    """The usual pipeline: pad, cut out and mirror each image, then a tensor, then normalize, then a batch."""
    batch = []
    for index in indices:
        top, left = rng.integers(0, 9, 2)
        picture = ImageOps.expand(pictures[index], 4).crop((left, top, left + 32, top + 32))
        if rng.random() < 0.5:
            picture = ImageOps.mirror(picture)
        pixels = torch.from_numpy(np.array(picture)).permute(2, 0, 1).float()
        batch.append((pixels - mean) / std)
    return torch.stack(batch)


def main() -> None:
    part = images()
    normal = moments(part)
    mean, std = (moment.float().view(3, 1, 1) for moment in (normal.mean, normal.std))
    pictures = [Image.fromarray(pixels.permute(1, 2, 0).numpy()) for pixels in part.inputs]
    rng = np.random.default_rng(0)

    def ours() -> Tensor:
        inputs, _ = part.batch(torch.randint(len(part), (BATCH,)))
        return augment(normal.normalize(inputs), ("flip", "crop"), normal)

    def theirs() -> Tensor:
        return one_by_one(pictures, rng.integers(0, len(part), BATCH).tolist(), mean, std, rng)

    network = create("vgg6", num_classes=10)
    optimizer = torch.optim.SGD(network.parameters(), lr=0.01, momentum=0.9)
    targets = torch.randint(10, (BATCH,))

    def step() -> None:
        optimizer.zero_grad()
        F.cross_entropy(network(ours()), targets).backward()
        optimizer.step()

    fast = interleaved({"ours": ours, "theirs": theirs}, 30)
    slow = interleaved({"ours": ours, "step": step}, 3)
    rows = [
        Row("batch of 128, per-sample Pillow", "time", fast["ours"], fast["theirs"], 1 / 5),
        Row("batch of 128, step of VGG-6", "time", slow["ours"], slow["step"], 0.03),
    ]
    report("pipeline", rows)


if __name__ == "__main__":
    main()
