"""The front page of the results, to be read in a minute: a dozen claims, a few findings, a figure."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from relucid.printing import counted
from relucid.report.effects import headline as median_effect
from relucid.report.forest import Forest, Row, forest
from relucid.studies import Table
from relucid.studies.compare import HOLDS, NONE, OPEN, REVERSED, UNDECIDED, Outcome, number
from relucid.studies.expect import Place
from relucid.studies.judge import Judged
from relucid.studies.ledger import Entry, counted_outcomes, state
from relucid.studies.table import is_dirty, is_unversioned

HEAD = ("claim", "effect", "published", "scale", "outcome", "but")
WORDS: dict[Outcome, tuple[str, str]] = {
    HOLDS: ("{} holds", "{} hold"),
    REVERSED: ("for {} the opposite holds", "for {} the opposite holds"),
    NONE: ("for {} there is no such effect", "for {} there is no such effect"),
    UNDECIDED: ("{} is undecided", "{} are undecided"),
    OPEN: ("for {} no difference was found", "for {} no difference was found"),
}


@dataclass(frozen=True)
class Headline:
    """A claim for the front page.

    Args:
        paper: the paper's name.
        where: the claim's place in it.
        says: the claim in plain words.
        unit: of the effect.
        against: show only the comparisons with this row.
    """

    paper: str
    where: str
    says: str
    unit: str = ""
    against: str = ""


@dataclass(frozen=True)
class Line:
    """A row of the table: the texts of `HEAD`, the entry, its outcome, and the median effect, if it can be drawn."""

    texts: tuple[str, ...]
    entry: Entry
    outcome: str


@dataclass(frozen=True)
class Front:
    """What the front page shows, on the site and in a file of its own."""

    summary: str
    lines: Sequence[Line]
    findings: Sequence[str]
    drawing: Forest
    notes: Sequence[str]


def front(
    entries: Sequence[Entry],
    tables: Sequence[Table],
    headlines: Sequence[Headline],
    findings: Sequence[str],
    notes: Sequence[str],
) -> Front:
    """The front page; headlines whose claims have not been run are left out."""
    known = {(entry.paper, entry.claim.where): entry for entry in entries}
    shown = [(each, _narrowed(known[each.paper, each.where], each)) for each in headlines]
    shown = [(each, entry) for each, entry in shown if entry.judged]
    rows = [Row(each.says, [effect] if (effect := median_effect(entry)) else []) for each, entry in shown]
    drawing = forest("A dozen claims", {"": [row for row in rows if row.effects]})
    lines = [_line(each, entry) for each, entry in shown]
    return Front(summary(entries), lines, findings, drawing, [*notes, *_doubts(entries, tables)])


def _narrowed(entry: Entry, headline: Headline) -> Entry:
    """The entry with the comparisons that the headline is about."""
    if not headline.against:
        return entry
    judged = [
        each
        for each in entry.judged
        if isinstance(each.expected.b, Place) and each.expected.b.row == headline.against
    ]
    return replace(entry, judged=judged, state=state(judged))


def _line(headline: Headline, entry: Entry) -> Line:
    judged = _median(entry.judged)
    count = f" ({counted_outcomes(entry.judged)})" if len(entry.judged) > 1 else ""
    assert entry.table is not None
    texts = (
        headline.says,
        _effect(judged, headline.unit, len(entry.judged)),
        _published(judged),
        entry.table.scale,
        f"{entry.state}{count}",
        ", ".join(each.word for each in entry.caveats),
    )
    return Line(texts, entry, entry.state)


def _median(judged: Sequence[Judged]) -> Judged:
    """The comparison in the middle; of an even number the smaller of the two."""
    found = [each for each in judged if each.found is not None]
    ordered = sorted(found, key=lambda each: each.sign * each.found.effect if each.found else 0.0)
    return ordered[(len(ordered) - 1) // 2]


def _effect(judged: Judged, unit: str, of: int) -> str:
    """The effect in the claimed direction with its interval."""
    found = judged.found
    assert found is not None
    low, high = sorted((judged.sign * found.low, judged.sign * found.high))
    median = "" if of == 1 else f", {'median' if of > 2 else 'smaller'} of {of}"
    size = f"{number(judged.sign * found.effect)} [{number(low)}, {number(high)}]"
    return f"{size}{' ' + unit if unit else ''}{median}"


def _published(judged: Judged) -> str:
    """The published effect in the claimed direction, and at the error's level here."""
    if judged.published is None or judged.scaled is None:
        return ""
    here = "" if judged.error_level is None else f" ({number(judged.sign * judged.scaled)} here)"
    return f"{number(judged.sign * judged.published)}{here}"


def summary(entries: Iterable[Entry]) -> str:
    """Count claims by kind, and experiments by outcome: only these hold or not."""
    entries = list(entries)
    tested = Counter(entry.state for entry in entries if entry.counts)
    words = [
        forms[tested[outcome] > 1].format(tested[outcome])
        for outcome, forms in WORDS.items()
        if tested[outcome]
    ]
    waiting = sum(
        entry.kind == "experiment" and not entry.judged and entry.table is None for entry in entries
    )
    mathematics = Counter(entry.state for entry in entries if entry.kind == "mathematics")
    built = sum(entry.kind == "construction" and entry.table is not None for entry in entries)
    said = [f"{counted(tested.total(), 'claim')} tested by experiment: {', '.join(words)}"] if tested else []
    if waiting:
        said.append(f"{waiting} more to be run")
    if mathematics:
        wrong = mathematics["false as stated"]
        false = f", {wrong} of them false as stated" if wrong else ""
        said.append(f"{mathematics.total()} are mathematics{false}")
    if built:
        said.append(f"{built} hold by construction")
    return f"{'; '.join(said)}."


def _doubts(entries: Iterable[Entry], tables: Sequence[Table]) -> list[str]:
    """Say how many runs have uncertain code, and how many claims were stated with their data in view."""
    runs = {run["key"]: run for table in tables for run in table.runs}
    dirty, unversioned = sum(map(is_dirty, runs.values())), sum(map(is_unversioned, runs.values()))
    dates = Counter(entry.claim.stated for entry in entries if entry.claim.stated and entry.judged)
    said = []
    if dirty or unversioned:
        said.append(
            f"Of {len(runs):,} runs, {dirty} were made with uncommitted changes and {unversioned} without a commit."
        )
    said += [
        f"{count} of these claims (*post hoc*) were stated on {date}, with their data in view."
        for date, count in dates.items()
    ]
    return said
