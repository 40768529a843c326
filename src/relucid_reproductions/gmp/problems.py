"""The small problems of gmp (Fig. 2, Fig. 3, Table 3), and how networks with one hidden layer are trained on them."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn.functional import l1_loss, mse_loss

from relucid.data import Data, Split, banana, holdout, levy, moments, uci
from relucid.data.tables import UCI
from relucid.experiments import Claim, Study
from relucid.models import create
from relucid.train import Ensemble, Plateau, ensemble
from relucid.train._ensemble import Observer
from relucid.train.measure import LOSSES, Loss, measures

METHODS = ("SP", "WN", "BN", "GmP")
OTHERS = METHODS[:3]
RATES = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3)  # gmp C.3: the grid that rates are chosen from
BEST_RATES = {"SP": 0.01, "WN": 0.01, "BN": 0.01, "GmP": 0.1}  # gmp C.3: the chosen rates
SHARE = 0.2  # of the training split, held out for validation

StopOn = Literal["train", "validation", "test"]
# The lengths of Glorot's weights, as in the authors' runs, or r = 1 (gmp 4.3).
ScaleInit = Literal["glorot", "one"]


def rmse(outputs: Tensor, targets: Tensor) -> Tensor:
    """The root of the mean squared error."""
    return mse_loss(outputs, targets).sqrt()


def error_rate(outputs: Tensor, targets: Tensor) -> Tensor:
    """The percentage of wrong classes, from logits (N, 1)."""
    return measures("bce", outputs, targets)["error"]


@dataclass(frozen=True)
class Problem:
    """Data and the recipe for it; where the paper is silent, as in its authors' published runs."""

    load: Callable[[int], Data[Split]]  # the data, split by a number
    loss: Loss
    measure: Loss  # is reported, and decides when to stop unless `monitor` or the training loss does
    epochs: int
    plateau: Plateau
    units: int = 100
    batch_size: int | None = None
    standardize: bool = True
    dtype: torch.dtype = torch.float64
    monitor: Loss | None = None


PROBLEMS = {
    # gmp C.3 says full batch; the authors' batches of 1024 are smaller than power and wine.
    # float32 takes half the time of float64, and changes means by at most a quarter of their standard error (yacht).
    **{
        name: Problem(partial(uci, name), l1_loss, rmse, 5000, Plateau(50, 100), dtype=torch.float32)
        for name in UCI
    },
    "levy": Problem(
        lambda seed: levy(seed=seed), l1_loss, rmse, 10_000, Plateau(500, 1000), standardize=False
    ),
    # gmp Fig. 3 has 10 units; the 100 in the text is a slip.
    "banana": Problem(
        lambda seed: banana(seed=seed), LOSSES["bce"], error_rate, 5000, Plateau(50, 100), 10, 128
    ),
}


@dataclass(frozen=True, eq=False)
class Trials:
    """Networks of one parameterization on a problem, with the splits to train, monitor and test each of them.

    Args:
        problem: what they learn.
        networks: M networks.
        train: M splits.
        monitor: M splits; the error on them decides when the rate drops, when training ends and which weights are
            kept. None if the training loss decides.
        test: M splits.
    """

    problem: Problem
    networks: list[nn.Module]
    train: list[Split]
    monitor: list[Split] | None
    test: list[Split]

    def learn(
        self, rates: Sequence[float], epochs: int | None = None, observe: Observer | None = None
    ) -> Ensemble:
        """Train all of them at once for at most ``epochs`` epochs, by default the problem's."""
        problem = self.problem
        return ensemble(
            self.networks,
            self.train,
            self.monitor,
            rates=rates,
            epochs=epochs or problem.epochs,
            loss=problem.loss,
            measure=problem.monitor or problem.measure,
            plateau=problem.plateau,
            batch_size=problem.batch_size,
            observe=observe,
        )

    @torch.no_grad()
    def errors(self) -> Tensor:
        """The errors on their test splits, (M,)."""
        pairs = zip(self.networks, self.test, strict=True)
        return torch.stack(
            [self.problem.measure(net.eval()(part.inputs), part.targets) for net, part in pairs]
        )


def with_r_one(study: Study, rows: Mapping[str, Mapping[str, Any]], claims: Sequence[Claim]) -> Study:
    """The study with r = 1 at the start under GmP, as gmp 4.3 says; the runs of the other rows are the same."""
    return study.variant(
        f"{study.name}-one",
        f"{study.title}, with r = 1 at the start under GmP",
        rows={
            row: {**config, "init": "one"} if config["method"] == "GmP" else config
            for row, config in rows.items()
        },
        claims=[replace(claim, where=f"{claim.where}, r = 1") for claim in claims],
    )


def as_the_authors(problem: Problem) -> Problem:
    """The problem with the precision, batches and schedule of the authors' own runs."""
    return replace(
        problem,
        dtype=torch.float64,
        batch_size=1024,
        plateau=replace(problem.plateau, threshold=1e-4),
        monitor=mse_loss,  # its root is reported
    )


def trials(
    problem: Problem,
    method: str,
    splits: Sequence[int],
    stop_on: StopOn,
    authors: bool = False,
    init: ScaleInit = "glorot",
) -> Trials:
    """Build a new network for each split; a split's number also seeds the initial weights.

    Args:
        problem: what they learn.
        method: one of `METHODS`.
        splits: the numbers of the splits.
        stop_on: what decides when to stop: "test" as in the authors' runs, "validation" for a fifth of the training
            split, "train" for the training loss.
        authors: use the authors' initial weights and norms.
        init: what GmP's scales begin with.
    """
    parts = {split: _parts(problem, split, stop_on) for split in set(splits)}
    train, monitor, test = (list(kind) for kind in zip(*(parts[split] for split in splits), strict=True))
    features = train[0].inputs.shape[1]
    networks = []
    for split in splits:
        torch.manual_seed(split)
        networks.append(network(method, features, problem.units, authors, init).to(problem.dtype))
    return Trials(problem, networks, train, None if stop_on == "train" else monitor, test)


def network(
    method: str, features: int, units: int, authors: bool = False, init: ScaleInit = "glorot"
) -> nn.Module:
    """Build a network with one hidden layer and one output."""
    name = f"gmp/mlp1-{method.lower()}{'-authors' if authors else ''}"
    lengths: Literal["glorot"] | None = None if authors or init == "one" else "glorot"
    return create(name, num_classes=1, in_channels=features, hidden=(units,), init=lengths).double()


def _parts(problem: Problem, split: int, stop_on: StopOn) -> tuple[Split, Split, Split]:
    """The splits to train on, to decide when to stop, and to test on."""
    data = problem.load(split)
    rest, held = holdout(data.train, SHARE, split) if stop_on == "validation" else (data.train, data.test)
    normal = moments(rest)

    def prepared(part: Split) -> Split:
        inputs = normal.normalize(part.inputs) if problem.standardize else part.inputs
        targets = part.targets.to(problem.dtype) if part.targets.is_floating_point() else part.targets
        return Split(inputs.to(problem.dtype), targets)

    return prepared(rest), prepared(held), prepared(data.test)
