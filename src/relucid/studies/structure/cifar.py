"""structure Table 4: HB-Net against ResNet and AGD-Net against DenseNet on CIFAR."""

from typing import Any

from relucid.studies.run import Result
from relucid.studies.runner import Runner
from relucid.studies.structure.images import AUGMENT, RECIPE, parameters, train
from relucid.studies.structure.verdicts import differences
from relucid.studies.study import Column, Scale, Study
from relucid.studies.table import Table
from relucid.train import Machine

ROWS: dict[str, dict[str, Any]] = {
    "ResNet": {"family": "residual", "design": {}},
    "ResNet without ReLU after the sum": {"family": "residual", "design": {"rectify": "nowhere"}},
    "HB-Net (16)": {"family": "residual", "design": {"propagation": "heavy_ball"}},
    "DenseNet": {"family": "dense", "design": {}},
    "AGD-Net (18)": {"family": "dense", "design": {"propagation": "nesterov2"}},
}
# Error rates without and with augmentation.
PUBLISHED = {
    ("CIFAR-10", 9, 40): {
        "ResNet": (10.05, 5.32),
        "HB-Net (16)": (10.17, 5.46),
        "DenseNet": (7.0, 5.24),
        "AGD-Net (18)": (6.44, 5.2),
    },
    ("CIFAR-10", 18, 52): {
        "ResNet": (9.17, 5.06),
        "HB-Net (16)": (8.66, 5.04),
        "DenseNet": (6.05, 5.09),
        "AGD-Net (18)": (5.75, 4.94),
    },
    ("CIFAR-100", 9, 40): {
        "ResNet": (39.65, 26.03),
        "HB-Net (16)": (38.52, 26.0),
        "DenseNet": (27.55, 24.42),
        "AGD-Net (18)": (26.33, 24.87),
    },
    ("CIFAR-100", 18, 52): {
        "ResNet": (38.13, 24.71),
        "HB-Net (16)": (36.4, 23.93),
        "DenseNet": (26.3, 24.33),
        "AGD-Net (18)": (24.92, 23.84),
    },
}


def run(config: dict[str, Any], machine: Machine) -> Result:
    """Train one network and test it once."""
    fitted, data = train(config, machine)
    metrics = {"error": fitted.evaluate(data.test)["error"], "parameters": parameters(fitted.network)}
    return Result(metrics, fitted.history)


RUNNER = Runner("structure/cifar", run)


def verdict(table: Table) -> str:
    """The differences that the paper claims, and that to the control."""
    pairs = [
        ("HB-Net (16)", "ResNet"),
        ("HB-Net (16)", "ResNet without ReLU after the sum"),
        ("AGD-Net (18)", "DenseNet"),
    ]
    return differences(table, pairs, [label for label in table.study.columns if label != "parameters"])


SMALL = Scale(
    {
        "images": 5000,
        "pool": 2,
        "residual": {"depth": 20, "width": 0.5},
        "dense": {"depth": 16, "growth": 8},
        "recipe": {"epochs": 10},
    },
    seconds=45,
)
SMOKE = Scale(
    {
        "data": "digits",
        "images": 64,
        "residual": {"depth": 8, "width": 0.25},
        "dense": {"depth": 7, "growth": 2},
        "recipe": {"epochs": 1},
    },
    {"seed": [0, 1]},
    seconds=1,
)


def _study(name: str, data: str, n: int, depth: int, scales: dict[str, Scale]) -> Study:
    plain, augmented = data, f"{data} (+)"
    # DenseNet's own recipe: dropout where nothing is augmented.
    without = {"recipe": {"augment": []}, "dense": {"dropout": 0.2}}
    return Study(
        name=name,
        title=(
            f"Layers joined by heavy ball and by Nesterov's method on {data} "
            f"(at full scale, {6 * n + 2} and {depth} of them)"
        ),
        run=RUNNER,
        rows=ROWS,
        columns={
            plain: Column("error", without),
            augmented: Column("error", {"recipe": {"augment": AUGMENT}}),
            "parameters": Column("parameters", without, {"seed": [0]}, best=None, digits=0),
        },
        scales=scales,
        config={
            "data": data.lower().replace("-", ""),
            "residual": {"name": "resnet_cifar", "depth": 6 * n + 2},
            "dense": {"name": "densenet_cifar", "depth": depth},
            "recipe": RECIPE,
        },
        published={
            row: dict(zip((plain, augmented), errors, strict=True))
            for row, errors in PUBLISHED[data, n, depth].items()
        },
        source="structure Table 4",
        protocol=(
            "SGD with Nesterov momentum 0.9, batches of 64, learning rate 0.1, a tenth of it after one half and a "
            "hundredth after three quarters of training, weight decay 0.0001; (+) is with random flips and crops, "
            "DenseNet and AGD-Net without it have dropout 0.2. The recipe is fixed and the test set is looked at once, "
            "after training. Full scale: 300 epochs on all images. Small scale: 10 epochs on the first 5,000 images, "
            "averaged over 2x2 pixels; residual networks of 20 layers and half the width, dense ones of 16 layers and "
            "growth rate 8; all 10,000 test images."
        ),
        claim=(
            "HB-Net has a lower error than ResNet, the more so the deeper, and AGD-Net has a lower one than DenseNet, "
            "without augmentation above all."
        ),
        verdict=verdict,
        figures="relucid.report.structure:training",
    )


FULL = Scale(seconds=80_000)
STUDIES = (
    _study("structure/cifar", "CIFAR-10", 9, 40, {"full": FULL, "small": SMALL, "smoke": SMOKE}),
    _study("structure/cifar-deeper", "CIFAR-10", 18, 52, {"full": FULL, "smoke": SMOKE}),
    _study("structure/cifar100", "CIFAR-100", 9, 40, {"full": FULL, "smoke": SMOKE}),
    _study("structure/cifar100-deeper", "CIFAR-100", 18, 52, {"full": FULL, "smoke": SMOKE}),
)
