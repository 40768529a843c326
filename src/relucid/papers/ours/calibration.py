"""How often `improve` announces an improvement where there is none: every row is the same network, trained anew."""

from collections.abc import Mapping
from dataclasses import replace
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, pad

from relucid._improve import GIVEN, TRAINED, Improvement, improve
from relucid.studies import Column, Runner, Scale, Study, Table
from relucid.studies.compare import Comparison, compare, compare_share
from relucid.studies.expect import Claim, Derived, Statistic

FEATURES, UNITS, CLASSES, EXAMPLES = 8, 16, 4, 200
# From the mean of a class to that of all, in deviations: a quarter of the examples are misclassified.
APART = 1.8
STEPS, RATE = 60, 0.02  # of Adam, on all examples
SEEDS, SIZES = (2, 3, 4, 6, 8), (20, 100, 500, 2500)
ALLOWED = 5.0  # per cent
EXACT = "if given were exact"
Examples = tuple[Tensor, Tensor]


def run(config: Mapping[str, Any]) -> dict[str, float]:
    """Improve a network by a training that forgets it; 100 where that ends in "better", else 0."""
    found = improved(config)
    trained, given = (found.values(row).tolist() for row in (TRAINED, GIVEN))
    beyond = compare(trained, given[0])
    return {
        "better": 100.0 * found.better,
        "by training": 100.0 * (found.row == TRAINED),
        EXACT: 100.0 * (found.row not in (TRAINED, GIVEN) or (beyond is not None and beyond.high < 0)),
        "error": found.mean(TRAINED),
    }


def improved(config: Mapping[str, Any], steps: int = STEPS) -> Improvement:
    """What `improve` finds about a network that was trained for so many steps, if all rows are trained anew."""
    numbers = np.random.SeedSequence([config["draw"], config["seeds"], config["test"]])
    chance = torch.Generator().manual_seed(int(numbers.generate_state(1)[0]))
    train, test = examples(EXAMPLES, chance), examples(config["test"], chance)
    given = network(train, steps, chance)
    with TemporaryDirectory() as store:
        options = {"tries": ["crelu"], "seeds": config["seeds"], "store": store, "jobs": 1}
        return improve(given, (train, test), train=Forgetting(chance), **options)


def examples(count: int, chance: torch.Generator) -> Examples:
    """Draw inputs (count, features) around a corner for each class, and their classes (count,)."""
    classes = torch.randint(CLASSES, (count,), generator=chance)
    inputs = torch.randn(count, FEATURES, generator=chance)
    inputs[torch.arange(count), classes] += APART
    return inputs, classes


def network(data: Examples, steps: int, chance: torch.Generator) -> nn.Sequential:
    """Train a network from new weights."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(int(torch.randint(2**31, (), generator=chance)))
        made = nn.Sequential(nn.Linear(FEATURES, UNITS), nn.ReLU(), nn.Linear(UNITS, CLASSES))
    optimizer = torch.optim.Adam(made.parameters(), lr=RATE)
    for _ in range(steps):
        optimizer.zero_grad()
        cross_entropy(made(data[0]), data[1]).backward()
        optimizer.step()
    return made


class Forgetting:
    """A training that replaces any weights by those of a new network; of CReLU, the new phase is not read."""

    def __init__(self, chance: torch.Generator) -> None:
        self.chance = chance

    def __call__(self, given: nn.Module, data: Examples, seed: int) -> nn.Module:
        """The network with the new weights; the seed is not used, because all rows share it."""
        state = network(data, STEPS, self.chance).state_dict()
        for name, value in given.state_dict().items():
            state[name] = pad(state[name], (0, value.shape[-1] - state[name].shape[-1]))
        given.load_state_dict(state)
        return given


def shares(table: Table, metric: str = "better", /, **setting: int) -> list[float]:
    """The values of a metric, 0 or 100, of all runs with this setting."""
    return [run["metrics"][metric] for run in table.finished(**setting)]


def announced(table: Table) -> Comparison | None:
    """The share of improvements that were announced, minus the 5% that are allowed."""
    return compare_share(shares(table), ALLOWED)


def remark(table: Table) -> str:
    """State the share with its interval, what was announced, and what it would be by the rule before."""
    found = compare_share(shares(table), 0.0)
    if found is None:
        return ""
    better, training, exact = (
        sum(value > 0 for value in shares(table, name)) for name in ("better", "by training", EXACT)
    )
    return (
        f"{better} of {found.n} end in better: {found.effect:.1f}%, interval {found.low:.1f} to {found.high:.1f}; "
        f"{training} of them by training alone. If the one result of the given network counted as exact, "
        f"{exact} would."
    )


STUDY = Study(
    name="calibration",
    title="The share of improvements, in percent, that `improve` announces where every row is the same network",
    run=Runner("calibration", run),
    rows={f"{seeds} seeds": {"seeds": seeds} for seeds in SEEDS},
    columns={
        f"{size} test examples": Column("better", {"test": size}, summary="share", digits=0) for size in SIZES
    },
    scales={
        "full": Scale(seconds=6),
        "smoke": Scale(repeat={"draw": [0]}, rows={"2 seeds": {}}, seconds=2),
    },
    repeat={"draw": range(10)},
    protocol=(
        f"Each run draws {EXAMPLES} examples of {FEATURES} features in {CLASSES} classes, and test examples. The "
        "network as given, and those of all rows and seeds, are trained from new weights in the same way, so that "
        "nothing is better than anything else. What is announced is decided as by `relucid improve`."
    ),
    claims=(
        Claim(
            "improve, same networks",
            "Where every row is the same network, `improve` ends in better in fewer than 5% of all runs.",
            (Derived(Statistic("ends in better, % minus 5", announced), "lower"),),
            remark=remark,
            code=("relucid.improve",),
            tests=(
                "papers/ours/test_calibration.py::test_the_same_network_in_every_row_is_not_announced_as_better",
            ),
        ),
    ),
)
DEFAULT = f"{SEEDS[-1]} seeds"  # of `improve`
STUDIES = (
    STUDY,
    replace(
        STUDY,
        name="calibration-default",
        title=f"{STUDY.title}, with the {DEFAULT} that it takes by default",
        rows={DEFAULT: STUDY.rows[DEFAULT]},
        scales={
            "full": Scale(seconds=8),
            "smoke": Scale(repeat={"draw": [10]}, columns=["20 test examples"], seconds=4),
        },
        repeat={"draw": range(10, 60)},
        protocol=(
            f"{STUDY.protocol} Designed when 4 of the 40 runs with {DEFAULT} of calibration had ended in better, of "
            "other numbers of seeds 2 of 160: two hundred new draws, to see whether that was chance."
        ),
        claims=(
            replace(
                STUDY.claims[0],
                where=f"improve, same networks, {DEFAULT}",
                says=f"With {DEFAULT}, `improve` ends in better in fewer than 5% of runs if all rows are the same.",
            ),
        ),
    ),
)
