"""The input pipeline: CIFAR-10 in memory, photographs decoded by workers, ten crops of a photograph.

CIFAR-10 (normalize, flip, crop; batches of 128) is measured against one image at a time with Pillow. Photographs of
500 x 375 pixels are scaled and cut to 224 by 0, 1 and 2 workers, against Pillow alone in one process and torch's
plain DataLoader over the same files.

Run it with nothing else on the machine: ``python benchmarks/pipeline.py``.
"""

import sys
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import torch
import torch.nn.functional as F
from measure import Row, interleaved, report
from PIL import Image, ImageOps
from torch import Tensor
from torch.utils.data import DataLoader

from relucid.data import Split, augment, moments
from relucid.data.folder import Images
from relucid.data.source import source
from relucid.models import create
from relucid.train.batches import Batches

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


PHOTOGRAPHS, SIZE = 192, 224


def photographs(folder: Path) -> None:
    """Write photographs of one class: smooth noise, which takes about the bytes of a photograph."""
    rng = np.random.default_rng(0)
    place = folder / "class"
    place.mkdir()
    for number in range(PHOTOGRAPHS):
        coarse = Image.fromarray(rng.integers(0, 256, (94, 125, 3), dtype=np.uint8))
        coarse.resize((500, 375), Image.Resampling.BICUBIC).save(place / f"{number:03d}.jpg", quality=92)


def decoded(folder: Path) -> dict[str, float]:
    """Seconds for one epoch of all photographs, by whoever reads them."""
    images = Images(folder, size=SIZE)
    examples = source(images)

    def pillow() -> None:
        for file in images.files:
            with Image.open(file) as opened:
                np.array(ImageOps.fit(opened.convert("RGB"), (SIZE, SIZE)))

    def torchs(workers: int) -> Callable[[], None]:
        loader = DataLoader(images, 32, num_workers=workers, persistent_workers=workers > 0)
        return lambda: [None for _ in loader].clear()

    def ours(workers: int) -> Callable[[], None]:
        batches = Batches(examples, 32, workers=workers)
        return lambda: [None for _ in batches.epoch(0)].clear()

    sides = {"Pillow alone": pillow}
    sides |= {f"DataLoader, {n} workers": torchs(n) for n in (0, 1, 2)}
    sides |= {f"ours, {n} workers": ours(n) for n in (0, 1, 2)}
    return interleaved(sides, 5)


def pipeline_of_photographs() -> list[Row]:
    """Rows for decoding, and images per second to be read."""
    with TemporaryDirectory() as folder:
        photographs(Path(folder))
        seconds = decoded(Path(folder))
    for side, time in seconds.items():
        print(f"{side}: {PHOTOGRAPHS / time:.0f} images/s", file=sys.stderr)
    alone = Row("photographs, one process", "time", seconds["ours, 0 workers"], seconds["Pillow alone"], 1.5)
    return [
        alone,
        *(
            Row(
                f"photographs, {n} workers",
                "time",
                seconds[f"ours, {n} workers"],
                seconds[f"DataLoader, {n} workers"],
                1.1,
            )
            for n in (0, 1, 2)
        ),
    ]


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
        *pipeline_of_photographs(),
    ]
    report("pipeline", rows)


if __name__ == "__main__":
    main()
