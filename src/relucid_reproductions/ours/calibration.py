"""How often `improve` announces an improvement where there is none: every row is the same network, trained again."""

from itertools import product
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, pad

from relucid._improve import GIVEN, TRAINED, Improvement, improve
from relucid.experiments import (
    Cell,
    Claim,
    Column,
    Comparison,
    Contrast,
    Quantity,
    Results,
    Scale,
    Study,
    compare,
    compare_shares,
    runner,
)

FEATURES, UNITS, CLASSES, EXAMPLES = 8, 16, 4, 200
# From the mean of a class to that of all, in deviations: a quarter of the examples are misclassified.
APART = 1.8
STEPS, RATE = 60, 0.02  # of Adam, on all examples
SEEDS, SIZES = (2, 3, 4, 6, 8), (20, 100, 500, 2500)
ALLOWED = 5.0  # per cent
BETTER, BY_TRAINING, EXACT = "better", "by training", "if given were exact"
Examples = tuple[Tensor, Tensor]


@runner("calibration")
def run(seeds: int, test: int, draw: int) -> dict[str, float]:
    """Improve a network by a training that forgets it; 100 where that ends in "better", else 0."""
    outcome = improved(seeds, test, draw)
    alone = compare(outcome.values(TRAINED), float(outcome.values(GIVEN).iloc[0]))
    beyond = alone is not None and alone.interval(0.95)[1] < 0
    return {
        BETTER: 100.0 * outcome.better,
        BY_TRAINING: 100.0 * (outcome.row == TRAINED),
        EXACT: 100.0 * (outcome.row not in (TRAINED, GIVEN) or beyond),
        "error": outcome.mean(TRAINED),
    }


def improved(seeds: int, test: int, draw: int, steps: int = STEPS) -> Improvement:
    """What `improve` finds about a network that was trained for so many steps, if all rows are trained again."""
    numbers = np.random.SeedSequence([draw, seeds, test])
    chance = torch.Generator().manual_seed(int(numbers.generate_state(1)[0]))
    data = examples(EXAMPLES, chance), examples(test, chance)
    given = network(data[0], steps, chance)
    with TemporaryDirectory() as store:
        options: dict[str, Any] = {"tries": ["crelu"], "seeds": seeds, "store": store, "jobs": 1}
        return improve(given, data, train=Forgetting(chance), **options)


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
        with torch.no_grad():
            for name, parameter in given.named_parameters():
                parameter.copy_(pad(state[name], (0, parameter.shape[-1] - state[name].shape[-1])))
        return given


def announced(*shares: pd.Series) -> Comparison | None:
    """The share of improvements that were announced, minus the 5% that are allowed."""
    return compare_shares(pd.concat(shares), ALLOWED)


def shares(results: Results, metric: str = BETTER, **setting: int) -> pd.Series:
    """The values of a metric, 0 or 100, of all finished runs with this setting."""
    records = (record for record in results.records.values() if record["state"] == "finished")
    of_setting = {run["key"]: run for run in records if setting.items() <= run["config"].items()}
    return pd.Series({key: run["metrics"][metric] for key, run in of_setting.items()}, dtype=float)


ROWS = {f"{seeds} seeds": {"seeds": seeds} for seeds in SEEDS}
COLUMNS = {f"{size} test examples": Column(BETTER, {"test": size}, share=True, digits=0) for size in SIZES}
TITLE = "The share of improvements, in percent, that `improve` announces where every row is the same network"
DEFAULT = f"{SEEDS[-1]} seeds"  # of `improve`


def fewer_than_allowed(where: str, says: str, rows: Any) -> Claim:
    """The claim that improvements are announced in fewer than 5% of the runs in these rows."""
    cells = [Cell(*cell) for cell in product(rows, COLUMNS)]
    return Claim(
        where, says, [Contrast(Quantity("ends in better, % minus 5", cells, announced), 0.0, "lower")]
    )


CALIBRATION = Study(
    "calibration",
    TITLE,
    run,
    ROWS,
    COLUMNS,
    {"full": Scale(), "smoke": Scale(repeat={"draw": [0]}, rows={"2 seeds": {}})},
    repeat={"draw": range(10)},
    paired=False,
    claims=[
        fewer_than_allowed(
            "improve, same networks",
            "Where every row is the same network, `improve` ends in better in fewer than 5% of all runs.",
            ROWS,
        )
    ],
)
STUDIES = [
    CALIBRATION,
    CALIBRATION.variant(
        "calibration-default",
        f"{TITLE}, with the {DEFAULT} that it takes by default",
        rows={DEFAULT: ROWS[DEFAULT]},
        scales={"full": Scale(), "smoke": Scale(repeat={"draw": [10]}, columns=["20 test examples"])},
        repeat={"draw": range(10, 60)},
        claims=[
            fewer_than_allowed(
                f"improve, same networks, {DEFAULT}",
                f"With {DEFAULT}, `improve` ends in better in fewer than 5% of runs if all rows are the same.",
                [DEFAULT],
            )
        ],
    ),
]
