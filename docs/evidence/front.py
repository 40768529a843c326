"""The front page of the results, to be read in a minute: the main claims, a few findings, a figure."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from evidence.effects import headline as median_effect
from evidence.effects import median
from evidence.forest import Forest, ForestRow, forest
from relucid.printing import counted
from relucid.studies import Table
from relucid.studies.caveats import POST_HOC
from relucid.studies.compare import HOLDS, NO_DIFFERENCE, NO_EFFECT, REVERSED, UNDECIDED, Verdict
from relucid.studies.judge import Judged
from relucid.studies.ledger import Entry, counted_outcomes

HOW = """\
Positive effects are as claimed; of several comparisons the median one is shown. Each interval is at 95%, or stricter
where several comparisons of a claim differ in their outcome, so that all of them are right at once; it is over seeds or
splits, not over other data. Above 0 the claim *holds*, below 0
*the opposite holds*; around 0 there is *no such effect* if the interval excludes the published effect, else the claim
is *undecided*, or *no difference* was *found* where none was published. Published effects are scaled by the error of
the reference network. Each claim is shown at its largest complete scale: *full* is the paper's, *cpu* and *small* are
smaller.
"""
HEAD = ("claim", "outcome", "effect", "published", "scale")
WORDS: dict[Verdict, tuple[str, str]] = {
    HOLDS: ("{} holds", "{} hold"),
    REVERSED: ("for {} the opposite holds", "for {} the opposite holds"),
    NO_EFFECT: ("for {} there is no such effect", "for {} there is no such effect"),
    UNDECIDED: ("{} is undecided", "{} are undecided"),
    NO_DIFFERENCE: ("for {} no difference was found", "for {} no difference was found"),
}


@dataclass(frozen=True)
class Headline:
    """A claim for the front page.

    Args:
        paper: the paper's name.
        where: the claim's place in it.
        says: the claim in plain words.
        unit: of the effect.
    """

    paper: str
    where: str
    says: str
    unit: str = ""


@dataclass(frozen=True)
class Line:
    """A row of the table: the texts of `HEAD`, and the entry."""

    texts: tuple[str, ...]
    entry: Entry


@dataclass(frozen=True)
class Front:
    """What the front page shows."""

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
    """The front page; headlines whose claims have not been run, or have nothing to compare yet, are left out."""
    known = {(entry.paper, entry.claim.where): entry for entry in entries}
    shown = [(each, known[each.paper, each.where]) for each in headlines]
    shown = [(each, entry) for each, entry in shown if any(judged.found for judged in entry.judged)]
    rows = [ForestRow(each.says, [effect]) for each, entry in shown if (effect := median_effect(entry))]
    drawing = forest("The main claims", rows)
    lines = [_line(each, entry) for each, entry in shown]
    return Front(
        summary(entries), lines, findings, drawing, [*notes, *_doubts(entries, tables), *_caveats(lines)]
    )


def _line(headline: Headline, entry: Entry) -> Line:
    found = [each for each in entry.judged if each.found is not None]
    judged = median(found, lambda each: each.sign * each.found.effect if each.found else 0.0)
    assert entry.table is not None
    texts = (
        headline.says,
        _outcome(entry),
        _effect(judged, headline.unit),
        _published(judged),
        entry.table.scale,
    )
    return Line(texts, entry)


def _outcome(entry: Entry) -> str:
    """The state, and how many of several comparisons have which outcome."""
    counts = Counter(each.outcome for each in entry.judged)
    if counts.total() == 1:
        return entry.state
    if counts.most_common(1)[0][1] <= counts.total() / 2:
        return f"{entry.state} ({counted_outcomes(entry.judged)})"
    rest = [
        f"{count} {'hold' if outcome == HOLDS else outcome}" for outcome, count in counts.most_common()[1:]
    ]
    return f"{entry.state} ({'; '.join([f'{counts.most_common(1)[0][1]} of {counts.total()}', *rest])})"


def _effect(judged: Judged, unit: str) -> str:
    """The effect in the claimed direction with its interval."""
    found = judged.found
    assert found is not None
    low, high = sorted((judged.sign * found.low, judged.sign * found.high))
    size = f"{brief(judged.sign * found.effect)} [{brief(low)}, {brief(high)}]".replace(" ", "\u00a0")
    return f"{size} {unit}".rstrip()


def brief(value: float) -> str:
    """A number in two digits.

    >>> [brief(value) for value in (-2.304, 0.0156, 12.3, 0.000127)]
    ['-2.3', '0.016', '12', '0.00013']
    """
    return f"{value:.0f}" if abs(value) >= 10 else f"{float(f'{value:.2g}'):f}".rstrip("0").rstrip(".")


def _published(judged: Judged) -> str:
    """The published effect in the claimed direction, and at the error's level here."""
    if judged.published is None or judged.scaled is None:
        return ""
    here = "" if judged.error_level is None else f" ({brief(judged.sign * judged.scaled)}\u00a0here)"
    return f"{brief(judged.sign * judged.published)}{here}"


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
    parts = [f"{counted(tested.total(), 'claim')} tested by experiment: {', '.join(words)}"] if tested else []
    if waiting:
        parts.append(f"{waiting} more to be run")
    if mathematics:
        wrong = mathematics["false as stated"]
        false = f", {wrong} of them false as stated" if wrong else ""
        parts.append(f"{mathematics.total()} are mathematics{false}")
    if built:
        parts.append(f"{built} hold{'s' if built == 1 else ''} by construction")
    return f"{'; '.join(parts)}."


def _caveats(lines: Sequence[Line]) -> list[str]:
    """Count the caveats of the headlines."""
    words = Counter(each.word for line in lines for each in line.entry.caveats)
    listed = ", ".join(f"{word} {count}" for word, count in words.most_common())
    return (
        [f"Caveats of the {len(lines)} claims above, which their pages explain: {listed}."] if words else []
    )


def _doubts(entries: Iterable[Entry], tables: Sequence[Table]) -> list[str]:
    """Say how many runs have uncertain code, and how many claims were stated with their data in view."""
    runs = {run["key"]: run for table in tables for run in table.runs}
    dirty, unversioned = sum(map(is_dirty, runs.values())), sum(map(is_unversioned, runs.values()))
    late = (entry for entry in entries if any(each.word == POST_HOC for each in entry.caveats))
    dates = Counter(entry.claim.stated for entry in late)
    parts = []
    if dirty or unversioned:
        parts.append(
            f"Of {len(runs):,} runs, {dirty} were made with uncommitted changes and {unversioned} without a commit."
        )
    parts += [
        f"{counted(count, 'claim')} (*post hoc*) {'was' if count == 1 else 'were'} stated on {date}, with data in view."
        for date, count in dates.items()
    ]
    return parts


def is_dirty(record: Mapping[str, Any]) -> bool:
    """Whether a run was made from a work tree with uncommitted changes."""
    return str(record["environment"].get("commit")).endswith("-dirty")


def is_unversioned(record: Mapping[str, Any]) -> bool:
    """Whether no commit is recorded for a run."""
    return not record["environment"].get("commit")
