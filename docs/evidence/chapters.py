"""All recorded results in order: paper by paper and study by study, every study at all its scales."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

from evidence.effects import effects
from evidence.forest import Forest, ForestRow, forest
from evidence.front import brief, is_dirty, is_unversioned
from relucid.studies import Study, Table, plan
from relucid.studies.ledger import Entry, entry
from relucid.studies.study import SCALES


@dataclass(frozen=True)
class ScaleResults:
    """A study at one scale, and how its claims stand there."""

    study: Study
    table: Table
    entries: Sequence[Entry]
    superseded: str = ""

    @property
    def title(self) -> str:
        """The scale, and which larger one has taken its place."""
        return f"{self.table.scale} scale" + (f", superseded by {self.superseded}" if self.superseded else "")

    @property
    def protocol(self) -> str:
        """What its scale changes; the study's own protocol is for all scales."""
        return self.study.scales[self.table.scale].protocol

    @property
    def command(self) -> str:
        """The command that repeats its runs."""
        return f"relucid run {self.study.name} --scale {self.table.scale}"


@dataclass(frozen=True)
class Section:
    """A study that was run: its parts, the largest scale first."""

    study: Study
    parts: Sequence[ScaleResults]

    @property
    def file(self) -> str:
        """The name of its page, without an ending."""
        return self.study.name.replace("/", "-")


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
    entries: Sequence[Entry]
    sections: Sequence[Section]
    waiting: Sequence[Waiting]

    def of_kind(self, kind: str) -> list[Entry]:
        """The claims of a kind that a study has judged."""
        return [entry for entry in self.entries if entry.kind == kind and entry.judged]


def chapters(entries: Sequence[Entry], tables: Sequence[Table], papers: Mapping[str, str]) -> list[Chapter]:
    """The papers with any runs, from the ledger, everything recorded and the papers' titles."""
    found = []
    for paper, title in papers.items():
        mine = [entry for entry in entries if entry.paper == paper]
        sections = [section for study in _studies(mine) if (section := _section(paper, study, tables)).parts]
        if sections:
            rows = [
                ForestRow(_named(entry), drawn)
                for entry in mine
                if entry.counts and (drawn := effects(entry))
            ]
            drawing = forest(f"Every experiment that {paper} comes to", rows)
            waiting = _merged(each for study in _studies(mine) for each in _waiting(study, mine))
            found.append(Chapter(paper, title.replace("*", ""), drawing, mine, sections, waiting))
    return found


def _studies(entries: Iterable[Entry]) -> list[Study]:
    return list({entry.study.name: entry.study for entry in entries if entry.study is not None}.values())


def _section(paper: str, study: Study, tables: Sequence[Table]) -> Section:
    """A study at all its scales; one that lacks runs, or is for a part of it ("small-40"), supersedes nothing."""
    parts: list[ScaleResults] = []
    larger = ""
    for table, entries in _at_scales(paper, study, tables):
        parts.append(ScaleResults(study, table, entries, larger))
        larger = larger or (table.scale if table.complete and "-" not in table.scale else "")
    return Section(study, parts)


def _at_scales(paper: str, study: Study, tables: Sequence[Table]) -> list[tuple[Table, list[Entry]]]:
    """Every table of a study, the largest scale first, with how the study's claims stand by it."""
    mine = {table.scale: table for table in tables if table.study.name == study.name}
    found = []
    for table in (mine[scale] for scale in study.largest_first() if scale in mine and scale != "smoke"):
        claims = [claim for claim in study.claims if claim.where in table.judged]
        found.append((table, [entry(paper, study, claim, table, tables) for claim in claims]))
    return found


def short(table: Table) -> Table:
    """The table without published values, unless its scale is the paper's: they cannot be compared."""
    if table.scale == "full":
        return table
    cells = {place: replace(cell, published=(None, None)) for place, cell in table.cells.items()}
    return replace(table, cells=cells)


def made(part: ScaleResults) -> str:
    """How many runs a study has, what they took and what they were made with."""
    study, table, runs = part.study, part.table, part.table.runs
    states = {state: sum(run["state"] == state for run in runs) for state in ("diverged", "failed")}
    troubles = "".join(f", {number} {state}" for state, number in states.items() if number)
    took = timedelta(seconds=round(sum(run["seconds"] for run in runs)))
    planned = len(plan(study, table.scale))
    done = f"{len(runs)} runs" if len(runs) == planned else f"{len(runs)} of {planned} runs so far"
    code = [
        f"{count} {what}"
        for count, what in (
            (sum(map(is_dirty, runs)), "with uncommitted changes"),
            (sum(map(is_unversioned, runs)), "without a commit"),
        )
        if count
    ]
    made_with = "; ".join(filter(None, (_machines(runs), ", ".join(code))))
    return f"{done}{troubles}, {took} of computing, {made_with}."


def _machines(runs: Sequence[Mapping[str, Any]]) -> str:
    """The versions and processors that the runs were made with, and how they were trained."""
    environments = [run["environment"] for run in runs if run["environment"]]  # none where a process died
    names = {(each["versions"]["torch"], each["device"]) for each in environments}
    trained = {way for each in environments for way in each.get("trained", ())}
    return "; ".join([*(f"torch {torch} on {device}" for torch, device in sorted(names)), *sorted(trained)])


def _named(entry: Entry) -> str:
    """A claim in a drawing: its place in the paper, and the number of its comparisons."""
    several = f" ({len(entry.judged)}\u00a0comparisons)" if len(entry.judged) > 1 else ""
    return f"{entry.claim.where}{several}"


def _waiting(study: Study, entries: Sequence[Entry]) -> list[Waiting]:
    """The study at the scale at which it should be run next, with the claims it has there; [] if it has been."""
    mine = [entry for entry in entries if entry.study is not None and entry.study.name == study.name]
    missing = [entry for entry in mine if entry.table is None]
    found = []
    if missing:
        claimed = {entry.claim.where for entry in missing}
        scales = (study.default_scale, *(name for name in reversed(study.largest_first()) if name != "smoke"))
        run = {entry.table.scale for entry in mine if entry.table is not None}
        scale = next(name for name in scales if name not in run and claimed <= _claims(study, name))
        found.append(_wait(study, scale, missing))
    smaller = [entry for entry in mine if entry.table is not None and entry.table.scale == "small"]
    if "cpu" in study.scales and (open_ := [e for e in smaller if e.claim.where in _claims(study, "cpu")]):
        found.append(_wait(study, "cpu", open_))
    answered = {entry.table.scale for entry in mine if entry.table is not None}
    for scale in (name for name in study.scales if name not in (*SCALES, *answered)):
        found.append(_wait(study, scale, [e for e in mine if e.claim.where in _claims(study, scale)]))
    return found


def _wait(study: Study, scale: str, entries: Sequence[Entry]) -> Waiting:
    runs, seconds = len(plan(study, scale)), study.scales[scale].seconds
    cost = f"{runs} run{'s' if runs > 1 else ''}" + (
        "" if seconds is None else f", about {brief(runs * seconds / 3600)} hours of one core"
    )
    return Waiting(entries, f"relucid run {study.name} --scale {scale}", cost)


def _merged(waiting: Iterable[Waiting]) -> list[Waiting]:
    """One entry per command, with all its claims: some may have been judged at a smaller scale, others not at all."""
    found: dict[str, Waiting] = {}
    for each in waiting:
        before = found.get(each.command)
        found[each.command] = replace(each, entries=[*before.entries, *each.entries]) if before else each
    return list(found.values())


def _claims(study: Study, scale: str) -> set[str]:
    return {claim.where for claim in study.at(scale).claims}
