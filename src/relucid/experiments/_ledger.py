"""Every claim, judged by the largest complete scale that can answer it."""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from relucid.experiments._frame import Results
from relucid.experiments._records import Record
from relucid.experiments._judge import Claim
from relucid.experiments._page import Finding, findings, largest_first
from relucid.experiments._study import Study


class Entry(NamedTuple):
    """A claim of a study, and what was found at which scale; None if it has not been run."""

    study: Study
    claim: Claim
    scale: str
    finding: Finding | None


def ledger(studies: Iterable[Study], records: Mapping[str, Record]) -> list[Entry]:
    """One entry per claim: complete scales come first, then larger ones; a scale that can compare nothing comes last."""
    entries = []
    for study in studies:
        results = [
            found
            for scale in largest_first(study)
            if scale != "smoke" and (found := Results(study, scale, records)).records
        ]
        known = {each.scale: {found.claim.where: found for found in findings(each)} for each in results}
        for claim in study.claims:
            able = [each for each in results if claim.where in known[each.scale]]
            best = min(
                able,
                key=lambda each: (
                    not any(v.comparison for v in known[each.scale][claim.where].verdicts),
                    not each.whole,
                ),
                default=None,
            )
            entries.append(
                Entry(
                    study, claim, best.scale if best else "", known[best.scale][claim.where] if best else None
                )
            )
    return entries
