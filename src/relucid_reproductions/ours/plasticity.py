"""Ours: which networks keep learning when their data change, task after task."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import partial
from typing import Any

from torch import Tensor

from relucid.experiments import (
    Cell,
    Claim,
    Column,
    Contrast,
    Quantity,
    Results,
    Scale,
    Study,
    higher,
    merge,
    runner,
)
from relucid.models import count_parameters
from relucid.report.figure import Figure
from relucid_reproductions.ours.drawing import over_tasks, smoothed
from relucid_reproductions.ours.streams import SETTINGS, Arm, Course, begin, course

RELU, LEAKY, NORM, GEOMETRIC = "ReLU", "Leaky ReLU", "ReLU, layer norm", "ReLU, geometric weights"
REDRAWN, HALF, CRELU = "ReLU, dead units re-initialised", "CReLU, half the units", "CReLU"
DECAYS = {f"ReLU, L2 of {decay:g}": Arm(decay=decay) for decay in (1e-4, 1e-3)}
ARMS = {
    RELU: Arm(), LEAKY: Arm("leaky_relu"), NORM: Arm(norm=True), GEOMETRIC: Arm(geometric=True), **DECAYS,
    REDRAWN: Arm(renew=True), HALF: Arm("crelu", 0.5), CRELU: Arm("crelu"),
}  # fmt: skip
WHAT = {"permuted": "permuted pixels", "labels": "random labels", "pairs": "pairs of classes"}
RATES = (1e-4, 3e-4, 1e-3, 3e-3, 1e-2)
LARGE, FIFTH = RATES[-1], 5


@runner("plasticity")
def run(arm: Mapping[str, Any], setting: str, sizes: Mapping[str, Any]) -> dict[str, Any]:
    """Train networks on one stream: some seeds at every rate, to choose one, then others at that rate."""
    network, size = Arm(**arm), sizes[setting]
    part = max(1, size["tasks"] // FIFTH)

    def learn(rates: Sequence[float], seeds: Sequence[int]) -> Course:
        stream = SETTINGS[setting](**size["data"])
        return course(begin(network, stream, rates, seeds), stream, size["tasks"], network.renew)

    tried = learn(size["rates"], size["choosing"])
    rate = size["rates"][int(tried.scores[-part:].mean((0, 2)).argmax())]
    chosen = learn([rate], size["seeds"])
    suffixes = [f" at {rate:g}" for rate in size["rates"]]
    return {
        **fifths(chosen, part, [""]),
        **fifths(tried, part, suffixes),
        "rate": rate,
        "parameters": count_parameters(chosen.stream.networks[0]),
        "history": {**curves(chosen, [""]), **curves(tried, suffixes)},
    }


def fifths(learned: Course, part: int, suffixes: Sequence[str]) -> dict[str, list[float]]:
    """Means over the first and the last tasks, by seed, of every rate."""
    means = {"first": learned.scores[:part], "last": learned.scores[-part:], "dead": learned.dead[-part:]}
    return {
        f"{name}{suffix}": by_seed.tolist()
        for name, values in means.items()
        for suffix, by_seed in zip(suffixes, values.mean(0), strict=True)
    }


def curves(learned: Course, suffixes: Sequence[str]) -> dict[str, list[float]]:
    """Means over seeds, task after task, of every rate."""
    values: dict[str, Tensor] = {"score": learned.scores, "dead": learned.dead}
    return {
        f"{name}{suffix}": scores[:, place].mean(1).tolist()
        for name, scores in values.items()
        for place, suffix in enumerate(suffixes)
    }


SEEDS: dict[str, Any] = {"rates": RATES, "choosing": range(100, 103), "seeds": range(200, 210)}
SIZES: dict[str, dict[str, Any]] = {
    "permuted": {"tasks": 50, **SEEDS, "data": {"digits": 1500, "batch": 16}},
    "labels": {"tasks": 25, **SEEDS, "data": {"digits": 600, "batch": 60, "epochs": 12}},
    "pairs": {
        "tasks": 30, "rates": RATES[2:], "choosing": range(100, 102), "seeds": range(200, 205),
        "data": {"source": "cifar10", "images": 600, "tested": 400, "batch": 50, "epochs": 3},
    },
}  # fmt: skip
FEW: dict[str, Any] = {"tasks": 2, "choosing": [100], "seeds": [200, 201]}
SMOKE = {
    "permuted": FEW | {"data": {"digits": 96}},
    "labels": FEW | {"data": {"digits": 120, "epochs": 2}},
    "pairs": FEW | {"data": {"source": "digits", "images": 40, "tested": 20, "epochs": 1}},
}
SCALES = {"cpu": Scale({"sizes": SIZES}), "smoke": Scale({"sizes": merge(SIZES, SMOKE)})}
ROWS = {row: {"arm": asdict(arm)} for row, arm in ARMS.items()}


def column(setting: str, part: str) -> str:
    """The label of a column."""
    return f"{WHAT[setting]}, {part}"


def at(rate: float, setting: str) -> str:
    """The label of a column that shows one rate."""
    return column(setting, f"last fifth % at {rate:g}")


def columns(setting: str) -> dict[str, Column]:
    """Accuracy in the first and the last fifth of the tasks, dead units and parameters, in one setting."""
    where = {"setting": setting}
    return {
        column(setting, "first fifth %"): Column("first", where, best="highest", digits=1),
        column(setting, "last fifth %"): Column("last", where, best="highest", digits=1),
        column(setting, "dead %"): Column("dead", where, best=None, digits=0),
        column(setting, "parameters"): Column("parameters", where, best=None, digits=0),
    }


def lost(setting: str) -> Quantity:
    """By how much ReLU is worse in the last fifth of the tasks than in the first, at the largest rate."""
    cells = [Cell(RELU, at(LARGE, setting), f"{part} at {LARGE:g}") for part in ("first", "last")]
    label = f"{WHAT[setting]}: first fifth less last fifth, {RELU} at {LARGE:g}"
    return Quantity(label, cells, lambda first, last: first - last)


def chosen(results: Results, setting: str) -> dict[str, list[str]]:
    """The rates that were chosen in a setting, and the rows of each."""
    rows: dict[float, list[str]] = {}
    for row in ROWS:
        for record in results.behind(row, column(setting, "last fifth %")):
            rows.setdefault(record["metrics"]["rate"], []).append(row)
    return {f"{rate:g}": rows[rate] for rate in sorted(rows)}


def tasks(results: Results) -> list[Figure]:
    """Draw the accuracy over the tasks at each network's own rate, one panel per setting, and its dead units."""
    panels: dict[str, Any] = {}
    for row, label in results.cells:
        for record in results.behind(row, label):
            score, dead = (smoothed(record["history"][name]) for name in ("score", "dead"))
            panels.setdefault(WHAT[record["config"]["setting"]], {})[row] = score, dead
    alt = (
        "One panel per setting: lines of the accuracy over the tasks, one line per network at its own rate, and below "
        "it the share of dead units. Means over seeds and over a tenth of the tasks."
    )
    title = "Accuracy and dead units, task after task"
    return [Figure(title, alt, over_tasks(panels, "accuracy %"))] if panels else []


def at_own_rates(name: str, data: str, settings: Sequence[str]) -> Study:
    """The study in which every network has its own rate, in these settings."""
    last = [column(setting, "last fifth %") for setting in settings]
    better = "learns the last fifth of the tasks better than"
    return Study(
        name,
        f"Which networks keep learning: accuracy in the first and last fifth of a stream of tasks, {data}",
        run,
        ROWS,
        {label: shown for setting in settings for label, shown in columns(setting).items()},
        SCALES,
        repeat={},
        tries=SIZES[settings[0]]["rates"],
        claims=[
            Claim(
                f"CReLU and ReLU, {data}",
                f"Each at its own rate, CReLU with half the units {better} ReLU.",
                higher(HALF, RELU, last),
            ),
            Claim(
                f"CReLU and other remedies, {data}",
                f"Each at its own rate, CReLU with half the units {better} Leaky ReLU and than ReLU with layer norm, "
                "with L2, or with dead units re-initialised.",
                higher(HALF, (LEAKY, NORM, *DECAYS, REDRAWN), last),
            ),
            Claim(
                f"CReLU goes on learning, {data}",
                f"At its own rate, CReLU with half the units {better} the first.",
                [
                    Contrast(Cell(HALF, label), Cell(HALF, column(setting, "first fifth %")), "higher")
                    for setting, label in zip(settings, last, strict=True)
                ],
            ),
            Claim(
                f"geometric weights, {data}",
                f"Each at its own rate, ReLU with geometric weights {better} ReLU.",
                higher(GEOMETRIC, RELU, last),
            ),
        ],
        figures=[tasks],
    )


def at_all_rates(name: str, data: str, settings: Sequence[str]) -> Study:
    """The same runs at every rate, on the seeds by which rates are chosen."""
    return Study(
        name,
        f"Accuracy in the last fifth of a stream of tasks, at every rate, {data}",
        run,
        ROWS,
        {
            at(rate, setting): Column(f"last at {rate:g}", {"setting": setting}, best="highest", digits=1)
            for setting in settings
            for rate in SIZES[setting]["rates"]
        },
        SCALES,
        repeat={},
        claims=[
            Claim(
                f"ReLU stops learning, {data}",
                f"At a rate of {LARGE:g}, ReLU learns the last fifth of the tasks worse than the first.",
                [Contrast(lost(setting), 0.0, "higher") for setting in settings],
            ),
            Claim(
                f"CReLU and ReLU at a large rate, {data}",
                f"At a rate of {LARGE:g}, CReLU with half the units learns the last fifth of the tasks better than "
                "ReLU.",
                higher(HALF, RELU, [*map(partial(at, LARGE), settings)]),
            ),
        ],
    )


DIGITS, IMAGES = ("permuted", "labels"), ("pairs",)
STUDIES = [
    at_own_rates("plasticity", "digits", DIGITS),
    at_all_rates("plasticity-by-rate", "digits", DIGITS),
    at_own_rates("plasticity-pairs", "CIFAR-10", IMAGES),
    at_all_rates("plasticity-pairs-by-rate", "CIFAR-10", IMAGES),
]
