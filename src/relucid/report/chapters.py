"""All recorded results in order: what holds at a glance, then paper by paper and study by study."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

from relucid.report.effects import effects, headline
from relucid.report.forest import Forest, Row, forest
from relucid.studies import Study, Table, plan
from relucid.studies.compare import HOLDS, NONE, OPEN, REVERSED, UNDECIDED
from relucid.studies.expect import Place
from relucid.studies.ledger import Entry

# What became of claims that were run, by their states, in the order of the page.
GROUPS = {
    "Held": (HOLDS,),
    "Did not hold: no such effect, or the opposite": (REVERSED, NONE),
    "Undecided, or no difference found": (UNDECIDED, OPEN),
}
POWER = ("baseline", "repeated", "effect %", "detectable %", "published %", "hours")


@dataclass(frozen=True)
class Section:
    """A study that was run, and how its claims stand."""

    study: Study
    table: Table
    entries: Sequence[Entry]

    @property
    def name(self) -> str:
        """The study's name, with its scale unless that is the paper's."""
        return (
            self.study.name if self.table.scale == "full" else f"{self.study.name}, {self.table.scale} scale"
        )

    @property
    def command(self) -> str:
        """The command that repeats its runs."""
        return f"relucid run {self.study.name} --scale {self.table.scale}"


@dataclass(frozen=True)
class Waiting:
    """A study that was not run, or not at the scale made to answer: its claims, its command, how long it takes."""

    entries: Sequence[Entry]
    command: str
    cost: str


@dataclass(frozen=True)
class Chapter:
    """The results for one paper."""

    paper: str
    title: str
    drawing: Forest
    sections: Sequence[Section]
    waiting: Sequence[Waiting]

    @property
    def tried(self) -> list[Entry]:
        """The claims that were run."""
        return [entry for section in self.sections for entry in section.entries]

    def told(self) -> list[tuple[str, ...]]:
        """What the studies could tell, a line for each claim that compares with a baseline: where, then `POWER`."""
        return [(entry.claim.where, *power(entry)) for entry in self.tried if headline(entry)]


def chapters(entries: Sequence[Entry], papers: Mapping[str, str]) -> list[Chapter]:
    """The papers with any runs, from the ledger and the papers' titles."""
    found = []
    for paper, title in papers.items():
        mine = [entry for entry in entries if entry.paper == paper]
        sections = [
            Section(table.study, table, of_study)
            for _, table, of_study in _by_study(mine)
            if table is not None
        ]
        if sections:
            tried = [entry for section in sections for entry in section.entries]
            rows = [Row(_named(entry), effects(entry)) for entry in tried if entry.judged]
            drawing = forest(f"Every comparison that {paper} comes to", {"": rows})
            waiting = _merged(each for found in _by_study(mine) for each in _waiting(*found))
            found.append(Chapter(paper, title.replace("*", ""), drawing, sections, waiting))
    return found


def at_a_glance(entries: Sequence[Entry]) -> Forest:
    """One line per claim that was run: what held, what did not, what could not be told."""
    groups = {}
    for name, states in GROUPS.items():
        mine = [entry for entry in entries if entry.table and entry.state in states]
        groups[name] = [
            Row(f"{entry.paper} {_named(entry)}", [line] if (line := headline(entry)) else [])
            for entry in mine
        ]
    return forest("What was claimed and what was found", groups)


def power(entry: Entry) -> tuple[str, ...]:
    """What the study of a claim could tell, in the columns of `POWER`: all but the hours need a baseline's level."""
    hours = sum(run["seconds"] for run in entry.table.runs) / 3600 if entry.table else 0.0
    last = f"{hours:.2g}" if hours >= 0.01 else "< 0.01"
    line = headline(entry)
    if line is None or line.judged.found is None:
        return "", "", "", "", "", last
    b, found = line.judged.expected.b, line.judged.found
    assert isinstance(b, Place)
    return (
        f"{line.level:.3g} ({b.column})",
        f"{found.n // found.sides}",
        f"{_digits(line.size)} [{_digits(line.low)}, {_digits(line.high)}]",
        _digits(line.detectable),
        "" if line.published is None else _digits(line.published),
        last,
    )


def short(table: Table) -> Table:
    """The table without published values, unless its scale is the paper's: they cannot be compared."""
    if table.scale == "full":
        return table
    cells = {place: replace(cell, published=(None, None)) for place, cell in table.cells.items()}
    return replace(table, cells=cells)


def made(section: Section) -> str:
    """How many runs a study has, what they took and what they were made with."""
    study, table, runs = section.study, section.table, section.table.runs
    states = {state: sum(run["state"] == state for run in runs) for state in ("diverged", "failed")}
    troubles = "".join(f", {number} {state}" for state, number in states.items() if number)
    took = timedelta(seconds=round(sum(run["seconds"] for run in runs)))
    planned = len(plan(study, table.scale))
    done = f"{len(runs)} runs" if len(runs) == planned else f"{len(runs)} of {planned} runs so far"
    return f"Scale {table.scale}: {done}{troubles}, {took} of computing, {_machines(runs)}."


def _machines(runs: Sequence[Mapping[str, Any]]) -> str:
    """The versions and processors that the runs were made with, and how they were trained."""
    environments = [run["environment"] for run in runs if run["environment"]]  # none where a process died
    names = {(each["versions"]["torch"], each["device"]) for each in environments}
    trained = {way for each in environments for way in each.get("trained", ())}
    return "; ".join([*(f"torch {torch} on {device}" for torch, device in sorted(names)), *sorted(trained)])


def _by_study(entries: Iterable[Entry]) -> list[tuple[Study, Table | None, list[Entry]]]:
    """The studies that check claims, in their order, each with its claims, scale by scale."""
    found: dict[tuple[str, str | None], tuple[Study, Table | None, list[Entry]]] = {}
    for entry in entries:
        if entry.study is not None:
            place = entry.study.name, entry.table.scale if entry.table is not None else None
            found.setdefault(place, (entry.study, entry.table, []))[2].append(entry)
    return list(found.values())


def _named(entry: Entry) -> str:
    """A claim in a drawing: its place in the paper, how many of its comparisons hold, whether there is a caveat."""
    several = count(entry).replace(" of ", "\u00a0of\u00a0")  # not to be broken
    return f"{entry.claim.where}{several}" + (", but see below" if entry.caveats else "")


def count(entry: Entry) -> str:
    """How many of a claim's comparisons hold, or hold the other way round, in brackets; "" for fewer than two."""
    if len(entry.judged) < 2:
        return ""
    holding, opposite = (
        sum(each.outcome == outcome for each in entry.judged) for outcome in (HOLDS, REVERSED)
    )
    return f" ({holding} of {len(entry.judged)}" + (f", {opposite} reversed)" if opposite else ")")


def _digits(value: float) -> str:
    """A number in two digits or more.

    >>> [_digits(value) for value in (104.6, -7.21, 0.0442, math.inf)]
    ['105', '-7.2', '0.044', 'none']
    """
    if math.isinf(value):
        return "none"
    return f"{value:.0f}" if abs(value) >= 10 else f"{value:.2g}"


def _waiting(study: Study, table: Table | None, entries: Sequence[Entry]) -> list[Waiting]:
    """The study at the scale at which it should be run next, with the claims it has there; [] if it has been."""
    claimed = {entry.claim.where: entry for entry in entries}
    if table is None:
        scales = (study.default_scale, *(name for name in reversed(study.largest_first()) if name != "smoke"))
        scale = next(name for name in scales if claimed.keys() <= _claims(study, name))
    elif table.scale == "small" and "cpu" in study.scales:
        scale = "cpu"
    else:
        return []
    mine = [entry for where, entry in claimed.items() if where in _claims(study, scale)]
    runs, seconds = len(plan(study, scale)), study.scales[scale].seconds
    cost = f"{runs} run{'s' if runs > 1 else ''}" + (
        "" if seconds is None else f", about {_digits(runs * seconds / 3600)} hours of one core"
    )
    return [Waiting(mine, f"relucid run {study.name} --scale {scale}", cost)] if mine else []


def _merged(waiting: Iterable[Waiting]) -> list[Waiting]:
    """One entry per command, with all its claims: some may have been judged at a smaller scale, others not at all."""
    found: dict[str, Waiting] = {}
    for each in waiting:
        before = found.get(each.command)
        found[each.command] = replace(each, entries=[*before.entries, *each.entries]) if before else each
    return list(found.values())


def _claims(study: Study, scale: str) -> set[str]:
    return {claim.where for claim in study.at(scale).claims}
