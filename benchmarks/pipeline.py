"""The input pipeline: CIFAR-10 in memory, photographs decoded by workers, ten crops of a photograph.

CIFAR-10 (normalize, flip, crop; batches of 128) is measured against one image at a time with Pillow. Photographs of
500 x 375 pixels are scaled and cut to 224 by 0, 1 and 2 workers, against Pillow alone in one process and torch's
plain DataLoader over the same files. Memory is the peak of a process of its own above what it held before: of ten crops
one after the other against all at once, and of training against a plain loop.

Run it with nothing else on the machine: ``python benchmarks/pipeline.py``.
"""

import multiprocessing
import sys
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import torch
import torch.nn.functional as F
from measure import Row, interleaved, report
from PIL import Image, ImageOps
from torch import Tensor, nn
from torch.utils.data import DataLoader

from relucid.data import Split, augment, moments, ten_crops
from relucid.data.folder import Images
from relucid.data.source import source
from relucid.models import create
from relucid.train import Engine, Fitted, Machine, Recipe, fit
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


FEW = 20  # photographs in memory


def resnet_and_photographs() -> tuple[nn.Module, Split]:
    """ResNet-18, and a batch of photographs of 256 x 256 pixels."""
    pixels = torch.randint(0, 256, (FEW, 3, 256, 256), dtype=torch.uint8)
    return create("resnet18", num_classes=1000), Split(pixels, torch.arange(FEW))


def crops_in_turn(network: nn.Module, part: Split) -> None:
    """Ten crops as `Fitted.predict` takes them."""
    fitted = Fitted(network, moments(part), {}, "cross_entropy", torch.device("cpu"))
    fitted.predict(part, crops=SIZE)


@torch.no_grad()
def crops_at_once(network: nn.Module, part: Split) -> None:
    """All ten crops as one batch, as they are usually taken."""
    crops = torch.cat([*ten_crops(moments(part).normalize(part.inputs), SIZE)])
    network.eval()(crops).softmax(1).view(10, FEW, -1).mean(0)


def training(network: nn.Module, part: Split) -> None:
    """Two epochs of one step by `fit`."""
    fit(
        network, part, Recipe(epochs=2, batch_size=FEW, lr=0.01), machine=Machine(engine=Engine("contiguous"))
    )


def plain_training(network: nn.Module, part: Split) -> None:
    """The same in a plain loop."""
    optimizer = torch.optim.SGD(network.parameters(), lr=0.01, momentum=0.9)
    inputs = moments(part).normalize(part.inputs)
    for _ in range(2):
        optimizer.zero_grad()
        F.cross_entropy(network(inputs), part.targets).backward()
        optimizer.step()


def peak(function: Callable[[nn.Module, Split], None]) -> float:
    """The bytes that a function adds to the peak of a new process."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(_peak, (function,))


def _peak(function: Callable[[nn.Module, Split], None]) -> float:
    torch.set_num_threads(1)
    given = resnet_and_photographs()
    before = _highest()
    function(*given)
    return _highest() - before


def _highest() -> float:
    """The most bytes that this process has held; what getrusage says counts the parent at the moment of the spawn."""
    status = Path("/proc/self/status").read_text(encoding="utf-8")
    return 1024.0 * int(status.partition("VmHWM:")[2].split()[0])


def memory() -> list[Row]:
    """Rows of peak memory."""
    return [
        Row(
            f"ten crops of {FEW} photographs, ResNet-18",
            "bytes",
            peak(crops_in_turn),
            peak(crops_at_once),
            1 / 4,
        ),
        Row(f"training on {FEW} photographs, ResNet-18", "bytes", peak(training), peak(plain_training), 1.1),
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
        *memory(),
    ]
    report("pipeline", rows)


if __name__ == "__main__":
    main()
