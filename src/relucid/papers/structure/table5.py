"""structure Table 5: HB-Net-34 against ResNet-34 and AGD-Net-121 against DenseNet-121 on ImageNet."""

from collections.abc import Mapping
from typing import Any

from relucid.models import count_parameters
from relucid.papers.imagenet import imagenet_flops
from relucid.papers.structure.images import DECAY, DECAYS_ALL, RECIPE, backbone, train
from relucid.report.curves import training
from relucid.studies import Claim, Column, Lower, Result, Runner, Scale, Study
from relucid.train import Machine

ROWS: dict[str, dict[str, Any]] = {
    "ResNet-34": {"family": "residual", "design": {}},
    "ResNet-34 without ReLU after the sum": {"family": "residual", "design": {"rectify": "nowhere"}},
    "HB-Net-34": {"family": "residual", "design": {"propagation": "heavy_ball"}},
    "DenseNet-121": {"family": "dense", "design": {}},
    "AGD-Net-121": {"family": "dense", "design": {"propagation": "nesterov2"}},
}
TOP1, TOP5 = "top-1 error %", "top-5 error %"


def run(config: dict[str, Any], machine: Machine) -> Result:
    """Train one network and test it once, on the centre of each image."""
    fitted, data = train(config, machine)
    found = fitted.evaluate(data.test)
    metrics = {name: found[name] for name in ("error", "error5")}
    return Result({**metrics, "parameters": count_parameters(fitted.network)}, fitted.history)


def flops(config: Mapping[str, Any]) -> float | None:
    """Operations of a run on ImageNet."""
    epochs = config["recipe"]["epochs"]
    return imagenet_flops(lambda: backbone(config, 1000, 3), config["data"], epochs, validations=1)


STUDY = Study(
    name="structure/imagenet",
    title="Layers joined by heavy ball and by Nesterov's method on ImageNet",
    run=Runner("structure/imagenet", run),
    rows=ROWS,
    columns={
        TOP1: Column("error"),
        TOP5: Column("error5"),
        "parameters": Column("parameters", repeat={"seed": [0]}, best=None, digits=0),
    },
    scales={
        "full": Scale({"data": "imagenet", "decay": DECAY}, {"seed": [0]}, protocol=DECAYS_ALL),
        "smoke": Scale(
            {
                "data": "noise",
                "residual": {"width": 0.0625},
                "dense": {"width": 0.125},
                "recipe": {"epochs": 1, "batch_size": 4},
            },
            {"seed": [0, 1]},
            seconds=2,
        ),
    },
    config={
        "residual": {"name": "resnet34"},
        "dense": {"name": "densenet121"},
        "recipe": RECIPE
        | {
            "epochs": 100,
            "batch_size": 256,
            "steps": [30, 60, 90],
            # Of windows of the photographs: see `relucid.data.imagenet`.
            "augment": ["jitter", "color", "flip"],
        },
    },
    published={
        "ResNet-34": {TOP1: 26.73, TOP5: 8.74},
        "HB-Net-34": {TOP1: 26.33, TOP5: 8.56},
        "DenseNet-121": {TOP1: 25.02, TOP5: 7.71},
        "AGD-Net-121": {TOP1: 24.62, TOP5: 7.39},
    },
    source="structure Table 5",
    protocol=(
        "SGD with Nesterov momentum 0.9, batches of 256, learning rate 0.1, cut to a tenth after 30, 60 and 90 of "
        "100 epochs, weight decay 0.0001. Augmentation as in fb.resnet.torch, whose figure is the published one of "
        "ResNet-34, and in the source of DenseNet, whose strategies the paper follows (its text: 'standard' crops "
        "and flips): random windows of 8 to 100% of a photograph, resized to 224 pixels, jitter of brightness, "
        "contrast and saturation by 0.4, lighting, flips. Windows and jitter are torchvision's: aspects between 3/4 "
        "and 4/3, bilinear, colours clipped (there: 9/16 to 16/9, bicubic, not clipped). Validated once, on the "
        "centre crop of 224 from a shorter side of 256. One seed, as in the paper."
    ),
    claims=(
        Claim(
            "Table 5",
            "On ImageNet, HB-Net-34 has a lower error than ResNet-34, and AGD-Net-121 than DenseNet-121.",
            (
                Lower("HB-Net-34", than="ResNet-34", columns=(TOP1, TOP5)),
                Lower("AGD-Net-121", than="DenseNet-121", columns=(TOP1, TOP5)),
            ),
            code=("relucid.papers.structure.table5.run",),
        ),
    ),
    figures=training,
    flops=flops,
)
