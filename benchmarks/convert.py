"""What conversions cost: inference of fuse(to_geometric(m)) against m, and the time they take, against a forward pass.

python benchmarks/convert.py
"""

import time
from collections.abc import Callable, Iterable
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
    report("convert", rows)


if __name__ == "__main__":
    main()
