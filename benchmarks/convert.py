"""What conversions cost: inference of fuse(to_geometric(m)), time against a forward pass, memory against the network.

python benchmarks/convert.py
"""

import time
from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from statistics import median

import torch
from measure import Row, interleaved, report
from networks import densenet, resnet
from torch import Tensor, nn

from relucid.convert import Conversion, fuse, to_crelu, to_geometric, to_heavy_ball
from relucid.models import create

CONVERSIONS: dict[str, Callable[[nn.Module, Tensor], Conversion]] = {
    "to_crelu": to_crelu,
    "to_geometric": to_geometric,
    "to_heavy_ball": to_heavy_ball,
    "fuse": fuse,
}


def fused(name: str, model: nn.Module, x: Tensor) -> Row:
    geometric = to_geometric(model, x[:2]).model
    ours = fuse(geometric, x[:2]).model
    with torch.inference_mode():
        seconds = interleaved({"ours": lambda: ours(x), "theirs": lambda: model(x)}, repeats=25)
    return Row(name, "time", seconds["ours"], seconds["theirs"], bar=1.03)


class PreActivation(nn.Module):
    """x + conv(relu(norm(x))): one layer of a network that is as deep as one likes."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.norm, self.relu = nn.BatchNorm2d(channels), nn.ReLU()
        self.conv = nn.Conv2d(channels, channels, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        """(N, C, H, W) -> (N, C, H, W)."""
        y: Tensor = x + self.conv(self.relu(self.norm(x)))
        return y


def deep(layers: int, channels: int = 16) -> nn.Module:
    head = (nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, 10))
    blocks = [PreActivation(channels) for _ in range(layers)]
    for block in blocks:
        # Or else a thousand layers amplify rounding beyond any tolerance.
        block.conv.weight.data.mul_(layers**-0.5)
    return nn.Sequential(nn.Conv2d(3, channels, 3, padding=1), *blocks, *head)


def processor_seconds(function: Callable[[], object]) -> float:
    begin = time.process_time()
    function()
    return time.process_time() - begin


def against_forwards(
    network: str, model: nn.Module, x: Tensor, names: Iterable[str] = CONVERSIONS
) -> list[Row]:
    """Conversions of a network against a forward pass of the example."""

    def forward() -> None:
        with torch.no_grad():
            model(x)

    forward()
    one = median(processor_seconds(forward) for _ in range(3))
    return [
        Row(
            f"{name}, {network}, against a forward pass",
            "time",
            processor_seconds(lambda c=CONVERSIONS[name]: c(model, x)),
            one,
            bar=12.0,
        )
        for name in names
    ]


def large_mlp() -> nn.Module:
    """100 million weights, 4 bytes each in float32, and activations of next to nothing."""
    return nn.Sequential(
        *(
            nn.Conv2d(3, 64, 3, padding=1),
            nn.BatchNorm2d(64),
            nn.ReLU(),
            nn.AdaptiveAvgPool2d(8),
            nn.Flatten(),
        ),
        *(nn.Linear(4096, 8192), nn.ReLU(), nn.Linear(8192, 8192), nn.ReLU(), nn.Linear(8192, 10)),
    )


# Networks and the sizes of their inputs.
LARGE: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "large MLP": (large_mlp, (2, 3, 16, 16)),
    "ResNet-152": (partial(resnet, 3, 8, 36, 3), (2, 3, 64, 64)),
    "DenseNet-201": (partial(densenet, 6, 12, 48, 32), (2, 3, 64, 64)),
}


def resident(what: str) -> int:
    """Bytes of this process in memory, now ("VmRSS") or at most ("VmHWM")."""
    line = next(
        line
        for line in Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
        if line.startswith(what)
    )
    return int(line.split()[1]) * 1024


def peak(network: str, conversion: str, dtype: torch.dtype, inplace: bool) -> float:
    """The memory of a conversion at most, the original and the result included, in units of the network."""
    convert: Callable[..., Conversion] = CONVERSIONS[conversion]
    small = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(144, 2))
    convert(small, torch.randn(2, 3, 8, 8))  # what is loaded once counts for no network
    before = resident("VmRSS")
    build, shape = LARGE[network]
    model, x = build().to(dtype).eval(), torch.randn(shape, dtype=dtype)
    size = sum(t.numel() * t.element_size() for t in model.state_dict().values())
    Path("/proc/self/clear_refs").write_text("5")  # the peak counts from now on
    conversion_made = convert(model, x, inplace=inplace)
    assert conversion_made.changed
    return (resident("VmHWM") - before) / size


def peaks() -> list[Row]:
    """Each conversion in a process of its own, at batch 2; activations of a larger batch come on top."""
    rows = []
    for network in LARGE:
        for conversion in ("to_crelu", "to_geometric"):
            for dtype, inplace in ((torch.float32, False), (torch.float64, False), (torch.float32, True)):
                with ProcessPoolExecutor(1, get_context("spawn"), torch.set_num_threads, (1,)) as pool:
                    share = pool.submit(peak, network, conversion, dtype, inplace).result()
                how = f"{str(dtype).removeprefix('torch.')}{', in place' if inplace else ''}"
                case = f"{conversion}, {network}, {how}: memory against the network"
                rows.append(Row(case, "memory", share, 1.0, bar=4.0))
    return rows


def main() -> None:
    torch.manual_seed(0)
    x = torch.randn(64, 3, 32, 32)
    plain = create("vgg6", num_classes=10, width=0.25).eval()
    residual = create("resnet20", num_classes=10).eval()
    rows = [
        fused("vgg6, no norm", plain, x),
        fused("resnet20, batch norm", residual, x),
    ]
    for layers in 100, 1000:
        rows += against_forwards(f"{layers} layers", deep(layers).eval(), x[:32])
    photos = torch.randn(32, 3, 64, 64)
    for name, model in (("ResNet-152", resnet(3, 8, 36, 3)), ("DenseNet-201", densenet(6, 12, 48, 32))):
        rows += against_forwards(name, model.eval(), photos, ("to_crelu", "to_geometric", "fuse"))
    report("convert", rows + peaks())


if __name__ == "__main__":
    main()
