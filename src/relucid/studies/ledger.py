"""The ledger: every claim of the papers, how it stands, and what checks it."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from relucid.studies.caveats import Caveat, Evidence, caveats
from relucid.studies.compare import HOLDS, NO_DIFFERENCE, NO_EFFECT, REVERSED, UNDECIDED
from relucid.studies.expect import Claim
from relucid.studies.judge import Judged
from relucid.studies.study import Study

if TYPE_CHECKING:
    from relucid.studies.table import Table

OUTCOMES = (HOLDS, REVERSED, NO_EFFECT, UNDECIDED, NO_DIFFERENCE)
LONG = 3600.0  # seconds per run beyond which the ledger does not expect a study to be run on a processor
STATES = {
    HOLDS: "the effect is above 0 in the claimed direction, beyond chance",
    REVERSED: "the effect is below 0, beyond chance",
    NO_EFFECT: "the interval of the effect contains 0 and excludes the published effect",
    UNDECIDED: (
        "the interval contains both 0 and the published effect, or a margin; or comparisons disagree, or runs diverged"
    ),
    NO_DIFFERENCE: "the interval contains 0, and no effect was published",
    "shown": "run and drawn; nothing is compared",
    "not run": "it could be run on a processor",
    "needs a GPU": "not run: at the paper's scale it takes days on a processor",
    "true": "a theorem, a count or a construction that tests or runs confirm",
    "false as stated": "one that they refute",
}


@dataclass(frozen=True)
class Entry:
    """A claim and how it stands.

    Args:
        paper: "crelu", "gmp", "structure" or "ours".
        claim: what is claimed.
        state: one of `STATES`.
        study: the study that checks it, None where tests do.
        table: its recorded results, None where there are none.
        judged: its comparisons and their outcomes.
        caveats: why not to take the state at face value.
        remark: numbers that belong to it.
    """

    paper: str
    claim: Claim
    state: str
    study: Study | None = None
    table: "Table | None" = None
    judged: Sequence[Judged] = ()
    caveats: Sequence[Caveat] = ()
    remark: str = ""

    @property
    def stands(self) -> str:
        """The state, the counts of outcomes, the scale, and the caveats in a word or two each."""
        return self.outcome + (
            f"; but {', '.join(each.word for each in self.caveats)}" if self.caveats else ""
        )

    @property
    def outcome(self) -> str:
        """The state, the counts of outcomes, and the scale."""
        word = self.state + (f" ({counted_outcomes(self.judged)})" if len(self.judged) > 1 else "")
        return f"{word} at {self.table.scale} scale" if self.table and self.table.scale != "full" else word

    @property
    def empirical(self) -> bool:
        """Whether a study checks it, rather than a test."""
        return self.study is not None

    @property
    def kind(self) -> str:
        """The kind of claim; what tests check is mathematics."""
        return "mathematics" if self.study is None else self.claim.kind

    @property
    def counts(self) -> bool:
        """Whether it is an experiment that was judged: only these count as holding or not."""
        return self.claim.kind == "experiment" and bool(self.judged)


def entries(
    papers: Mapping[str, Sequence[Study]],
    statements: Mapping[str, Sequence[Claim]],
    tables: Iterable["Table"],
) -> list[Entry]:
    """Every claim with its state.

    Args:
        papers: the studies of each paper.
        statements: the claims of each paper that no study covers.
        tables: what has been recorded, at any scale.
    """
    recorded = list(tables)
    found = []
    for paper, study in ((paper, study) for paper, studies in papers.items() for study in studies):
        mine = [table for table in recorded if table.study.name == study.name]
        for claim in study.claims:
            found.append(entry(paper, study, claim, best(study, _with(study, claim, mine)), recorded))
    for paper, claims in statements.items():
        found += [Entry(paper, claim, "true" if claim.holds else "false as stated") for claim in claims]
    return found


def _with(study: Study, claim: Claim, tables: Sequence["Table"]) -> list["Table"]:
    """The tables that have the claim and can answer it once their runs have been done.

    All that have it where none can, after a run has diverged, say, and no other scale is left to be run.
    """
    having = [table for table in tables if _has(table.study, claim)]
    can = [
        table
        for table in having
        if not (judged := table.judged.get(claim.where)) or any(each.found for each in judged)
    ]
    scales = {name for name in study.scales if name != "smoke" and _has(study.at(name), claim)}
    return can or (having if scales == {table.scale for table in having} else [])


def _has(study: Study, claim: Claim) -> bool:
    return any(each.where == claim.where for each in study.claims)


def best(study: Study, tables: Sequence["Table"]) -> "Table | None":
    """The complete table at the largest scale except smoke; if none is complete, the largest incomplete one."""
    order = [scale for scale in study.largest_first() if scale != "smoke"]
    usable = [table for table in tables if table.scale in order]
    return min(usable, key=lambda table: (not table.complete, order.index(table.scale)), default=None)


def entry(
    paper: str, study: Study, claim: Claim, table: "Table | None", recorded: Sequence["Table"] = ()
) -> Entry:
    """The entry of a claim that a study checks.

    Args:
        paper: the paper.
        study: the study with all its scales.
        claim: one of its claims.
        table: the results by which it is judged.
        recorded: all results: those of the study by which the learning rates were chosen may be among them.
    """
    if table is None:
        names = (study.default_scale, *(name for name in reversed(study.largest_first()) if name != "smoke"))
        smallest = next((name for name in names if _has(study.at(name), claim)), study.default_scale)
        scale = study.scales[smallest]
        long = scale.seconds is None or scale.seconds > LONG
        return Entry(paper, claim, "needs a GPU" if long else "not run", study)
    judged = table.judged.get(claim.where, [])
    filled = all(cell.samples for (_, of), cell in table.cells.items() if not study.columns[of].optional)
    remark = claim.remark(table) if claim.remark and filled else ""
    chosen_by = study.scales[table.scale].tuned_by, table.scale
    rates = next((each for each in recorded if (each.study.name, each.scale) == chosen_by), None)
    found = caveats(Evidence(study, claim, table, rates)) if judged and claim.kind == "experiment" else ()
    word = state(judged) if claim.kind == "experiment" else proved(judged)
    return Entry(paper, claim, word, study, table, judged, found, remark)


def state(judged: Sequence[Judged]) -> str:
    """The state of a claim: the outcome of most of its comparisons, undecided if there is no such outcome.

    >>> state([])
    'shown'
    """
    if not judged:
        return "shown"
    ((outcome, most),) = Counter(each.outcome for each in judged).most_common(1)
    return outcome if most > len(judged) / 2 else UNDECIDED


def proved(judged: Sequence[Judged]) -> str:
    """The state of a theorem, a count or what follows by construction: a single part that fails refutes it."""
    outcomes = {each.outcome for each in judged}
    if outcomes == {HOLDS}:
        return "true"
    return "false as stated" if REVERSED in outcomes else state(judged)


def counted_outcomes(judged: Sequence[Judged]) -> str:
    """Count comparisons by outcome: "4 of 7 hold, 3 undecided"."""
    counts = Counter(each.outcome for each in judged)
    plural = {HOLDS: "hold", REVERSED: "the opposite"}
    there = [(outcome, counts[outcome]) for outcome in OUTCOMES if counts[outcome]]
    return ", ".join(
        f"{count}{'' if place else f' of {len(judged)}'} {plural.get(outcome, outcome)}"
        for place, (outcome, count) in enumerate(there)
    )


def sentence(entry: Entry) -> str:
    """Describe how a claim stands: its state, every comparison with effect and interval, and its remarks."""
    parts = [f"{entry.claim.where}: {entry.stands}"]
    if entry.judged:
        parts.append(". " + "; ".join(map(str, entry.judged)))
    return "".join(parts) + "." + (f" {entry.remark}" if entry.remark else "")
