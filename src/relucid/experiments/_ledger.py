"""Every claim, judged by the largest complete scale that can answer it."""

from collections.abc import Iterable
from typing import NamedTuple

from relucid.experiments._judge import Claim
from relucid.experiments._page import Archive, Finding
from relucid.experiments._study import Study


class Entry(NamedTuple):
    """A claim of a study, and what its records say of it: the finding and its results, None if nothing is known."""

    study: Study
    claim: Claim
    finding: Finding | None

    @property
    def scale(self) -> str:
        """The scale by which it was judged; "" if it was not."""
        return self.finding.results.scale if self.finding else ""


def ledger(studies: Iterable[Study], archive: Archive) -> list[Entry]:
    """One entry per claim: complete scales come first, then larger ones; one that can compare nothing comes last."""
    entries = []
    for study in studies:
        known = [
            finding
            for scale in study.largest_first()
            if scale != "smoke"
            for finding in archive.findings(study, scale)
        ]
        for claim in study.claims:
            able = [finding for finding in known if finding.claim.where == claim.where]
            entries.append(Entry(study, claim, min(able, key=_rank, default=None)))
    return entries


def _rank(finding: Finding) -> tuple[bool, bool]:
    return not any(verdict.comparison for verdict in finding.verdicts), not finding.results.whole
