"""A trained network, converted, trained further and exported: to CReLU, a little more training, plain layers, ONNX.

python examples/convert_and_export.py digits.onnx
"""

import sys
from pathlib import Path

import onnxruntime
import torch
from torch import nn

from relucid.convert import fuse, to_crelu, to_geometric
from relucid.data import digits
from relucid.train import Recipe, fit


def pretrained() -> nn.Module:
    """Stands for your own network, with its weights loaded."""
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        nn.Conv2d(16, 16, 3, padding=1),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(2),
        nn.Flatten(),
        nn.Linear(64, 10),
    )


def main(path: Path) -> None:
    data, model = digits(), pretrained()
    fitted = fit(model, data.train, Recipe(epochs=3, lr=0.05))
    print(f"before: test error {fitted.evaluate(data.test)['error']:.1f} %")

    images = fitted.moments.normalize(data.test.inputs)
    for convert in (to_crelu, to_geometric):
        conversion = convert(model, images[:8])
        print(f"{convert.__name__}: outputs moved by at most {conversion.max_error:.1e}")
        model = conversion.model
    fitted = fit(model, data.train, Recipe(epochs=3, lr=0.01))
    print(f"after: test error {fitted.evaluate(data.test)['error']:.1f} %")

    plain = fuse(model.eval(), images[:8]).model  # convolutions, CReLU, one linear layer
    batch = torch.export.Dim("batch", min=2)
    torch.onnx.export(
        plain, (images[:8],), path, input_names=["images"], dynamic_shapes=({0: batch},), verbose=False
    )
    session = onnxruntime.InferenceSession(str(path))
    (outputs,) = session.run(None, {"images": images.numpy()})
    difference = (torch.from_numpy(outputs) - plain(images)).abs().max()
    print(f"{path}: {path.stat().st_size / 1000:.0f} kB, outputs differ by at most {difference:.1e}")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "digits.onnx"))
