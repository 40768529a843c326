"""crelu Table 4: ReLU, AVR and CReLU in All-CNN-B on ImageNet."""

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from relucid.data import Examples, Split, imagenet
from relucid.experiments import Claim, Column, Scale, Study, by_cell, lower, not_worse, runner
from relucid.models import create
from relucid.nn import CReLU
from relucid.train import Machine, Recipe
from relucid_reproductions.crelu.measures import DRAWN, LAYERS, Normalized, invariant, paired, phases
from relucid_reproductions.crelu.reconstruction import reconstruct_through
from relucid_reproductions.images import channels, enlarged, trained

RECONSTRUCTED = LAYERS[:4]  # in Fig. 5; those in Fig. 2 to 4 and Table 6 are `LAYERS`
BASELINE, FOUR, SEVEN, THREE = "Baseline", "CReLU (conv1-4)", "CReLU (conv1-7)", "CReLU (conv1,4,7)"
SINGLE, TEN = ("top-1 %", "top-5 %"), ("top-1 %, ten crops", "top-5 %, ten crops")
TABLE4 = {
    BASELINE: [41.81, 19.74, 38.03, 17.17],
    "AVR (conv1-4)": [41.12, 19.25, 37.32, 16.49],
    "AVR (conv1-7)": [42.36, 20.05, 38.21, 17.42],
    "AVR (conv1-9)": [43.33, 21.05, 39.70, 18.39],
    THREE: [40.45, 18.58, 35.70, 15.32],
    FOUR: [39.82, 18.28, 36.20, 15.72],
    SEVEN: [39.97, 18.33, 36.53, 16.01],
    "CReLU (conv1-9)": [40.15, 18.58, 36.50, 16.14],
    "CReLU (all)": [40.93, 19.39, 37.28, 16.72],
}


# Table 5, methods of others: top-1 and top-5 by one crop, by ten; millions of parameters.
SPRINGENBERG = 41.2  # footnote 7: the top-1 error that All-CNN-B's authors report
OTHERS: dict[str, list[float | None]] = {
    "AlexNet": [42.6, 19.6, 40.7, 18.2, 61],
    "FriedNet": [41.93, None, None, None, 32.8],
    "PrunedNet": [42.77, 19.67, None, None, 6.7],
}


@runner("crelu/imagenet")
def run(
    data: str, variant: str, optimizer: str, recipes: Mapping[str, Any], classes: int, width: float,
    measured: int, seed: int, machine: Machine | None = None,
) -> dict[str, Any]:  # fmt: skip
    """Train an All-CNN-B network as crelu Appendix E says; test on the center and on ten crops."""
    train, center, whole = photos(data)
    name, colors = f"crelu/all_cnn_b-{variant}", channels(train)
    build = partial(create, name, num_classes=classes, in_channels=colors, width=width)
    augment = ("flip", "color") if colors == 3 else ("flip",)
    recipe = Recipe(**recipes[optimizer], batch_size=64, augment=augment)
    fitted = trained(build, train, recipe, seed=seed, machine=machine)
    metrics = fitted.evaluate(center)
    crops = center.batch(torch.tensor([0]))[0].shape[-1]
    metrics |= {f"{name} of ten crops": value for name, value in fitted.evaluate(whole, crops).items()}
    net = fitted.network.cpu().eval()
    drawn = torch.randperm(len(whole), generator=torch.Generator().manual_seed(seed))[:measured]
    pairs, arrays = paired(net, LAYERS)
    # crelu Appendix D: the centers of random validation images, translated to their four corners
    seen = Normalized(whole, drawn, fitted.moments)
    metrics |= pairs | invariant(net, seen, LAYERS, crops) | phases(net, 11)
    if all(isinstance(net.get_submodule(name.replace("conv", "act")), CReLU) for name in RECONSTRUCTED):
        images = fitted.moments.normalize(center.batch(drawn[:DRAWN])[0])
        lost, arrays["reconstructions"] = reconstructed(net, images)
        metrics |= lost
    return {**metrics, "history": fitted.history, "arrays": arrays}


@torch.no_grad()
def reconstructed(net: nn.Module, images: Tensor) -> tuple[dict[str, float], np.ndarray]:
    """Reconstruct images from conv1 to conv4, and measure how much is lost (crelu Fig. 5, Appendix G).

    Returns:
        |x - x'| / |x| from each of the four layers, and (n, 5, channels, height, width): the images and their
        four reconstructions.
    """
    layers: list[nn.Module] = []
    metrics, stages, features = {}, [images], images
    for name in RECONSTRUCTED:
        layers.append(net.get_submodule(name))
        features = net.get_submodule(name.replace("conv", "act"))(layers[-1](features))
        stages.append(reconstruct_through(layers, features, images.shape[1:]))
        apart = (stages[-1] - images).flatten(1).norm(dim=1) / images.flatten(1).norm(dim=1)
        metrics[f"{name} lost"] = float(apart.mean())
    return metrics, torch.stack(stages, 1).numpy().astype(np.float16)


def photos(name: str) -> tuple[Examples, Examples, Examples]:
    """Load the training images, the centers of the test images, and the whole test images, for ten crops."""
    if name == "imagenet":
        data = imagenet(central=True)  # crelu 3.2: crops of the central 256 x 256 square
        return data.train, data.test, imagenet(test_size=256).test
    digits = enlarged(9)  # 72 pixels, of which 64 are used
    train, center = (
        Split(part.inputs[..., 4:-4, 4:-4], part.targets) for part in (digits.train, digits.test)
    )
    return train.take(range(64)), center.take(range(20)), digits.test.take(range(20))


# crelu Appendix E: last epoch, learning rate, weight decay; Adam where filters are halved.
SCHEDULE = (
    (10, 1e-2, 5e-4), (20, 1e-3, 5e-4), (25, 1e-4, 5e-4), (30, 5e-5, 0), (35, 1e-5, 0), (40, 5e-6, 0), (45, 1e-6, 0),
)  # fmt: skip
RECIPES = {"sgd": {"epochs": 45, "table": SCHEDULE}, "adam": {"epochs": 100, "optimizer": "adam", "lr": 2e-4}}
BRIEF = {"sgd": {"epochs": 1}, "adam": {"epochs": 1}}
HALVED = {THREE: "crelu-1,4,7", "CReLU (all)": "crelu-all"}
ROWS = {
    row: {
        "variant": HALVED.get(row) or row.lower().replace(" (conv", "-").rstrip(")"),
        "optimizer": "adam" if row in HALVED else "sgd",
    }
    for row in TABLE4
}
AVR, CRELU = ([row for row in ROWS if row.startswith(name)] for name in ("AVR", "CReLU"))


def best(row: str, columns: tuple[str, str]) -> list[Any]:
    """Of the networks with CReLU, this one has the lowest error."""
    return lower(row, [other for other in CRELU if other != row], columns)


IMAGENET = Study(
    "crelu/imagenet",
    "ReLU, AVR and CReLU in All-CNN-B on ImageNet",
    run,
    ROWS,
    dict(
        zip(
            SINGLE + TEN,
            map(Column, ("error", "error5", "error of ten crops", "error5 of ten crops")),
            strict=True,
        )
    ),
    {
        "full": Scale({"data": "imagenet", "classes": 1000, "width": 1, "measured": 5000}),
        "smoke": Scale({"data": "digits", "classes": 10, "width": 0.0625, "recipes": BRIEF, "measured": 8}),
    },
    config={"recipes": RECIPES},
    repeat={"seed": [0]},
    paired=False,
    published=by_cell(TABLE4, SINGLE + TEN),
    claims=[
        Claim(
            "Table 4",
            "CReLU in the lower layers lowers the error of All-CNN-B on ImageNet.",
            lower(CRELU, BASELINE, SINGLE),
        ),
        Claim(
            "Table 4, AVR",
            "AVR lowers the error of All-CNN-B by less than 1 point.",  # a quarter more than AVR (conv1-4) gains
            not_worse(BASELINE, AVR, "top-1 %", margin=1.0),
            stated="2026-11-17",
        ),
        Claim(
            "Table 4, single crop",
            "By a single crop, CReLU is best after conv1 to conv4: more layers do not help.",
            best(FOUR, SINGLE),
            stated="2026-11-17",
        ),
        Claim(
            "Table 4, ten crops",
            "By ten crops, CReLU is best after conv1, conv4 and conv7, with half their filters.",
            best(THREE, TEN),
            stated="2026-11-17",
        ),
        Claim(
            "Table 5, errors",
            "CReLU (all) has a lower error than All-CNN-B, with half the parameters.",
            lower("CReLU (all)", BASELINE, "top-1 %"),
        ),
        Claim(
            "Table 4, AVR, trend",
            "By a single crop, AVR is best after conv1 to conv4 as well: more layers do not help.",
            lower(AVR[0], AVR[1:], SINGLE),
            stated="2026-11-19",
        ),
        Claim(
            "Table 5, methods of others",
            "CReLU (all) has a lower error than FriedNet and PrunedNet, which were made to have few parameters.",
            [
                contrast
                for name in ("FriedNet", "PrunedNet")
                for contrast in lower("CReLU (all)", OTHERS[name][0] or 0.0, "top-1 %")
            ],
            stated="2026-11-19",
        ),
    ],
)


def measuring(name: str, title: str, **fields: Any) -> Study:
    """A study of what some of these networks have learned, from the same runs."""
    return IMAGENET.variant(f"crelu/{name}-imagenet", title, **{"published": {}} | fields)


STUDIES = [IMAGENET]
