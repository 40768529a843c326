"""Improvement of a network: examine it, convert it, train it further beside fair controls, compare, return the best.

An improvement is a study: its rows are treatments of the network, all trained in the same way, each repetition on the
same data.
"""

import sys
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import asdict, dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from relucid._improve._improvement import DEAD, GIVEN, SCRATCH, TRAINED, Improvement
from relucid._improve._metrics import Measure
from relucid._improve._task import RECIPE, Task, Train, task
from relucid._improve._treatments import Treatment
from relucid.conversions import CONVERSIONS, IMPROVING
from relucid.convert import ConversionError
from relucid.experiments import Column, Results, Run, Runner, Store, Study
from relucid.experiments import run as execute
from relucid.experiments._execute import Report
from relucid.experiments._executors import using
from relucid.experiments._store import default_store
from relucid.experiments._study import named
from relucid.files import replacing
from relucid.inspect import Examination, examine
from relucid.models import count_parameters
from relucid.train import Machine, Recipe, fit
from relucid.train.measure import Loss

FIRST = 0  # the seed of the network that is returned, fixed before anything is measured
VERSION = 4
FEW = 3  # seeds below which only very large differences are found
UNFAIR = "the comparison is fair only with a test part that the network has not seen"


@dataclass(frozen=True, eq=False)
class Project:
    """The plan of an improvement: what to try on a network.

    Args:
        task: the network, its data, training and metric.
        examination: the examination of the network.
        treatments: row -> what is done to the network before further training.
        left_out: conversion or control -> why it is not tried.
        study: the runs.
    """

    task: Task
    examination: Examination
    treatments: Mapping[str, Treatment]
    left_out: Mapping[str, str]
    study: Study
    store: Path

    @cached_property
    def runs(self) -> list[Run]:
        """The runs of the study."""
        return self.study.runs()

    @property
    def protocol(self) -> str:
        """How rows are trained, tested and compared, in sentences."""
        parts, training = self.task.parts, self.task.training
        if parts is None:
            tested = "Training and testing are your own functions; a seed is what your training makes of it"
        elif self.task.resplit:
            tested = f"Of {len(parts):,} examples, a seed decides which fifth to test on, known to the network or not"
        else:
            tested = (
                f"There are {len(parts.train):,} examples to train on and {len(parts.test):,} to test on, the same for "
                "all seeds: the intervals do not allow for another choice of them. A seed decides their order"
            )
        return (
            f"{training} {tested}, and redrawn parameters; rows are compared seed by seed with training alone. The "
            "network that is returned is the one of the first seed, which was fixed before anything was measured. If "
            "the network has been trained on these data before, that favours rows that keep its weights."
        )

    @property
    def cautions(self) -> list[str]:
        """Why not to take the results at face value, in sentences."""
        seeds = len(self.study.repeat["seed"])
        if seeds >= FEW:
            return self.task.cautions
        few = f"With {seeds} seeds, only very large differences can be told from chance: 8 or more find smaller ones."
        return [few, *self.task.cautions]

    @property
    def column(self) -> str:
        """The deciding column."""
        return next(iter(self.study.columns))

    def seconds(self) -> dict[str, float] | None:
        """Row -> about how long a run takes on one core here, from a few batches; None for the user's own training."""
        if not isinstance(self.task.train, Recipe):
            return None
        recipe, (part, _), seconds = self.task.train, self.task.split(FIRST), {GIVEN: 1.0}
        few = part.take(range(min(len(part), 4 * (recipe.batch_size or len(part)))))
        for row, treatment in self.treatments.items():
            took = []
            for epochs in (1, 3):
                network = treatment.apply(self.task.network, self.task.example, self.task.watched()).model
                begin = time.perf_counter()
                with using(1):
                    called = self.task.called(network)
                    fit(called, few, replace(recipe, epochs=epochs), seed=0, machine=Machine())
                took.append(time.perf_counter() - begin)
            seconds[row] = took[0] + recipe.epochs * max(0.0, took[1] - took[0]) / 2 * len(part) / len(few)
        return seconds

    def missing(self) -> list[Run]:
        """The runs that have no result yet."""
        if not self.store.exists():
            return self.runs
        with Store(self.store, create=False) as results:
            return [run for run in self.runs if results.get(run.key, {}).get("state") in (None, "failed")]

    def run(self, **where: Any) -> "Improvement":
        """Execute the missing runs, and conclude; arguments as for `relucid.experiments.run`."""
        return self.concluded(execute(self.study, store=self.store, retry=True, **where))

    def concluded(self, results: Results) -> "Improvement":
        """Compare the rows, and load the network of the best one; all runs must have been done."""
        if not len(results[TRAINED, self.column]):
            failed = [record["error"] for record in results.records.values() if record.get("error")]
            reason = failed[0].strip().splitlines()[-1] if failed else "the training diverged"
            raise ValueError(f"the network cannot be trained further: {reason}")
        result = Improvement(self, results, Treatment().apply(self.task.network, None, []))
        if result.row == GIVEN:
            return result
        treatment, task = self.treatments[result.row], self.task
        converted = treatment.apply(task.network, task.example, task.watched(), FIRST)
        file = _weights(self.store, self.first(result.row))
        if not file.is_file():
            raise ValueError(
                f"{file} is missing, the weights of {result.row}: name another --store to train again"
            )
        converted.model.load_state_dict(torch.load(file, weights_only=True))
        return replace(result, conversion=converted)

    def first(self, row: str) -> str:
        """The key of the run of a row with the first seed."""
        return next(
            planned.run.key
            for planned in self.study.plan()
            if planned.row == row and planned.run.config["seed"] == FIRST
        )


def improve(
    model: nn.Module | Callable[[], nn.Module],
    data: Any,
    *,
    train: Train | None = None,
    metric: str | Measure | None = None,
    higher: bool = False,
    example: Any = None,
    target: str | None = None,
    size: int | None = None,
    tries: Sequence[str] | None = None,
    loss: str | Loss | None = None,
    recipe: Recipe = RECIPE,
    seeds: int = 8,
    store: str | Path | None = None,
    jobs: int | None = None,
    executor: str | Executor = "local",
    machine: Machine | None = None,
    name: str | None = None,
    report: Report | None = None,
) -> Improvement:
    """Improve a network by conversion and further training; return the best one, and how much better it is.

    The network is examined; then the network itself, every conversion and the controls are trained further, several
    times each, and compared. You may kill it and call it again: finished runs are kept in the store.

    Give a test part that the network has not seen: without one, every seed tests on a fifth of the data, there is a
    warning that the network may know them, and nothing is compared with a network from scratch.

    Args:
        model: a network with its weights, or a function that returns it.
        data: in any form that `relucid.data.as_data` takes, as the network takes them; or whatever your own `train`
            and `metric` take: of a pair, the first is for `train` and the second for `metric`.
        train: your own training: a function of a network, data and a seed that trains the network and returns it.
        metric: "error", "rmse", "loss", "f1" or "auc"; or your own, a function of a network and data that returns a
            number, or a dict of numbers, the first of which is the primary metric. By default what suits the loss.
        higher: whether higher values of your own metric are better.
        example: some inputs of the network, if they cannot be read from the data.
        target: for a CSV file, the column to predict.
        size: for a folder of images of several sizes, the size to scale and cut them to.
        tries: conversions out of "crelu", "merge", "geometric" and "heavy-ball"; by default those that the examination
            suggests, or "crelu" if it suggests none.
        loss: a name, or a function of outputs and targets, which then also decides; by default what suits them.
        recipe: how to train further; by default 30 epochs of Adam at a rate of 0.001, in batches of 64.
        seeds: repetitions; each has its own order of examples and random numbers.
        store: directory of the results.
        jobs: runs at a time.
        executor: where to run, see `relucid.experiments.run`.
        machine: workers, compilation and the like of our own training.
        name: what to call the network.
        report: called with every run that ends; by default, progress is shown on a terminal and in a notebook.
    """
    whole = project(
        task(
            model,
            data,
            train=train,
            metric=metric,
            higher=higher,
            example=example,
            target=target,
            size=size,
            loss=loss,
            recipe=recipe,
            name=name,
        ),
        tries,
        seeds,
        store,
    )
    for caution in whole.cautions:
        warnings.warn(caution, stacklevel=2)
    return whole.run(jobs=jobs, executor=executor, machine=machine, report=report or _progress(whole))


def project(
    whole: Task, tries: Sequence[str] | None = None, seeds: int = 8, store: str | Path | None = None
) -> Project:
    """Plan what to try on a network: the named or suggested conversions, and the controls."""
    if seeds < 2:
        raise ValueError(f"seeds={seeds} is too few: a comparison takes 2 or more")
    examination = examine(whole.network, whole.example, whole.watched())
    treatments, left_out, sizes = {TRAINED: Treatment()}, {}, {}
    for name, treatment in _wanted(examination, tries).items():
        label = CONVERSIONS[name].label
        try:
            converted = treatment.apply(whole.network, whole.example, whole.watched())
        except (ConversionError, ValueError) as error:
            left_out[label] = str(error)
            continue
        treatments[label], sizes[label] = treatment, count_parameters(converted.model)
    if any(finding.kind == "dead" for finding in examination.findings):
        treatments[DEAD] = Treatment(draw="dead")
    if len(treatments) == 1:
        reasons = "; ".join(f"{label}: {reason}" for label, reason in left_out.items())
        raise ValueError(f"there is nothing to compare with further training. {reasons}")
    if whole.resplit:
        left_out[f"Training {SCRATCH}"] = UNFAIR
    else:
        treatments[SCRATCH] = Treatment(draw="all")
        largest = max(sizes, key=lambda row: sizes[row], default=None)
        if largest is not None and sizes[largest] != count_parameters(whole.network):
            treatments[f"{largest} {SCRATCH}"] = replace(treatments[largest], draw="all")
    place = Path(store or default_store()).absolute()
    whole = replace(whole, store=place)
    return Project(whole, examination, treatments, left_out, _study(whole, treatments, seeds), place)


def _wanted(examination: Examination, tries: Sequence[str] | None) -> dict[str, Treatment]:
    """The conversions to try: the named ones on all layers, or the suggested ones on the suggested layers."""
    if tries is not None:
        for name in tries:
            named(name, dict.fromkeys(IMPROVING), "conversion")
        return {name: Treatment(name) for name in tries}
    suggested = {
        suggestion.name: Treatment(suggestion.name, suggestion.layers)
        for suggestion in examination.suggestions()
    }
    return suggested or {"crelu": Treatment("crelu")}


def _study(whole: Task, treatments: Mapping[str, Treatment], seeds: int) -> Study:
    first = whole.measured(whole.network, FIRST)
    decides, *others = first
    best = "highest" if whole.metric.higher else "lowest"
    given = {} if whole.resplit else {"seed": FIRST}  # without another test part, the result is the same
    return Study(
        name="improve",
        title=f"{whole.name}, changed and trained further",
        run=Runner("improve", partial(_run, whole), VERSION),
        rows={
            GIVEN: {"start": None, **given},
            **{row: {"start": asdict(treatment)} for row, treatment in treatments.items()},
        },
        columns={
            f"test {decides}": Column(decides, best=best),  # type: ignore[arg-type]
            **{f"test {name}": Column(name, best=None) for name in others},
            "parameters": Column("parameters", best=None, digits=0),
        },
        config=whole.configuration(),
        repeat={"seed": range(seeds)},
    )


def _run(whole: Task, machine: Machine, **config: Any) -> dict[str, Any]:
    """Train one network further, and measure it; the weights of the first seed are kept in a file of the store."""
    seed, network = config["seed"], whole.network
    history: dict[str, list[float]] = {}
    if config["start"] is not None:
        network = Treatment(**config["start"]).apply(network, whole.example, whole.watched(), seed).model
        network, history = whole.trained(network, seed, machine)
        if seed == FIRST and whole.store is not None:
            _keep(network, _weights(whole.store, Run("improve", config, VERSION).key))
    measured = {**whole.measured(network, seed), "parameters": float(count_parameters(network))}
    return measured | {"history": history}


def _weights(store: Path, key: str) -> Path:
    """The file for the weights of a run."""
    return store / "networks" / f"{key}.pt"


def _keep(network: nn.Module, path: Path) -> None:
    state = {
        n: v.detach().cpu().clone() if isinstance(v, Tensor) else v for n, v in network.state_dict().items()
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as new:
        torch.save(state, new)


def _progress(whole: Project) -> Report:
    """A function that shows how many runs have ended: on a terminal and in a notebook, nowhere else."""
    if not (sys.stderr.isatty() or "ipykernel" in sys.modules):
        return lambda run, outcome: None
    total, ended = len(whole.runs), iter(range(1, sys.maxsize))
    decides = whole.column
    print(
        f"{whole.task.training} Judged by: {decides}. Rows: {'; '.join(whole.study.rows)}.", file=sys.stderr
    )

    def show(*_: Any) -> None:
        done = next(ended)
        print(f"\r{done} of {total} runs", end="\n" if done == total else "", file=sys.stderr, flush=True)

    return show
