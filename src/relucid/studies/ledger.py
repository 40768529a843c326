"""The ledger: every claim of the papers, how it stands, and what checks it."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from relucid.studies.compare import HOLDS, OPEN, REVERSED, UNABLE, UNTOLD
from relucid.studies.expect import Claim
from relucid.studies.judge import Judged
from relucid.studies.study import Study

if TYPE_CHECKING:
    from relucid.studies.table import Table

LONG = 3600.0  # seconds per run beyond which the ledger does not expect a study to be run on a processor
STATES = {
    "reproduced": "every comparison that the claim makes holds beyond chance",
    "reproduced in part": "some comparisons hold beyond chance, and fewer hold the other way round",
    "contradicted": "every comparison holds the other way round beyond chance, or tests show the opposite",
    "contradicted in part": "some comparisons hold the other way round, and no more of them hold",
    "not told apart": "no difference beyond chance, though one of the published size would have been found",
    "no difference found": "no difference beyond chance, and none was published to say how large it should be",
    "cannot be told at this scale": "run, but too small to find an effect of the published size",
    "shown": "run and drawn; nothing is compared",
    "ready to run": "not run yet",
    "needs a GPU": "ready to run at the paper's scale, which takes days on a processor",
    "checked by test": "tests check it on random inputs, or against a reference written out",
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
        caveat: why not to take the state at face value.
        remark: numbers that belong to it.
    """

    paper: str
    claim: Claim
    state: str
    study: Study | None = None
    table: "Table | None" = None
    judged: Sequence[Judged] = ()
    caveat: str = ""
    remark: str = ""

    @property
    def stands(self) -> str:
        """The state, with its caveat and at which scale."""
        word = self.state
        if self.table and self.table.scale != "full":
            scale = f"{self.table.scale} scale"
            word = word.replace("this scale", scale) if "this scale" in word else f"{word} at {scale}"
        return word + (f"; but {self.caveat}" if self.caveat else "")

    @property
    def empirical(self) -> bool:
        """Whether a study checks it, rather than a test."""
        return self.study is not None


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
    recorded: dict[str, list[Table]] = {}
    for table in tables:
        recorded.setdefault(table.study.name, []).append(table)
    found = [
        entry(paper, study, claim, best(study, _with(claim, recorded.get(study.name, []))))
        for paper, studies in papers.items()
        for study in studies
        for claim in study.claims
    ]
    for paper, claims in statements.items():
        found += [
            Entry(paper, claim, "checked by test" if claim.holds else "contradicted") for claim in claims
        ]
    return found


def _with(claim: Claim, tables: Sequence["Table"]) -> list["Table"]:
    """The tables at scales that have the claim."""
    return [table for table in tables if any(each.where == claim.where for each in table.study.claims)]


def best(study: Study, tables: Sequence["Table"]) -> "Table | None":
    """The complete table at the largest scale except smoke; if none is complete, the largest incomplete one."""
    usable = [table for table in tables if table.scale != "smoke"]
    for among in ([table for table in usable if table.complete], usable):
        by_scale = {table.scale: table for table in among}
        for scale in study.largest_first():
            if scale in by_scale:
                return by_scale[scale]
    return None


def entry(paper: str, study: Study, claim: Claim, table: "Table | None") -> Entry:
    """The entry of a claim that a study checks."""
    if table is None:
        scale = study.scales[study.default_scale]
        long = scale.seconds is None or scale.seconds > LONG
        return Entry(paper, claim, "needs a GPU" if long else "ready to run", study)
    judged = table.judged.get(claim.where, [])
    filled = all(cell.samples for (_, of), cell in table.cells.items() if not study.columns[of].optional)
    caveat, remark = (say(table) if say and filled else "" for say in (claim.caveat, claim.remark))
    return Entry(paper, claim, state(judged), study, table, judged, caveat, remark)


def state(judged: Sequence[Judged]) -> str:
    """The state of a claim, from the outcomes of its comparisons.

    >>> state([])
    'shown'
    """
    counts = Counter(each.outcome for each in judged)
    if not judged:
        return "shown"
    if counts[HOLDS] == counts.total():
        return "reproduced"
    if counts[REVERSED] == counts.total():
        return "contradicted"
    if counts[HOLDS] > counts[REVERSED]:
        return "reproduced in part"
    if counts[REVERSED]:
        return "contradicted in part"
    if counts[UNABLE]:
        return "cannot be told at this scale"
    return "no difference found" if counts[OPEN] else "not told apart"


def counted(judged: Sequence[Judged]) -> str:
    """Count comparisons by outcome: "of 7 comparisons 4 hold, 3 not told apart"."""
    if len(judged) < 2:
        return ""
    counts = Counter(each.outcome for each in judged)
    listed = [
        f"{count} {outcome if count == 1 else outcome.replace('holds', 'hold')}"
        for outcome in (HOLDS, REVERSED, UNTOLD, OPEN, UNABLE)
        if (count := counts[outcome])
    ]
    return f"of {len(judged)} comparisons {', '.join(listed)}"


def sentence(entry: Entry) -> str:
    """Describe how a claim stands: its state, every comparison with effect and interval, and its remarks."""
    parts = [f"{entry.claim.where}: {entry.stands}"]
    if len(entry.judged) > 1:
        parts.append(f" ({counted(entry.judged)})")
    if entry.judged:
        parts.append(". " + "; ".join(map(str, entry.judged)))
    return "".join(parts) + "." + (f" {entry.remark}" if entry.remark else "")
