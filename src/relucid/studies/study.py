"""A study as data: what is compared, how often, at which scales, and what the paper found."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

from relucid.printing import suggest
from relucid.studies.expect import Claim, Expected, Place
from relucid.studies.runner import Runner, runner_of

if TYPE_CHECKING:
    from relucid.studies.store import Store
    from relucid.studies.table import Table

Config = Mapping[str, Any]
Grid = Mapping[str, Sequence[Any]]
Published = float | tuple[float, float]
# The scales that relucid's studies have, from the paper's own down to a test that everything runs.
SCALES = ("full", "cpu", "small", "smoke")


@dataclass(frozen=True)
class Column:
    """A column of the table: what it shows of its runs.

    Args:
        metric: the name a run gives to what it measured: a number, or a list of them (one per split, say).
        config: what the column adds to every run's configuration.
        repeat: what the runs of a cell differ in; the study's by default.
        summary: "mean" over the runs, with its standard error; "share": the same, of values that are 0 or 100 each,
            which are compared by an exact test; or "vote": the error of the mean of the runs' probabilities, for
            which a run leaves arrays `outputs` (N, classes) and `targets` (N,).
        best: which values are better; None where neither is.
        digits: after the decimal point.
        perfect: the value of a network without error: 0 for errors, 100 for accuracies in per cent.
        optional: runs that were made before it was measured may lack it.
        tries: in a study that tries learning rates, for which setting ("" if there is only one) and which rate.
        examples: of a share in per cent, how many examples it is of.
    """

    metric: str
    config: Config = field(default_factory=dict)
    repeat: Grid | None = None
    summary: Literal["mean", "share", "vote"] = "mean"
    best: Literal["lowest", "highest"] | None = "lowest"
    digits: int = 2
    perfect: float = 0.0
    optional: bool = False
    tries: tuple[str, float] | None = None
    examples: int | None = None


@dataclass(frozen=True)
class Scale:
    """How much of a study is run.

    Args:
        config: what the scale adds to every run's configuration: fewer epochs, narrower networks.
        repeat: shorter lists that replace those of the rows, the columns or the choice.
        seconds: rough time per run on one core, for estimates before anything has run.
        rows: label -> what the scale adds to this row, a learning rate of its own, say; rows that are not named are
            not run. All rows by default.
        columns: the columns that are run; all by default.
        protocol: what a reader must know about this scale; it follows the study's own protocol.
        tuned_by: the name of the study that has tried the learning rates of this scale's rows, at the same scale.
    """

    config: Config = field(default_factory=dict)
    repeat: Grid = field(default_factory=dict)
    seconds: float | None = None
    rows: Mapping[str, Config] | None = None
    columns: Sequence[str] | None = None
    protocol: str = ""
    tuned_by: str = ""


@dataclass(frozen=True)
class Study:
    """A table of runs: each cell is a row's configuration in a column's setting, repeated.

    Args:
        name: what `relucid run` calls it.
        title: what is compared, in one sentence.
        run: executes a run: a function of its configuration that returns its metrics, by name (a dict) or as
            a `Result`, or a `Runner`, which gives such a function a name and a version. A function with a second
            parameter is given the `relucid.train.Machine` it runs on.
        rows: label -> what the row adds to the configuration.
        columns: label -> `Column`.
        scales: "full" is the paper's; "cpu" takes hours on two cores and can still answer the claims, "small" takes
            less and shows how it goes, "smoke" takes seconds.
        config: what all runs share.
        repeat: what the runs of a cell differ in.
        choose: what is tried and chosen for each cell, by the mean of the metric `by` over its runs, the
            lowest: a grid of learning rates, chosen on validation data.
        by: see `choose`.
        published: row -> column -> the published value, or value and standard error.
        source: where the published values come from: "gmp Table 3".
        protocol: what a reader must know about how it was run.
        baseline: the row that the others are compared with.
        paired: whether rows share their data and seeds: differences are then taken repetition by repetition.
        splits: the rows whose repetitions are random splits of one data set.
        tries: the learning rates from which every run chooses by itself; it records its choices as the metric "rate".
        paper: the paper's own size of networks and data, as a configuration, for a study without the scale "full".
        claims: what is claimed about it, as comparisons.
        figures: draws its figures: a function of its table and store that returns a list of
            `relucid.report.Figure`.
        page: renders a page of its own: a function of its table, its store and the name the user passed.
        flops: floating-point operations of a run, by its configuration, for estimates before any run has been timed;
            None if they are not counted.

    >>> study = Study(
    ...     name="parabola",
    ...     title="Where a parabola is lowest",
    ...     run=lambda config: {"value": (config["x"] - config["shift"]) ** 2},
    ...     rows={"one": {"x": 1}, "two": {"x": 2}},
    ...     columns={"value": Column("value")},
    ...     repeat={"shift": [0, 1]},
    ... )
    """

    name: str
    title: str
    run: Runner | Callable[..., Any]
    rows: Mapping[str, Config]
    columns: Mapping[str, Column]
    scales: Mapping[str, Scale] = field(default_factory=lambda: {"full": Scale()})
    config: Config = field(default_factory=dict)
    repeat: Grid = field(default_factory=lambda: {"seed": range(3)})
    choose: Grid = field(default_factory=dict)
    by: str = "val_error"
    published: Mapping[str, Mapping[str, Published]] = field(default_factory=dict)
    source: str = ""
    protocol: str = ""
    baseline: str | None = None
    paired: bool = False
    splits: Collection[str] = ()
    tries: tuple[float, ...] = ()
    paper: Config = field(default_factory=dict)
    claims: tuple[Claim, ...] = ()
    figures: "Callable[[Table, Store], list[Any]] | None" = None
    page: "Callable[[Table, Store, str], str] | None" = None
    flops: Callable[[Config], float | None] | None = None

    def __post_init__(self) -> None:
        for what in ("name", "rows", "columns"):
            if not getattr(self, what):
                raise ValueError(f"study {self.name!r} has no {what}: a study needs a name, rows and columns")
        _ = self.runner  # refuses a function that cannot be named
        here = f"study {self.name!r}"
        for row, values in self.published.items():
            named(row, self.rows, "published row", here)
            for column in values:
                named(column, self.columns, "published column", here)
        if self.baseline is not None:
            named(self.baseline, self.rows, "baseline", here)
        for claim in self.claims:
            for place in claim.places():
                named(place.row, self.rows, "row", f"claim {claim.where!r} of {here}")
                named(place.column, self.columns, "column", f"claim {claim.where!r} of {here}")
        for scale in self.scales.values():
            for row in scale.rows or ():
                named(row, self.rows, "row of a scale", here)
            for column in scale.columns or ():
                named(column, self.columns, "column of a scale", here)

    @cached_property
    def runner(self) -> Runner:
        """The runner that executes the runs."""
        return runner_of(self.run)

    @property
    def default_scale(self) -> str:
        """The scale to run by default: "small" if there is one, else "cpu", else the first."""
        return next((name for name in ("small", "cpu") if name in self.scales), next(iter(self.scales)))

    def largest_first(self) -> list[str]:
        """The names of the scales in the order of `SCALES`; "cpu-four" counts as "cpu", other names as "small"."""
        rank = {name: place for place, name in enumerate(SCALES)}
        return sorted(self.scales, key=lambda name: rank.get(name.partition("-")[0], rank["small"]))

    def against(self, baseline: str) -> list[Expected]:
        """Comparisons of each other row with a baseline, in each column that has a better direction."""
        return [
            Expected(
                Place(row, label), Place(baseline, label), "lower" if column.best == "lowest" else "higher"
            )
            for label, column in self.columns.items()
            for row in self.rows
            if column.best is not None and row != baseline
        ]

    def at(self, scale: str) -> "Study":
        """The study as it is run at a scale: only the rows, columns, published figures and claims it has there."""
        chosen: Scale = named(scale, self.scales, "scale", f"study {self.name!r}")
        added, labels = chosen.rows, chosen.columns
        claims = tuple(claim for claim in self.claims if not claim.scales or scale in claim.scales)
        protocol = " ".join(filter(None, (self.protocol, chosen.protocol)))
        scales = {scale: replace(chosen, protocol="")}
        if added is None and labels is None:  # no row or column is left out
            return replace(self, protocol=protocol, claims=claims, scales={**self.scales, **scales})
        rows = self.rows
        if added is not None:
            rows = {row: {**config, **added[row]} for row, config in rows.items() if row in added}
        columns = self.columns if labels is None else {label: self.columns[label] for label in labels}
        within = (claim.within(rows, columns) for claim in claims)
        return replace(
            self,
            rows=rows,
            columns=columns,
            published={
                row: {label: figure for label, figure in figures.items() if label in columns}
                for row, figures in self.published.items()
                if row in rows
            },
            protocol=protocol,
            baseline=self.baseline if self.baseline in rows else None,
            claims=tuple(claim for claim in within if claim is not None),
            scales=scales,
        )


def named(name: str, known: Mapping[str, Any], what: str, where: str = "") -> Any:
    """Look up `name` in `known`; on failure, suggest close matches.

    >>> named("ReLu", {"ReLU": 1, "AVR": 2}, "row", "study 'activations'")
    Traceback (most recent call last):
    ValueError: there is no row 'ReLu' in study 'activations'; did you mean 'ReLU'?
    """
    if name not in known:
        all_known = f"; there are {', '.join(known) or 'none'}"
        place = f" in {where}" if where else ""
        raise ValueError(f"there is no {what} {name!r}{place}{suggest(name, known) or all_known}")
    return known[name]
