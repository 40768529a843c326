"""crelu Table 4: ReLU, AVR and CReLU in All-CNN-B on ImageNet."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from relucid.data import Examples, Split, imagenet
from relucid.models import create
from relucid.nn import CReLU
from relucid.papers.crelu.images import enlarged
from relucid.papers.crelu.measures import DRAWN, Normalized, invariant, paired, phases
from relucid.papers.crelu.reconstruction import reconstruct_through
from relucid.papers.imagenet import imagenet_flops
from relucid.studies import Claim, Column, Lower, NotWorse, Result, Runner, Scale, Study
from relucid.train import Machine, Recipe, fit

BASELINE = "Baseline"
MEASURED = tuple(f"conv{number}" for number in range(1, 8))  # the layers in Fig. 2 to 4 and Table 6
LAYERS = ("1-4", "1-7", "1-9")
# crelu Appendix E: last epoch, learning rate, weight decay.
SCHEDULE = (
    (10, 1e-2, 5e-4),
    (20, 1e-3, 5e-4),
    (25, 1e-4, 5e-4),
    (30, 5e-5, 0),
    (35, 1e-5, 0),
    (40, 5e-6, 0),
    (45, 1e-6, 0),
)
# Adam where filters are halved.
RECIPES = {"sgd": {"epochs": 45, "table": SCHEDULE}, "adam": {"epochs": 100, "optimizer": "adam", "lr": 2e-4}}
BRIEF = {"sgd": {"epochs": 1}, "adam": {"epochs": 1}}
SGD, ADAM = {"optimizer": "sgd"}, {"optimizer": "adam"}
ROWS = {
    BASELINE: {"variant": "baseline", **SGD},
    **{f"AVR (conv{layers})": {"variant": f"avr-{layers}", **SGD} for layers in LAYERS},
    "CReLU (conv1,4,7)": {"variant": "crelu-1,4,7", **ADAM},
    **{f"CReLU (conv{layers})": {"variant": f"crelu-{layers}", **SGD} for layers in LAYERS},
    "CReLU (all)": {"variant": "crelu-all", **ADAM},
}
AVR = tuple(row for row in ROWS if row.startswith("AVR"))
FOUR, THREE = "CReLU (conv1-4)", "CReLU (conv1,4,7)"
MARGIN = 1.0  # point of top-1 error, a quarter more than the published gain of AVR (conv1-4)
COLUMNS = {
    "top-1 %": Column("error"),
    "top-5 %": Column("error5"),
    "top-1 %, ten crops": Column("error of ten crops"),
    "top-5 %, ten crops": Column("error5 of ten crops"),
}
TABLE4 = {
    BASELINE: (41.81, 19.74, 38.03, 17.17),
    "AVR (conv1-4)": (41.12, 19.25, 37.32, 16.49),
    "AVR (conv1-7)": (42.36, 20.05, 38.21, 17.42),
    "AVR (conv1-9)": (43.33, 21.05, 39.70, 18.39),
    "CReLU (conv1,4,7)": (40.45, 18.58, 35.70, 15.32),
    "CReLU (conv1-4)": (39.82, 18.28, 36.20, 15.72),
    "CReLU (conv1-7)": (39.97, 18.33, 36.53, 16.01),
    "CReLU (conv1-9)": (40.15, 18.58, 36.50, 16.14),
    "CReLU (all)": (40.93, 19.39, 37.28, 16.72),
}


def run(config: dict[str, Any], machine: Machine) -> Result:
    """Train an All-CNN-B network as crelu Appendix E says; test on the centre and on ten crops."""
    train, centre, whole = _photos(config["data"])
    torch.manual_seed(config["seed"])
    channels = train.batch(torch.tensor([0]))[0].shape[1]
    net = _network(config, channels)
    augment = ("flip", "color") if channels == 3 else ("flip",)
    recipe = Recipe(**config["recipes"][config["optimizer"]], batch_size=64, augment=augment)
    fitted = fit(net, train, recipe, seed=config["seed"], machine=machine)
    metrics = fitted.evaluate(centre)
    crops = centre.batch(torch.tensor([0]))[0].shape[-1]
    metrics |= {f"{name} of ten crops": value for name, value in fitted.evaluate(whole, crops).items()}
    net = net.cpu().eval()
    drawn = torch.randperm(len(whole), generator=torch.Generator().manual_seed(config["seed"]))
    drawn = drawn[: config["measured"]]
    pairs, arrays = paired(net, MEASURED)
    # crelu Appendix D: the centres of random validation images, translated to their four corners
    seen = Normalized(whole, drawn, fitted.moments)
    metrics |= pairs | invariant(net, seen, MEASURED, crops) | phases(net, 11)
    if isinstance(net.get_submodule("act4"), CReLU):
        images = fitted.moments.normalize(centre.batch(drawn[:DRAWN])[0])
        lost, arrays["reconstructions"] = reconstructed(net, images)
        metrics |= lost
    return Result(metrics, fitted.history, arrays)


def _network(config: Mapping[str, Any], channels: int) -> nn.Module:
    name, classes = f"crelu/all_cnn_b-{config['variant']}", config["classes"]
    return create(name, num_classes=classes, in_channels=channels, width=config["width"])


def flops(config: Mapping[str, Any]) -> float | None:
    """Operations of a run on ImageNet; it is tested on the centre and on ten crops."""
    epochs = config["recipes"][config["optimizer"]]["epochs"]
    return imagenet_flops(lambda: _network(config, 3), config["data"], epochs, validations=11)


@torch.no_grad()
def reconstructed(net: nn.Module, images: Tensor) -> tuple[dict[str, float], np.ndarray]:
    """Reconstruct images from conv1 to conv4, and measure how much is lost (crelu Fig. 5, Appendix G).

    Returns:
        |x - x'| / |x| from each of the four layers, and (n, 5, channels, height, width): the images and their
        four reconstructions.
    """
    layers: list[nn.Module] = []
    metrics, stages, features = {}, [images], images
    for number in range(1, 5):
        layers.append(net.get_submodule(f"conv{number}"))
        features = net.get_submodule(f"act{number}")(layers[-1](features))
        stages.append(reconstruct_through(layers, features, images.shape[1:]))
        apart = (stages[-1] - images).flatten(1).norm(dim=1) / images.flatten(1).norm(dim=1)
        metrics[f"conv{number} lost"] = float(apart.mean())
    return metrics, torch.stack(stages, 1).numpy().astype(np.float16)


def _photos(name: str) -> tuple[Examples, Examples, Examples]:
    """Load the training images, the centres of the test images, and the whole test images, for ten crops."""
    if name == "imagenet":
        photos = imagenet(central=True)  # crelu 3.2: crops of the central 256 x 256 square
        return photos.train, photos.test, imagenet(test_size=256).test
    data = enlarged(9)  # 72 pixels, of which 64 are used
    train, centre = (Split(part.inputs[..., 4:-4, 4:-4], part.targets) for part in (data.train, data.test))
    return train.take(range(64)), centre.take(range(20)), data.test.take(range(20))


RUNNER = Runner("crelu/imagenet", run)

SAME: dict[str, Any] = {
    "run": RUNNER,
    "config": {"recipes": RECIPES},
    "repeat": {"seed": [0]},
    "scales": {
        "full": Scale({"data": "imagenet", "classes": 1000, "width": 1, "measured": 5000}),
        "smoke": Scale(
            {"data": "digits", "classes": 10, "width": 0.0625, "recipes": BRIEF, "measured": 8}, seconds=3
        ),
    },
    "flops": flops,
    "protocol": (
        "crelu Appendix E; AlexNet's augmentation: crops of 224 pixels of the central 256, flips, colours. Invariance "
        "(Appendix D) is that of the centres of 5,000 validation images, drawn by the seed, to a flip, a rotation by "
        "15 degrees and the crops of the four corners."
    ),
}


def _others(row: str) -> tuple[str, ...]:
    """The other rows with CReLU."""
    return tuple(other for other in ROWS if "CReLU" in other and other != row)


STUDIES = (
    Study(
        name="crelu/imagenet",
        title="ReLU, AVR and CReLU in All-CNN-B on ImageNet",
        rows=ROWS,
        columns=COLUMNS,
        published={row: dict(zip(COLUMNS, values, strict=True)) for row, values in TABLE4.items()},
        source="crelu Table 4",
        baseline=BASELINE,
        claims=(
            Claim(
                "Table 4",
                "CReLU in the lower layers lowers the error of All-CNN-B on ImageNet.",
                (
                    Lower(
                        tuple(row for row in ROWS if "CReLU" in row),
                        than=BASELINE,
                        columns=("top-1 %", "top-5 %"),
                    ),
                ),
                code=("relucid.papers.crelu.table4.run",),
            ),
            Claim(
                "Table 4, AVR",
                f"AVR lowers the error of All-CNN-B by less than {MARGIN:g} point.",
                (NotWorse(BASELINE, than=AVR, columns="top-1 %", margin=MARGIN),),
                stated="2026-11-17",
                code=("relucid.papers.crelu.table4.run",),
            ),
            Claim(
                "Table 4, single crop",
                "By a single crop, CReLU is best after conv1 to conv4: more layers do not help.",
                (Lower(FOUR, than=_others(FOUR), columns=("top-1 %", "top-5 %")),),
                stated="2026-11-17",
                code=("relucid.papers.crelu.table4.run",),
            ),
            Claim(
                "Table 4, ten crops",
                "By ten crops, CReLU is best after conv1, conv4 and conv7, with half their filters.",
                (Lower(THREE, than=_others(THREE), columns=("top-1 %, ten crops", "top-5 %, ten crops")),),
                stated="2026-11-17",
                code=("relucid.papers.crelu.table4.run",),
            ),
            Claim(
                "Table 5, errors",
                "CReLU (all) has a lower error than All-CNN-B, with half the parameters.",
                (Lower("CReLU (all)", than=BASELINE, columns="top-1 %"),),
                code=("relucid.papers.crelu.table4.run",),
            ),
        ),
        **SAME,
    ),
)
