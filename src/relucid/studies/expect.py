"""What a claim predicts for a table, and whether the table shows it."""

from collections.abc import Callable, Container, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal, Protocol

from relucid.studies.compare import (
    HOLDS,
    LEVEL,
    REVERSED,
    UNABLE,
    UNTOLD,
    Comparison,
    Outcome,
    compare,
    compare_shares,
    decide,
    holm,
    number,
    one_sided,
)

if TYPE_CHECKING:
    from relucid.studies.table import Table

Names = str | tuple[str, ...]
Samples = Mapping[str, float]
Relation = Literal["lower", "higher", "equal", "near", "not worse"]


@dataclass(frozen=True)
class Place:
    """A cell of the table."""

    row: str
    column: str


@dataclass(frozen=True)
class Quantity:
    """A quantity derived from a table: a slope, an interaction.

    Args:
        label: what it is, in words.
        sample: its value by repetition, from a table; empty where runs are missing.
        rows: the rows that it is computed from, if a scale may lack some of them.
    """

    label: str
    sample: "Callable[[Table], Samples]"
    rows: tuple[str, ...] = ()


@dataclass(frozen=True)
class Statistic:
    """A difference computed as a whole: `compare` takes the table and returns the comparison."""

    label: str
    compare: "Callable[[Table], Comparison | None]"


@dataclass(frozen=True)
class Expected:
    """One comparison: A against B."""

    a: Place | Quantity | Statistic
    b: Place | Quantity | float
    relation: Relation
    paired: bool | None = None
    margin: float = 0.0

    @property
    def label(self) -> str:
        """What is compared, in words."""
        if isinstance(self.a, Statistic):
            return self.a.label
        if isinstance(self.a, Place) and isinstance(self.b, Place):
            if self.a.row == self.b.row:
                return f"{self.a.row}: {self.a.column} less {self.b.column}"
            return f"{self.a.row} less {self.b.row}, {self.a.column}"
        a = self.a.label if isinstance(self.a, Quantity) else f"{self.a.row}, {self.a.column}"
        if isinstance(self.b, float):
            return f"{a} less {self.b:g}" if self.b else a
        return f"{a} less {self.b.label if isinstance(self.b, Quantity) else self.b.column}"

    def places(self) -> Iterator[Place]:
        """The cells that it names."""
        return (side for side in (self.a, self.b) if isinstance(side, Place))

    def lies_in(self, rows: Container[str], columns: Container[str]) -> bool:
        """Whether these rows and columns are all that it needs."""
        quantities = (side for side in (self.a, self.b) if isinstance(side, Quantity))
        return all(place.row in rows and place.column in columns for place in self.places()) and all(
            row in rows for quantity in quantities for row in quantity.rows
        )


class Expectation(Protocol):
    """Anything that a table is expected to show, as a list of comparisons."""

    def comparisons(self) -> Iterator[Expected]:
        """All comparisons."""
        ...


def _names(names: Names) -> tuple[str, ...]:
    return (names,) if isinstance(names, str) else names


@dataclass(frozen=True)
class _Ordered:
    """Rows with lower or higher cells than other rows, than another column, or than a number.

    Args:
        rows: one or several rows.
        than: the rows to compare them with, or a number.
        columns: the columns in which they are compared.
        than_column: another column of the same row, instead of other rows.
        paired: whether to compare repetition by repetition; by default as the study says.
    """

    rows: Names
    than: Names | float | None = None
    columns: Names = ()
    than_column: str | None = None
    paired: bool | None = None

    def _pairs(self) -> Iterator[tuple[Place, Place | float]]:
        for row in _names(self.rows):
            for column in _names(self.columns):
                if self.than_column is not None:
                    yield Place(row, column), Place(row, self.than_column)
                elif isinstance(self.than, int | float):
                    yield Place(row, column), float(self.than)
                elif self.than is not None:
                    for other in _names(self.than):
                        yield Place(row, column), Place(other, column)


class Lower(_Ordered):
    """Rows with lower cells.

    >>> [each.label for each in Lower("GmP", than=("SP", "WN"), columns="Boston").comparisons()]
    ['GmP less SP, Boston', 'GmP less WN, Boston']
    """

    def comparisons(self) -> Iterator[Expected]:
        """One comparison per row, reference and column."""
        return (Expected(a, b, "lower", self.paired) for a, b in self._pairs())


class Higher(_Ordered):
    """Rows with higher cells."""

    def comparisons(self) -> Iterator[Expected]:
        """One comparison per row, reference and column."""
        return (Expected(a, b, "higher", self.paired) for a, b in self._pairs())


@dataclass(frozen=True)
class NotWorse(_Ordered):
    """Rows that are worse than others by less than a margin, by one-sided tests on either side of the margin."""

    margin: float = 0.0

    def comparisons(self) -> Iterator[Expected]:
        """One comparison per row, reference and column."""
        return (Expected(a, b, "not worse", self.paired, self.margin) for a, b in self._pairs())


@dataclass(frozen=True)
class Equal:
    """A cell that equals a number in the digits that its column shows, for counts."""

    row: str
    column: str
    value: float

    def comparisons(self) -> Iterator[Expected]:
        """The only comparison."""
        yield Expected(Place(self.row, self.column), self.value, "equal")


@dataclass(frozen=True)
class Near:
    """Cells with a mean within a margin of a number, by one-sided tests on either side."""

    rows: Names
    columns: Names
    value: float
    margin: float

    def comparisons(self) -> Iterator[Expected]:
        """One comparison per row and column."""
        for row in _names(self.rows):
            for column in _names(self.columns):
                yield Expected(Place(row, column), self.value, "near", margin=self.margin)


@dataclass(frozen=True)
class Derived:
    """A quantity or statistic that is lower than, higher than or not worse than another quantity or a number."""

    a: Quantity | Statistic
    relation: Literal["lower", "higher", "not worse"]
    than: Quantity | float = 0.0
    paired: bool | None = None
    margin: float = 0.0

    def comparisons(self) -> Iterator[Expected]:
        """The only comparison."""
        yield Expected(self.a, self.than, self.relation, self.paired, self.margin)


@dataclass(frozen=True)
class Listed:
    """Comparisons one by one."""

    each: tuple[Expected, ...]

    def comparisons(self) -> Iterator[Expected]:
        """All of them."""
        return iter(self.each)


@dataclass(frozen=True)
class Claim:
    """A sentence of the ledger: what is claimed, what it predicts for a table, and what else a reader must know.

    Args:
        where: in the paper: "Table 1".
        says: the claim, in a sentence.
        expect: comparisons in the table of the study that has this claim; none if nothing is compared.
        caveat: a function of the table: why not to take a state at face value, "" if you can.
        remark: a function of the table: numbers that belong to the claim, in a sentence or two, without a judgement.
        holds: False if tests show that the claim does not hold.
        erratum: where the paper is wrong or silent, and what holds.
        note: anything else a reader should know.
        code: importable names.
        tests: file::function, below tests/.
    """

    where: str
    says: str
    expect: tuple[Expectation, ...] = ()
    caveat: "Callable[[Table], str] | None" = None
    remark: "Callable[[Table], str] | None" = None
    holds: bool = True
    erratum: str = ""
    note: str = ""
    code: tuple[str, ...] = ()
    tests: tuple[str, ...] = ()

    def comparisons(self) -> list[Expected]:
        """All comparisons."""
        return [each for expectation in self.expect for each in expectation.comparisons()]

    @property
    def of_cells(self) -> bool:
        """Whether it compares nothing but cells, so that it needs only the cells it names."""
        return bool(self.expect) and all(isinstance(each.a, Place) for each in self.comparisons())

    def places(self) -> Iterator[Place]:
        """The cells that the claim names."""
        for each in self.comparisons():
            yield from each.places()

    def within(self, rows: Container[str], columns: Container[str]) -> "Claim | None":
        """The claim about these rows and columns alone; None where nothing is left to compare."""
        kept = tuple(each for each in self.comparisons() if each.lies_in(rows, columns))
        if not self.expect or len(kept) == len(self.comparisons()):
            return self
        return replace(self, expect=(Listed(kept),)) if kept else None


@dataclass(frozen=True)
class Judged:
    """A comparison and its outcome.

    Args:
        expected: what was compared.
        found: the comparison, None if there are too few values.
        p: adjusted for the comparisons of the same claim (Holm).
        outcome: in words.
        published: the published effect.
        level: B's mean here and in the paper; None at the paper's own scale. At other scales, effects are compared as
            shares of it.
    """

    expected: Expected
    found: Comparison | None
    p: float | None
    outcome: Outcome
    published: float | None = None
    level: tuple[float, float] | None = None

    def __str__(self) -> str:
        if self.found is None:
            return f"{self.expected.label}: too few values to compare"
        parts = [f"{number(self.found.effect)} [{number(self.found.low)}, {number(self.found.high)}]"]
        if self.p is not None and self.expected.relation != "equal":
            parts.append(f"p = {self.p:.2g}")
        if self.outcome in (UNTOLD, UNABLE):
            parts.append(f"detectable {self._sized(self.found.detectable, 0)}")
        if self.published is not None:
            parts.append(f"published {self._sized(self.published, 1)}")
        return f"{self.expected.label}: {', '.join(parts)}: {self.outcome}"

    def _sized(self, value: float, whose: Literal[0, 1]) -> str:
        """Format a difference; if levels differ, also as a share of B's level here (0) or in the paper (1)."""
        if self.level is None or self.published is None or self.outcome not in (UNTOLD, UNABLE):
            return number(value)
        return f"{number(value)} ({abs(value / self.level[whose]):.1%})"


def judge(table: "Table", claim: Claim) -> list[Judged]:
    """Judge every comparison of a claim, allowing for their number."""
    found = [_compared(table, each) for each in claim.comparisons()]
    told = [place for place, each in enumerate(found) if each.p is not None]
    adjusted = dict(zip(told, holm([found[place].p or 0.0 for place in told]), strict=True))
    return [
        replace(each, p=adjusted[place], outcome=_outcome(table, each, adjusted[place]))
        if place in adjusted
        else each
        for place, each in enumerate(found)
    ]


def _compared(table: "Table", expected: Expected) -> Judged:
    """Make a comparison, not yet adjusted for the others."""
    if expected.relation == "equal":
        return _exact(table, expected)
    found = _comparison(table, expected)
    published, level = _published(table, expected), _level(table, expected)
    if found is None:
        return Judged(expected, None, None, UNABLE, published, level)
    p = found.p
    if expected.relation == "not worse":
        p = min(1.0, 2 * min(one_sided(found, expected.margin)))
    elif expected.relation == "near":
        p = max(one_sided(found, expected.margin)[0], one_sided(found, -expected.margin)[1])
    return Judged(expected, found, p, UNTOLD, published, level)


def _comparison(table: "Table", expected: Expected) -> Comparison | None:
    a, b = expected.a, expected.b
    if isinstance(a, Statistic):
        return a.compare(table)
    ours = _samples(table, a)
    if isinstance(b, float):
        return compare([*ours.values()], b)
    theirs = _samples(table, b)
    if isinstance(a, Place) and table.study.columns[a.column].summary == "share":
        return compare_shares([*ours.values()], [*theirs.values()])
    paired = table.study.paired if expected.paired is None else expected.paired
    if not paired:
        return compare([*ours.values()], [*theirs.values()])
    if ours.keys() != theirs.keys():
        return None  # a repetition diverged or has not run: the rest would not be a fair sample
    return compare([*ours.values()], [theirs[each] for each in ours], paired=True)


def _samples(table: "Table", side: Place | Quantity) -> Samples:
    return table.cells[side.row, side.column].samples if isinstance(side, Place) else side.sample(table)


def _exact(table: "Table", expected: Expected) -> Judged:
    """Compare a count with a number, in the digits that are shown."""
    assert isinstance(expected.a, Place)
    assert isinstance(expected.b, float)
    cell = table.cells[expected.a.row, expected.a.column]
    if cell.mean is None:
        return Judged(expected, None, None, UNABLE)
    effect = round(cell.mean, table.study.columns[expected.a.column].digits) - expected.b
    found = Comparison(effect, effect, effect, float(effect == 0), len(cell.values), 0.0, 0.0, 0.0, "exact")
    return Judged(expected, found, None, HOLDS if effect == 0 else REVERSED)


def _outcome(table: "Table", judged: Judged, p: float) -> Outcome:
    assert judged.found is not None
    found, relation = judged.found, judged.expected.relation
    allowed = wanted(judged)
    if table.scale != "full" and allowed is None and p >= LEVEL:
        allowed = 0.0  # nothing says how large an effect this smaller scale should have found
    if relation == "near":
        far = min(abs(found.low), abs(found.high)) > judged.expected.margin and found.low * found.high > 0
        return HOLDS if p < LEVEL else REVERSED if far else UNTOLD
    if relation == "not worse":
        if p >= LEVEL:
            return UNTOLD if found.detectable <= judged.expected.margin else UNABLE
        return HOLDS if found.effect < judged.expected.margin else REVERSED
    return decide(found, p, expected=1 if relation == "higher" else -1, allowed=allowed)


def wanted(judged: Judged) -> float | None:
    """The size of the published effect; at another scale, the same share of this scale's level."""
    if judged.published is None:
        return None
    if judged.level is None:
        return abs(judged.published)
    return abs(judged.published) * judged.level[0] / judged.level[1]


def _published(table: "Table", expected: Expected) -> float | None:
    """The published effect; None unless both sides were published."""
    if not isinstance(expected.a, Place) or not isinstance(expected.b, Place):
        return None
    a, b = (table.cells[each.row, each.column].published[0] for each in (expected.a, expected.b))
    return None if a is None or b is None else a - b


def _level(table: "Table", expected: Expected) -> tuple[float, float] | None:
    """B's mean here and in the paper; None at the paper's own scale."""
    if not isinstance(expected.b, Place) or table.scale == "full":
        return None
    cell = table.cells[expected.b.row, expected.b.column]
    here, there = cell.mean, cell.published[0]
    return (here, there) if here and there else None
