"""structure Table 5: HB-Net-34 against ResNet-34 and AGD-Net-121 against DenseNet-121 on ImageNet."""

from dataclasses import replace
from typing import Any

from relucid.experiments import Claim, Column, Scale, Study, by_cell, lower, merge, runner
from relucid.report.plots import curves
from relucid.train import Machine
from relucid_reproductions.images import evaluated
from relucid_reproductions.structure.images import DECAY, RECIPE, train

ROWS: dict[str, dict[str, Any]] = {
    "ResNet-34": {"family": "residual", "design": {}},
    "ResNet-34 without ReLU after the sum": {"family": "residual", "design": {"rectify": "nowhere"}},
    "HB-Net-34": {"family": "residual", "design": {"propagation": "heavy_ball"}},
    "DenseNet-121": {"family": "dense", "design": {}},
    "AGD-Net-121": {"family": "dense", "design": {"propagation": "nesterov2"}},
}
ERRORS = ("top-1 error %", "top-5 error %")
PUBLISHED = {
    "ResNet-34": (26.73, 8.74),
    "HB-Net-34": (26.33, 8.56),
    "DenseNet-121": (25.02, 7.71),
    "AGD-Net-121": (24.62, 7.39),
}


@runner("structure/imagenet")
def run(machine: Machine | None = None, **settings: Any) -> dict[str, Any]:
    """Train one network and test it once, on the center of each image; `settings` are those of `train`."""
    return evaluated(*train(machine=machine, **settings), "error", "error5")


imagenet = Study(
    "structure/imagenet",
    "Layers joined by heavy ball and by Nesterov's method on ImageNet",
    run,
    rows=ROWS,
    columns={
        ERRORS[0]: Column("error"),
        ERRORS[1]: Column("error5"),
        "parameters": Column("parameters", repeat={"seed": [0]}, best=None, digits=0),
    },
    scales={
        "full": Scale({"data": "imagenet", "decay": DECAY}, {"seed": [0]}),
        "smoke": Scale(
            {
                "data": "noise",
                "residual": {"width": 0.0625},
                "dense": {"width": 0.125},
                "recipe": {"epochs": 1, "batch_size": 4},
            },
            {"seed": [0, 1]},
        ),
    },
    config={
        "residual": {"name": "resnet34"},
        "dense": {"name": "densenet121"},
        "recipe": {
            **RECIPE,
            "epochs": 100,
            "batch_size": 256,
            "steps": [30, 60, 90],
            # Of windows of the photographs: see `relucid.data.imagenet`.
            "augment": ["jitter", "color", "flip"],
        },
    },
    paired=False,
    published=by_cell(PUBLISHED, ERRORS),
    claims=[
        Claim(
            "Table 5",
            "On ImageNet, HB-Net-34 has a lower error than ResNet-34, and AGD-Net-121 than DenseNet-121.",
            [*lower("HB-Net-34", "ResNet-34", ERRORS), *lower("AGD-Net-121", "DenseNet-121", ERRORS)],
        )
    ],
    figures=[curves],
)
STUDIES = [
    imagenet,
    imagenet.variant(
        "structure/imagenet-crops",
        "The same with the augmentation as the paper's text has it: crops and flips",
        scales={**imagenet.scales, "full": Scale({"data": "imagenet-crops", "decay": DECAY}, {"seed": [0]})},
        config=merge(imagenet.config, {"recipe": {"augment": ["flip"]}}),
        claims=[replace(claim, where=f"{claim.where}, crops and flips") for claim in imagenet.claims],
    ),
]
