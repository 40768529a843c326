"""A forest plot as a drawing that needs no script: effects with their intervals, and the published ones."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from textwrap import wrap
from typing import Any

from markupsafe import Markup

from evidence.effects import Effect
from relucid.report.figure import PALETTE
from relucid.report.page import environment
from relucid.studies.compare import HOLDS, REVERSED

TEMPLATE = Path(__file__).with_name("forest.svg")
# In units of the drawing; a phone shows about two thirds of a pixel for each, a desktop five quarters.
WIDTH, LEFT, EDGE = 520, 232, 12  # the labels are left of the axis
TEXT, LINE, GAP = 15, 8, 5  # heights of a line of text, of an interval among others, and between rows
TOP, BOTTOM = 42, 32
REACH = 30  # per cent; an arrow stands for what is beyond
TICKS = (-20, -10, 0, 10, 20)
BESIDE = 36  # characters that fit beside the axis
KINDS = {HOLDS: "holds", REVERSED: "reversed"}
Part = dict[str, Any]  # of the drawing, for the template


@dataclass(frozen=True)
class ForestRow:
    """A label and the effects that are drawn beside it."""

    label: str
    effects: Sequence[Effect]


@dataclass(frozen=True)
class Forest:
    """The drawing, as SVG, and a description for readers who cannot see it."""

    title: str
    alt: str
    svg: Markup


def forest(title: str, rows: Sequence[ForestRow]) -> Forest:
    """The rows below each other, with an axis above and a legend below."""
    parts: list[Part] = []
    y = TOP
    for row in rows:
        drawn, y = _row(row, y)
        parts += drawn
    described = ", ".join(row.label for row in rows)
    alt = f"{title}. Effects with intervals, in per cent of the baseline. {described}."
    svg = environment().from_string(TEMPLATE.read_text()).render(
        parts=parts, alt=alt, width=WIDTH, height=y + BOTTOM, left=LEFT, top=TOP, bottom=y,
        ticks=[(tick, _x(tick)) for tick in TICKS], colours=PALETTE,
    )  # fmt: skip
    return Forest(title, alt, Markup(svg))


def _row(row: ForestRow, y: int) -> tuple[list[Part], int]:
    """What is drawn for a row that begins at y, and where it ends."""
    lines = wrap(row.label, BESIDE, break_on_hyphens=False)
    height = max(TEXT * len(lines), LINE * len(row.effects))
    parts: list[Part] = [
        {"kind": "label", "y": y + 11 + TEXT * number, "text": text} for number, text in enumerate(lines)
    ]
    pitch = max(LINE, TEXT) if len(row.effects) == 1 else LINE
    parts += [_interval(effect, y + pitch * number + pitch // 2) for number, effect in enumerate(row.effects)]
    return parts, y + height + GAP


def _interval(effect: Effect, y: int) -> Part:
    published = effect.published
    return {
        "kind": "interval",
        "y": y,
        "text": str(effect.judged),
        "outcome": KINDS.get(effect.judged.outcome, "undecided"),
        "low": _x(effect.low),
        "high": _x(effect.high),
        "at": _x(effect.size) if abs(effect.size) <= REACH else None,
        "left": effect.low < -REACH,
        "right": effect.high > REACH,
        "published": None if published is None else _x(published),
    }


def _x(percent: float) -> float:
    """Where a share stands on the axis, at its end if it is beyond."""
    inside = max(-REACH, min(REACH, percent)) / REACH
    middle = (LEFT + WIDTH) / 2
    return round(middle + inside * (middle - LEFT - EDGE), 1)
