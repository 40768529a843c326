"""Improvement of a network: examine it, convert it, train it further beside fair controls, compare, return the best.

An improvement is a study: its rows are starting points, all trained by one recipe, each repetition on the same data.
"""

import math
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from relucid.convert import ConversionError
from relucid.data import Split
from relucid.inspect import Examination, examine
from relucid.printing import Summarized, counted
from relucid.studies.compare import HOLDS
from relucid.studies.executors import using
from relucid.studies.expect import Claim, Lower, Place
from relucid.studies.judge import Judged
from relucid.studies.run import Report, Result, default_store, run
from relucid.studies.runner import Runner
from relucid.studies.starts import CONVERSIONS, LABELS, Start, dead_units, start
from relucid.studies.study import Column, Study, named
from relucid.studies.subject import MEASURES, RECIPE, Subject, subject
from relucid.studies.table import Table, table
from relucid.train import Fitted, Machine, Recipe, fit

UNCHANGED, DEAD, SCRATCH = "unchanged", "dead units re-initialised", "as many parameters, from scratch"
BETTER, FAIR = "better than unchanged", "better than the controls"
BATCHES = 4  # to time a recipe by
UNFAIR = "the comparison is fair only with a test split that the network has not seen"


@dataclass(frozen=True, eq=False)
class Project:
    """The plan of an improvement: what to try on a network.

    Args:
        subject: the network, its data and recipe.
        examination: the examination of the network.
        starts: row -> the starting point of training.
        left_out: conversion or control -> why it is not tried.
        study: the runs, and the claims about them.
    """

    subject: Subject
    examination: Examination
    starts: Mapping[str, Start]
    left_out: Mapping[str, str]
    study: Study

    @property
    def column(self) -> str:
        """The deciding column."""
        return f"test {MEASURES[self.subject.measure]}"

    def seconds(self) -> dict[str, float]:
        """Row -> about how long one of its runs takes on one core here, from a few batches of training."""
        whole, found = self.subject, {}
        rest, _, _ = whole.parts(0)
        few = rest.take(range(min(len(rest), BATCHES * (whole.recipe.batch_size or len(rest)))))
        for row, how in self.starts.items():
            with using(1):
                begun = start(how, whole.network, whole.example, whole.watched)
                once, thrice = (_seconds(begun.network, few, whole.recipe, epochs) for epochs in (1, 3))
            epoch = max(0.0, thrice - once) / 2 * len(rest) / len(few)
            found[row] = once + whole.recipe.epochs * epoch
        return found

    def concluded(self, store: str | Path | None = None) -> "Improvement":
        """Draw the conclusion and train the best network once more; all runs must have been done."""
        found = table(self.study, store=store or default_store())
        row = _chosen(found, self.column)
        record = min(found.behind(row), key=lambda each: each["metrics"]["held_out"])
        with using(1):
            fitted, again = train_on(self.subject, record["config"], Machine())
        network = fitted.network.cpu().eval()
        exact = again.metrics["error"] == record["metrics"]["error"]
        return Improvement(self, found, row, record["config"]["seed"], network, dict(again.metrics), exact)


@dataclass(frozen=True, eq=False)
class Improvement(Summarized):
    """The result of an improvement; prints as its summary.

    Args:
        project: what was tried.
        table: the study's results.
        row: the row of the returned network.
        seed: the seed of its run.
        network: the trained network, in evaluation mode.
        metrics: its metrics.
        exact: whether training it once more gave exactly the recorded error.
    """

    project: Project
    table: Table
    row: str
    seed: int
    network: nn.Module
    metrics: Mapping[str, Any]
    exact: bool

    @property
    def better(self) -> bool:
        """Whether anything was significantly better than the unchanged network."""
        return self.row != UNCHANGED

    @cached_property
    def against_unchanged(self) -> dict[str, Judged]:
        """Row -> how it compares with the unchanged network."""
        return _by_row(self.table)

    def __repr__(self) -> str:
        return f"<Improvement of {self.project.subject.name}: {self.row}; print it for the comparison>"

    def summary(self) -> str:
        """The headline, what was left out, and the table."""
        left_out = [f"{what} is left out: {why}" for what, why in self.project.left_out.items()]
        return "\n".join([self.headline(), *left_out, "", self.table.summary()])

    def headline(self) -> str:
        """State the result in a sentence or two, and why not to take it at face value."""
        return " ".join(filter(None, (self._finding(), self.project.subject.caution)))

    def _finding(self) -> str:
        name, column = self.project.subject.name, self.project.column
        base = _mean(self.table, UNCHANGED, column)
        if not self.better:
            gaps = [each.found.detectable for each in self.against_unchanged.values() if each.found]
            told = gaps and math.isfinite(max(gaps))
            able = f" A difference of {_number(max(gaps))} would have been found." if told else ""
            tried = ", ".join(row for row in self.table.study.rows if row != UNCHANGED) or "nothing"
            return (
                f"Nothing that was tried ({tried}) is better, beyond chance, than {name} unchanged and trained "
                f"further, which has {_told(column, base)}.{able}"
            )
        judged = self.against_unchanged[self.row]
        assert judged.found is not None
        wins, seeds = _wins(self.table, self.row, column)
        effect, low, high = (
            _number(-each) for each in (judged.found.effect, judged.found.high, judged.found.low)
        )
        return (
            f"{name} with {self.row}, trained further, has {_told(column, _mean(self.table, self.row, column))}; "
            f"unchanged and trained further, it has {_told(column, base)}. That is {effect} less "
            f"({judged.found.confidence} interval {low} to {high}); it is lower in {wins} of {seeds} seeds."
        )

    def save(self, directory: str | Path) -> None:
        """Write the network and the page into a directory, which must not exist; see `relucid.report.improvement`."""
        from relucid.report.handover import save

        save(self, Path(directory))


def improve(
    model: nn.Module | Callable[[], nn.Module],
    data: Any,
    *,
    target: str | None = None,
    tries: Sequence[str] | None = None,
    loss: str | Callable[[Tensor, Tensor], Tensor] | None = None,
    recipe: Recipe = RECIPE,
    seeds: int = 8,
    store: str | Path | None = None,
    jobs: int | None = None,
    backend: str = "local",
    name: str | None = None,
    report: Report | None = None,
) -> Improvement:
    """Improve a network by conversion and further training; return the best one, and how much better it is.

    The network is examined; then the unchanged network, every conversion and the controls are trained further, several
    times each, and compared. You may kill it and call it again: finished runs are kept in the store.

    Give a test split that the network has not seen: without one, every seed tests on a fifth of the data, there is a
    warning that the network may know them, and nothing is compared with a network from scratch.

    Args:
        model: a network with its weights, or a function that returns it.
        data: in any form that `relucid.data.as_data` takes, as the network takes them.
        target: for a CSV file, the column to predict.
        tries: conversions out of "crelu", "merge", "geometric" and "heavy-ball"; by default those that the examination
            suggests, or "crelu" if it suggests none.
        loss: a name, or a function of outputs and targets; by default what suits them.
        recipe: how to train further; by default 30 epochs of Adam at a rate of 0.001, in batches of 64.
        seeds: repetitions; each has its own held-out data, order of examples and random numbers.
        store: directory of the results.
        jobs: runs at a time.
        backend: where to run, see `relucid.studies.run`.
        name: what to call the network.
        report: called with every run that ends.
    """
    whole = project(subject(model, data, target=target, loss=loss, recipe=recipe, name=name), tries, seeds)
    if whole.subject.caution:
        warnings.warn(whole.subject.caution, stacklevel=2)
    run(whole.study, store=store, jobs=jobs, backend=backend, report=report)
    return whole.concluded(store)


def project(whole: Subject, tries: Sequence[str] | None = None, seeds: int = 8) -> Project:
    """Plan what to try on a network: the named or suggested conversions, and the controls."""
    if seeds < 2:
        raise ValueError(f"seeds={seeds} is too few: a comparison takes 2 or more")
    found = examine(whole.network, whole.example, [whole.watched])
    wanted = _wanted(found, tries)
    starts, left_out, sizes = {UNCHANGED: Start()}, {}, {UNCHANGED: _size(whole.network)}
    for name, how in wanted.items():
        try:
            begun = start(how, whole.network, whole.example, whole.watched)
        except (ConversionError, ValueError) as error:
            left_out[LABELS[name]] = str(error)
            continue
        starts[LABELS[name]], sizes[LABELS[name]] = how, _size(begun.network)
    if dead_units(found):
        starts[DEAD] = Start(draw="dead")
    if len(starts) == 1:
        said = "; ".join(f"{label}: {reason}" for label, reason in left_out.items())
        raise ValueError(f"there is nothing to compare with the unchanged network. {said}")
    largest = max(sizes, key=lambda row: sizes[row])
    if len(sizes) > 1 and whole.resplit:
        left_out[SCRATCH] = UNFAIR
    elif len(sizes) > 1:
        starts[SCRATCH] = replace(starts[largest], draw="all")
    return Project(whole, found, starts, left_out, _study(whole, starts, seeds))


def _wanted(found: Examination, tries: Sequence[str] | None) -> dict[str, Start]:
    """The conversions to try: the named ones on all layers, or the suggested ones on the suggested layers."""
    if tries is not None:
        return {name: Start(name) for name in tries if named(name, CONVERSIONS, "conversion")}
    suggested = {each.name: Start(each.name, each.layers) for each in found.suggestions()}
    return suggested or {"crelu": Start("crelu")}


def _size(network: nn.Module) -> int:
    return sum(parameter.numel() for parameter in network.parameters())


def _study(whole: Subject, starts: Mapping[str, Start], seeds: int) -> Study:
    measure = MEASURES[whole.measure]
    controls = tuple(row for row in starts if row in (DEAD, SCRATCH))
    tried = tuple(row for row in starts if row not in (UNCHANGED, *controls))
    column = f"test {measure}"
    others = (*tried, *controls)
    claims = [
        Claim(
            BETTER,
            "It ends up better than the unchanged network trained further.",
            (Lower(others, than=UNCHANGED, columns=column),),
        )
    ] * bool(others)
    claims += [
        Claim(
            FAIR, "Conversion gains more than the controls.", (Lower(tried, than=controls, columns=column),)
        )
    ] * bool(tried and controls)
    return Study(
        name="improve",
        title=f"{whole.name}, changed and trained further",
        run=Runner("improve", partial(_measured, whole)),
        rows={row: {"start": how.to_dict()} for row, how in starts.items()},
        columns={
            column: Column("error"),
            f"held-out {measure}": Column("held_out", best=None),
            "parameters": Column("parameters", best=None, digits=0),
            "moved 10⁻⁶": Column("moved", best=None, digits=1),
        },
        config=whole.configuration(),
        repeat={"seed": range(seeds)},
        protocol=_protocol(whole),
        baseline=UNCHANGED,
        paired=True,
        claims=tuple(claims),
    )


def _protocol(whole: Subject) -> str:
    recipe = whole.recipe
    loss = recipe.loss if isinstance(recipe.loss, str) else getattr(recipe.loss, "__name__", "own loss")
    counts = len(whole.data.train), len(whole.data.test)
    tested = (
        f"Of {sum(counts)} examples, a seed decides which fifth to test on, known to the network or not, which fifth "
        "of the others to hold out"
        if whole.resplit
        else f"There are {counts[0]} examples to train on and {counts[1]} to test on, the same for all seeds: the "
        "intervals do not allow for another choice of them. A seed decides which fifth of the former to hold out"
    )
    return (
        f"Every row is trained further by one recipe: {recipe.optimizer}, rate {recipe.lr:g}, "
        f"{counted(recipe.epochs, 'epoch')}, batches of {recipe.batch_size or 'all examples'}, {loss}. {tested}, the "
        "order of the rest, and redrawn parameters; rows are compared seed by seed. The returned network is the one "
        "with the lowest held-out error, among the rows with a significantly lower test error than unchanged. If the "
        "network has been trained on these data before, that favours rows that keep its weights: compare test errors "
        "with a network from scratch. Moved: how far the conversion moved an output at most, before training."
    )


def _measured(whole: Subject, config: Mapping[str, Any], machine: Machine) -> Result:
    """Execute one run."""
    return train_on(whole, config, machine)[1]


def train_on(whole: Subject, config: Mapping[str, Any], machine: Machine) -> tuple[Fitted, Result]:
    """Train the network of one run further; return it with its measurements."""
    seed = config["seed"]
    begun = start(Start(**config["start"]), whole.network, whole.example, whole.watched, seed)
    rest, held, test = whole.parts(seed)
    fitted = fit(begun.network, rest, whole.recipe, seed=seed, machine=machine)
    metrics = {
        "error": measured(fitted, test, whole.measure),
        "held_out": measured(fitted, held, whole.measure),
        "parameters": float(_size(begun.network)),
        "moved": 1e6 * begun.difference,
    }
    history = {name: values for name, values in fitted.history.items() if name not in ("lr", "train_error5")}
    return fitted, Result(metrics, history)


def _seconds(network: nn.Module, examples: Split, recipe: Recipe, epochs: int) -> float:
    begin = time.perf_counter()
    fit(deepcopy(network), examples, replace(recipe, epochs=epochs), seed=0, machine=Machine())
    return time.perf_counter() - begin


def measured(fitted: Fitted, examples: Any, measure: str) -> float:
    """The error in percent, the root of the squared error, or the loss."""
    value = fitted.evaluate(examples)[measure]
    if measure == "error":
        # A count, of which float32 has kept seven digits: exact again, so that equal differences compare as equal.
        count = examples.targets.numel()
        exact = 100 * round(value / 100 * count) / count
        return exact if math.isclose(exact, value, rel_tol=1e-5) else value
    return math.sqrt(value) if measure == "mse" else value


def _by_row(found: Table) -> dict[str, Judged]:
    judged = found.judged.get(BETTER, [])
    return {each.expected.a.row: each for each in judged if isinstance(each.expected.a, Place)}


def _chosen(found: Table, column: str) -> str:
    """The row with the lowest held-out error of those significantly better than unchanged, or else unchanged."""
    failed = [each for each in found.runs if each["state"] == "failed"]
    if not found.cells[UNCHANGED, column].samples:
        reason = failed[0]["error"].strip().splitlines()[-1] if failed else "the training diverged"
        raise ValueError(f"the network cannot be trained further: {reason}")
    held = column.replace("test", "held-out")
    lower = [row for row, each in _by_row(found).items() if each.outcome == HOLDS]
    return min(lower, key=lambda row: _mean(found, row, held), default=UNCHANGED)


def _wins(found: Table, row: str, column: str) -> tuple[int, int]:
    """The number of seeds in which a row is lower than unchanged, and the number of all seeds."""
    ours, theirs = found.cells[row, column].samples, found.cells[UNCHANGED, column].samples
    return sum(ours[each] < theirs[each] for each in ours if each in theirs), len(ours)


def _mean(found: Table, row: str, column: str) -> float:
    value = found.cells[row, column].mean
    return math.inf if value is None else value


def _number(value: float) -> str:
    return f"{value:.2f}" if abs(value) >= 0.1 else f"{value:.3g}"


def _told(column: str, value: float) -> str:
    """A value of the deciding column, in words."""
    if column.endswith(" %"):
        return f"a {column.removesuffix(' %')} of {_number(value)}%"
    return f"a {column} of {_number(value)}"
