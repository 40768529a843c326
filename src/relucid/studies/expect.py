"""What a claim predicts for a table."""

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar, Literal, NamedTuple, Protocol

from relucid.studies.compare import Comparison

if TYPE_CHECKING:
    from relucid.studies.table import Table

Names = str | tuple[str, ...]
Samples = Mapping[str, float]
Kind = Literal["experiment", "mathematics", "construction"]
Relation = Literal["lower", "higher", "equal", "at most", "near", "not worse"]


class Place(NamedTuple):
    """A cell of the table."""

    row: str
    column: str


@dataclass(frozen=True)
class Quantity:
    """A quantity derived from a table: a slope, an interaction.

    Args:
        label: what it is, in words.
        sample: its value by repetition, from a table; empty where runs are missing.
        rows: the rows that it is computed from; by default all.
        columns: the columns that it is computed from; by default that of `of`, else the first.
        of: the cell some of whose repetitions it takes: what was published for the cell is compared with them.
    """

    label: str
    sample: "Callable[[Table], Samples]"
    rows: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()
    of: Place | None = None


def cell_of(side: "Place | Quantity | Statistic | float") -> Place | None:
    """The cell that a side of a comparison is, or takes its repetitions from."""
    if isinstance(side, Quantity):
        return side.of
    return side if isinstance(side, Place) else None


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
                return f"{self.a.row}: {self.a.column} minus {self.b.column}"
            if self.a.column != self.b.column:
                return f"{self.a.row}, {self.a.column}, minus {self.b.row}, {self.b.column}"
            return f"{self.a.row} minus {self.b.row}, {self.a.column}"
        a = self.a.label if isinstance(self.a, Quantity) else f"{self.a.row}, {self.a.column}"
        if isinstance(self.b, float):
            return f"{a} minus {self.b:g}" if self.b and self.relation != "at most" else a
        return f"{a} minus {self.b.label if isinstance(self.b, Quantity) else self.b.column}"

    def comparisons(self) -> Iterator["Expected"]:
        """Itself: a claim may list its comparisons one by one."""
        yield self

    def places(self) -> Iterator[Place]:
        """The cells that it names."""
        return (side for side in (self.a, self.b) if isinstance(side, Place))

    def lies_in(self, rows: Collection[str], columns: Collection[str]) -> bool:
        """Whether these rows and columns are all that it needs."""
        quantities = (side for side in (self.a, self.b) if isinstance(side, Quantity))
        return all(place.row in rows and place.column in columns for place in self.places()) and all(
            set(quantity.rows) <= set(rows) and set(quantity.columns) <= set(columns)
            for quantity in quantities
        )


class Expectation(Protocol):
    """Anything that a table is expected to show, as a list of comparisons."""

    def comparisons(self) -> Iterator[Expected]:
        """All comparisons."""
        ...


def _names(names: Names) -> tuple[str, ...]:
    return (names,) if isinstance(names, str) else names


def _places(rows: Names, columns: Names) -> Iterator[Place]:
    return (Place(row, column) for row in _names(rows) for column in _names(columns))


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
    relation: ClassVar[Relation]

    def comparisons(self) -> Iterator[Expected]:
        """One comparison per row, reference and column."""
        return (Expected(a, b, self.relation, self.paired) for a, b in self._pairs())

    def _pairs(self) -> Iterator[tuple[Place, Place | float]]:
        for place in _places(self.rows, self.columns):
            if self.than_column is not None:
                yield place, Place(place.row, self.than_column)
            elif isinstance(self.than, int | float):
                yield place, float(self.than)
            elif self.than is not None:
                for other in _names(self.than):
                    yield place, Place(other, place.column)


class Lower(_Ordered):
    """Rows with lower cells.

    >>> [each.label for each in Lower("GmP", than=("SP", "WN"), columns="Boston").comparisons()]
    ['GmP minus SP, Boston', 'GmP minus WN, Boston']
    """

    relation = "lower"


class Higher(_Ordered):
    """Rows with higher cells."""

    relation = "higher"


@dataclass(frozen=True)
class NotWorse(_Ordered):
    """Rows that are worse than others by less than a margin: the interval lies below it."""

    margin: float = 0.0
    relation = "not worse"

    def comparisons(self) -> Iterator[Expected]:
        """One comparison per row, reference and column."""
        return (replace(each, margin=self.margin) for each in super().comparisons())


@dataclass(frozen=True)
class Equal:
    """A cell that equals a number in the digits that its column shows, for counts."""

    row: str
    column: str
    value: float

    def comparisons(self) -> Iterator[Expected]:
        """The only comparison."""
        yield Expected(Place(self.row, self.column), float(self.value), "equal")


@dataclass(frozen=True)
class AtMost:
    """Cells in which no repetition is above a number: bounds that hold for certain, not on average."""

    rows: Names
    columns: Names
    value: float

    def comparisons(self) -> Iterator[Expected]:
        """One comparison per row and column."""
        return (Expected(place, float(self.value), "at most") for place in _places(self.rows, self.columns))


@dataclass(frozen=True)
class Near:
    """Cells with a mean within a margin of a number: the interval lies inside it."""

    rows: Names
    columns: Names
    value: float
    margin: float

    def comparisons(self) -> Iterator[Expected]:
        """One comparison per row and column."""
        places = _places(self.rows, self.columns)
        return (Expected(place, float(self.value), "near", margin=self.margin) for place in places)


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
        than = self.than if isinstance(self.than, Quantity) else float(self.than)
        yield Expected(self.a, than, self.relation, self.paired, self.margin)


@dataclass(frozen=True)
class Claim:
    """A sentence of the ledger: what is claimed, what it predicts for a table, and what else a reader must know.

    Args:
        where: in the paper: "Table 1".
        says: the claim, in a sentence.
        expect: comparisons in the table of the study that has this claim; none if nothing is compared.
        kind: "experiment"; or "mathematics", a theorem or a count; or "construction", what follows from how something
            is built, whatever the data. Only experiments are counted as holding or not.
        stated: the date on which it was stated, if that was with data in view.
        scales: the scales at which it can be answered, where a smaller one has too few epochs, say; by default all.
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
    kind: Kind = "experiment"
    stated: str = ""
    scales: tuple[str, ...] = ()
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

    def within(self, rows: Collection[str], columns: Collection[str]) -> "Claim | None":
        """The claim about these rows and columns alone; None where nothing is left to compare."""
        kept = tuple(each for each in self.comparisons() if each.lies_in(rows, columns))
        if not self.expect or len(kept) == len(self.comparisons()):
            return self
        return replace(self, expect=kept) if kept else None
