"""crelu Tables 4 and 5: All-CNN-B on ImageNet, and how many parameters it takes."""

from typing import Any

import torch

from relucid.data import Examples, Split, imagenet
from relucid.inspect import phase_correlation
from relucid.models import create, describe
from relucid.nn import CReLU
from relucid.studies.crelu.pictures import enlarged
from relucid.studies.run import Result
from relucid.studies.study import Column, Scale, Study
from relucid.studies.table import Table
from relucid.studies.words import mean
from relucid.train import Machine, Recipe, fit

BASELINE = "Baseline"
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
# Of the same and of different units, conv1 to conv7; the deviations that crelu Table 6 adds are over units.
TABLE6 = (
    (0.372, 0.165),
    (0.180, 0.157),
    (0.462, 0.120),
    (0.175, 0.119),
    (0.206, 0.105),
    (0.256, 0.086),
    (0.131, 0.080),
)
PHASED = "CReLU (conv1-7)"
PHASES = [f"conv{number} {kind}" for number in range(1, 8) for kind in ("pair", "non-pair")]
# In millions, crelu Tables 1 and 5.
PARAMETERS = {
    "ConvPool, baseline": ("crelu/convpool-baseline", 10, 1.4),
    "ConvPool, double": ("crelu/convpool-double", 10, 5.6),
    "ConvPool, AVR": ("crelu/convpool-avr", 10, 1.4),
    "ConvPool, CReLU": ("crelu/convpool-crelu", 10, 2.8),
    "ConvPool, CReLU (half)": ("crelu/convpool-half", 10, 0.7),
    "All-CNN-B": ("crelu/all_cnn_b-baseline", 1000, 9.4),
    "All-CNN-B, CReLU (all)": ("crelu/all_cnn_b-crelu-all", 1000, 4.7),
    "All-CNN-B, CReLU (conv1,4,7)": ("crelu/all_cnn_b-crelu-1,4,7", 1000, 8.6),
    "All-CNN-B, CReLU (conv1-4)": ("crelu/all_cnn_b-crelu-1-4", 1000, 10.1),
}


def run(config: dict[str, Any], machine: Machine) -> Result:
    """Train an All-CNN-B network as crelu Appendix E says; test on the centre and on ten crops."""
    train, centre, whole = _photos(config["data"])
    torch.manual_seed(config["seed"])
    channels = train.batch(torch.tensor([0]))[0].shape[1]
    net = create(
        f"crelu/all_cnn_b-{config['variant']}",
        num_classes=config["classes"],
        in_channels=channels,
        width=config["width"],
    )
    augment = ("flip", "color") if channels == 3 else ("flip",)
    recipe = Recipe(**config["recipes"][config["optimizer"]], batch_size=64, augment=augment)
    fitted = fit(net, train, recipe, seed=config["seed"], machine=machine)
    metrics = fitted.evaluate(centre)
    crops = centre.batch(torch.tensor([0]))[0].shape[-1]
    metrics |= {f"{name} of ten crops": value for name, value in fitted.evaluate(whole, crops).items()}
    return Result({**metrics, **_phases(net.cpu())}, fitted.history)


def _photos(name: str) -> tuple[Examples, Examples, Examples]:
    """What is trained on, the centres of what is tested on, and all of it, from which ten crops are taken."""
    if name == "imagenet":
        photos = imagenet()
        return photos.train, photos.test, imagenet(test_size=256).test
    data = enlarged(9)  # 72 pixels, of which 64 are used
    train, centre = (Split(part.inputs[..., 4:-4, 4:-4], part.targets) for part in (data.train, data.test))
    return train.take(range(64)), centre.take(range(20)), data.test.take(range(20))


def _phases(net: torch.nn.Module) -> dict[str, float]:
    """Correlations of the weights that leave the two phases of CReLU units (crelu Table 6: conv1-7)."""
    metrics: dict[str, float] = {}
    for number in range(1, 12):
        if isinstance(net.get_submodule(f"act{number}"), CReLU):
            weight = net.get_submodule(f"conv{number + 1}").weight
            assert isinstance(weight, torch.Tensor)
            found = phase_correlation(weight)
            metrics |= {f"conv{number} pair": found.pair[0], f"conv{number} non-pair": found.non_pair[0]}
    return metrics


def count(config: dict[str, Any]) -> dict[str, float]:
    """Weights of convolutions, without biases, as the papers count, and multiply-adds of one image."""
    net = create(config["model"], num_classes=config["classes"])
    weights = sum(parameter.numel() for parameter in net.parameters() if parameter.dim() > 1)
    return {
        "weights": weights,
        "millions": weights / 1e6,
        "multiply_adds": describe(net).multiply_adds / 1e6,
    }


def errors_verdict(table: Table) -> str:
    """All variants in order of their error."""
    column = "top-1 %"
    found = {row: mean(table.cells[row, column]) for row in ROWS}
    order = ", ".join(f"{row} {found[row]:.2f}" for row in sorted(found, key=lambda row: found[row]))
    better = [row for row in ROWS if row.startswith("CReLU") and found[row] < found[BASELINE]]
    return f"Top-1 error: {order}. {len(better)} of 5 CReLU networks err less than the baseline."


def phase_verdict(table: Table) -> str:
    """How many layers tell the phases of a unit apart."""
    found = [mean(table.cells[PHASED, label]) for label in PHASES]
    pairs, others = found[::2], found[1::2]
    more = sum(pair > other for pair, other in zip(pairs, others, strict=True))
    return f"The largest correlation is {max(pairs):.2f}; it exceeds that of different units in {more} of 7 layers."


def count_verdict(table: Table) -> str:
    """Which counts agree with the printed digits."""
    wrong = []
    for row, (_, _, printed) in PARAMETERS.items():
        ours = mean(table.cells[row, MILLIONS])
        if round(ours, 1) != printed:
            wrong.append(f"{row} ({ours:.2f}, printed {printed})")
    right = len(PARAMETERS) - len(wrong)
    but = f" Not: {', '.join(wrong)}." if wrong else ""
    return f"{right} of {len(PARAMETERS)} counts are those printed.{but}"


MILLIONS = "millions of weights"
SAME: dict[str, Any] = {
    "run": run,
    "config": {"recipes": RECIPES},
    "repeat": {"seed": [0]},
    "scales": {
        "full": Scale({"data": "imagenet", "classes": 1000, "width": 1}),
        "smoke": Scale({"data": "digits", "classes": 10, "width": 0.0625, "recipes": BRIEF}, seconds=3),
    },
    "protocol": "crelu Appendix E; AlexNet's augmentation: crops of 224 pixels, flips, colours.",
}
STUDIES = (
    Study(
        name="crelu/imagenet",
        title="ReLU, AVR and CReLU in All-CNN-B on ImageNet",
        rows=ROWS,
        columns=COLUMNS,
        published={row: dict(zip(COLUMNS, figures, strict=True)) for row, figures in TABLE4.items()},
        source="crelu Table 4",
        claim="CReLU in the lower layers lowers the error of All-CNN-B; AVR does not noticeably.",
        verdict=errors_verdict,
        baseline=BASELINE,
        **SAME,
    ),
    Study(
        name="crelu/phase-imagenet",
        title="Absolute correlation of the weights that leave the two phases of the same and of different units",
        rows={PHASED: ROWS[PHASED]},
        columns={label: Column(label, best=None, digits=3) for label in PHASES},
        published={PHASED: dict(zip(PHASES, (figure for layer in TABLE6 for figure in layer), strict=True))},
        source="crelu Table 6",
        claim="Well below 1, if above that of different units: the next layer treats the phases differently.",
        verdict=phase_verdict,
        **SAME,
    ),
    Study(
        name="crelu/parameters",
        title="Parameters of the networks of crelu",
        run=count,
        rows={row: {"model": model, "classes": classes} for row, (model, classes, _) in PARAMETERS.items()},
        columns={
            MILLIONS: Column("millions", best=None, digits=1),
            "weights": Column("weights", best=None, digits=0),
            "millions of multiply-adds": Column("multiply_adds", best=None, digits=0),
        },
        scales={"full": Scale(seconds=1), "smoke": Scale(seconds=1)},
        repeat={},
        published={row: {MILLIONS: millions} for row, (_, _, millions) in PARAMETERS.items()},
        source="crelu Tables 1 and 5",
        claim="CReLU with half the filters has half the parameters of ReLU with as many neurons.",
        verdict=count_verdict,
        protocol=(
            "Weights of convolutions in Tables S2, S3 and S8 to S13, without biases. Table 1's 1.4M is the nine-layer "
            "ConvPool-CNN-C of its source and the others its multiples; Tables S2 and S3 print eight layers."
        ),
    ),
)
