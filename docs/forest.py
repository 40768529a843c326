"""A forest plot as a drawing that needs no script: effects with their intervals, and the published ones."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from textwrap import wrap
from typing import Any, NamedTuple

from relucid.experiments._judge import Verdict, cell_of
from relucid.experiments._page import Finding
from relucid.report.figure import PALETTE
from relucid.report.page import environment

TEMPLATE = Path(__file__).parent / "templates" / "forest.svg"
# In units of the drawing; a phone shows about two thirds of a pixel for each, a desktop five quarters.
WIDTH, LEFT, EDGE = 520, 232, 12  # the labels are left of the axis
TEXT, LINE, GAP = 15, 8, 5  # heights of a line of text, of an interval among others, and between rows
TOP, BOTTOM = 42, 32
REACHES = (
    30,
    90,
    300,
)  # per cent: the first that shows half of the effects; an arrow stands for what is beyond
BESIDE = 36  # characters that fit beside the axis


class Effect(NamedTuple):
    """A contrast in per cent of B's error; positive is what was claimed."""

    verdict: Verdict
    size: float
    low: float
    high: float
    published: float | None


def effects(finding: Finding) -> list[Effect]:
    """The contrasts of a claim for which B is of a cell with an error that is above zero beyond its noise."""
    return [effect for verdict in finding.verdicts if (effect := _effect(finding, verdict))]


def _effect(finding: Finding, verdict: Verdict) -> Effect | None:
    results, contrast = finding.results, verdict.contrast
    b = cell_of(contrast.b)
    if verdict.comparison is None or b is None:
        return None
    values, column = results[b.row, b.column], results.study.columns[b.column]
    error = 2 * values.sem() if len(values) > 1 else 0.0
    if column.best is None or not len(values) or abs(values.mean() - column.perfect) <= error:
        return None
    share = 100 * contrast.sign / abs(float(values.mean()) - column.perfect)
    low, high = sorted(share * end for end in verdict.comparison.interval(1 - verdict.level))
    published = None if verdict.published is None else share * verdict.published
    return Effect(verdict, share * verdict.comparison.effect, low, high, published)


def forest(title: str, rows: Iterable[tuple[str, Finding]]) -> str:
    """The effects of claims below each other as SVG, with an axis above and a legend below."""
    parts, labels, y = list[dict[str, Any]](), list[str](), TOP
    known = {label: drawn for label, finding in rows if (drawn := effects(finding))}
    reach = reach_of([effect.size for drawn in known.values() for effect in drawn])
    for label, drawn in known.items():
        new, y = _row(label, drawn, y, reach)
        parts += new
        labels.append(label)
    svg: str = environment().from_string(TEMPLATE.read_text(encoding="utf-8")).render(
        parts=parts,
        alt=f"{title}. Effects with intervals, in per cent of the baseline. {', '.join(labels)}.",
        width=WIDTH, height=y + BOTTOM, left=LEFT, top=TOP, bottom=y,
        ticks=[(tick * reach // 3, _x(tick * reach / 3, reach)) for tick in range(-2, 3)], colours=PALETTE,
    )  # fmt: skip
    return f"{svg}\n"


def reach_of(sizes: Sequence[float]) -> int:
    """How far the axis goes.

    >>> reach_of([-10.0, 20.0, 29.0, 400.0]), reach_of([50.0, 400.0]), reach_of([100.0])
    (30, 90, 300)
    """
    fits = (reach for reach in REACHES if sum(abs(size) <= reach for size in sizes) >= len(sizes) / 2)
    return next(fits, REACHES[-1])


def _row(label: str, drawn: Sequence[Effect], y: int, reach: int) -> tuple[list[dict[str, Any]], int]:
    """What is drawn for a row that begins at y, and where it ends."""
    lines = wrap(label, BESIDE, break_on_hyphens=False)
    parts: list[dict[str, Any]] = [
        {"kind": "label", "y": y + 11 + TEXT * number, "text": text} for number, text in enumerate(lines)
    ]
    pitch = max(LINE, TEXT) if len(drawn) == 1 else LINE
    parts += [
        _interval(effect, y + pitch * number + pitch // 2, reach) for number, effect in enumerate(drawn)
    ]
    return parts, y + max(TEXT * len(lines), LINE * len(drawn)) + GAP


def _interval(effect: Effect, y: int, reach: int) -> dict[str, Any]:
    outcome = effect.verdict.outcome
    return {
        "kind": "interval",
        "y": y,
        "text": str(effect.verdict),
        "outcome": outcome if outcome in ("confirmed", "reversed") else "open",
        "low": _x(effect.low, reach),
        "high": _x(effect.high, reach),
        "at": _x(effect.size, reach) if abs(effect.size) <= reach else None,
        "left": effect.low < -reach,
        "right": effect.high > reach,
        "published": None if effect.published is None else _x(effect.published, reach),
    }


def _x(percent: float, reach: int) -> float:
    """Where a share stands on the axis, at its end if it is beyond."""
    inside = max(-reach, min(reach, percent)) / reach
    middle = (LEFT + WIDTH) / 2
    return round(middle + inside * (middle - LEFT - EDGE), 1)
