"""What a fused network costs: inference of fuse(to_geometric(m)) against m.

python benchmarks/convert.py
"""

import torch
from measure import Row, interleaved, report
from torch import Tensor, nn

from relucid.convert import fuse, to_geometric
from relucid.models import create


def fused(name: str, model: nn.Module, x: Tensor, center: bool) -> Row:
    geometric = to_geometric(model, x[:2], center=[x[:2]] if center else None).model
    ours = fuse(geometric, x[:2]).model
    with torch.inference_mode():
        seconds = interleaved({"ours": lambda: ours(x), "theirs": lambda: model(x)}, repeats=25)
    return Row(name, "time", seconds["ours"], seconds["theirs"], bar=1.03)


def main() -> None:
    torch.manual_seed(0)
    x = torch.randn(64, 3, 32, 32)
    plain = create("vgg6", num_classes=10, width=0.25).eval()
    residual = create("resnet20", num_classes=10).eval()
    rows = [
        fused("vgg6, no norm", plain, x, center=False),
        fused("vgg6, no norm, IMN", plain, x, center=True),
        fused("resnet20, batch norm", residual, x, center=False),
    ]
    report("convert", rows)


if __name__ == "__main__":
    main()
