"""The marks of a table: which cells are better or worse than the baseline's, and which are not what was published."""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from relucid.studies.compare import HOLDS, LEVEL, REVERSED, Known, compare
from relucid.studies.expect import Claim, Higher, Lower, Place
from relucid.studies.judge import Judged, judge

if TYPE_CHECKING:
    from relucid.studies.table import Table


def better(table: "Table") -> dict[tuple[str, str], bool]:
    """The cells that are better or worse than the baseline's, as judged by the study's claims.

    What no claim compares with the baseline is judged as one more claim, with all its comparisons. Without a baseline,
    a cell is marked if it is better, or worse, than everything its claims compare it with.
    """
    baseline = table.study.baseline
    found: dict[tuple[str, str], dict[str, bool | None]] = defaultdict(dict)
    for each in (judged for claim in table.judged.values() for judged in claim):
        a, b = each.expected.a, each.expected.b
        if isinstance(a, Place) and isinstance(b, Place) and a.column == b.column:
            found[a.row, a.column].setdefault(b.row, _improves(table, each))
    if baseline is None:
        sure = {place: set(others.values()) for place, others in found.items()}
        return {
            place: outcomes.pop() is True for place, outcomes in sure.items() if outcomes in ({True}, {False})
        }
    for each in judge(table, Claim("", "", tuple(_against_baseline(table, baseline, found)))):
        assert isinstance(each.expected.a, Place)
        found[each.expected.a.row, each.expected.a.column][baseline] = _improves(table, each)
    marks = {place: others.get(baseline) for place, others in found.items()}
    return {place: better for place, better in marks.items() if better is not None}


def _against_baseline(
    table: "Table", baseline: str, known: Mapping[tuple[str, str], Mapping[str, Any]]
) -> Iterator[Lower | Higher]:
    """Comparisons with the baseline for the cells that no claim compares with it; none at smoke scale."""
    if table.scale == "smoke" or all(row != baseline for row, _ in table.cells):
        return
    for row, column in table.cells:
        best = table.study.columns[column].best
        if row != baseline and best is not None and baseline not in known.get((row, column), {}):
            yield (Lower if best == "lowest" else Higher)(row, than=baseline, columns=column)


def _improves(table: "Table", judged: Judged) -> bool | None:
    """Whether a significant difference is an improvement; None if there is no such difference."""
    assert isinstance(judged.expected.a, Place)
    best = table.study.columns[judged.expected.a.column].best
    if judged.outcome not in (HOLDS, REVERSED) or best is None:
        return None
    if judged.expected.relation not in ("lower", "higher"):
        return None
    lower = (judged.expected.relation == "lower") == (judged.outcome == HOLDS)
    return lower == (best == "lowest")


def confirms(table: "Table") -> dict[tuple[str, str], bool]:
    """Whether chance explains the distance from the published values; at the paper's own scale only."""
    if table.scale != "full":
        return {}
    found = {}
    for place, cell in table.cells.items():
        mean, error = cell.published
        if mean is not None and (against := compare(cell.values, Known(mean, error or 0.0))):
            found[place] = against.p
    return {place: p >= LEVEL / len(found) for place, p in found.items()}
