"""The figure that several of our studies share: what networks do, task after task, and how many of their units die."""

from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import TYPE_CHECKING

from relucid.report.figure import PALETTE

if TYPE_CHECKING:
    import plotly.graph_objects as go

Course = tuple[Sequence[float], Sequence[float]]  # a score and the share of dead units, task after task


def over_tasks(panels: Mapping[str, Mapping[str, Course]], score: str) -> "go.Figure":
    """Draw scores over the tasks by name, above the shares of dead units; one panel beside the other."""
    from plotly.subplots import make_subplots

    titles = [*panels] if len(panels) > 1 else None
    plot: go.Figure = make_subplots(
        2,
        len(panels),
        subplot_titles=titles,
        shared_xaxes=True,
        row_heights=[0.65, 0.35],
        vertical_spacing=0.08,
    )
    for place, courses in enumerate(panels.values(), start=1):
        for (name, course), color in zip(courses.items(), PALETTE * 2, strict=False):
            for line, y in enumerate(course, start=1):
                look = {
                    "name": name,
                    "legendgroup": name,
                    "showlegend": place == line == 1,
                    "line_color": color,
                }
                plot.add_scatter(x=[*range(1, len(y) + 1)], y=list(y), row=line, col=place, **look)
    plot.update_layout(height=480 if titles is None else 560).update_xaxes(title_text="task", row=2)
    plot.update_yaxes(title_text=score, row=1, col=1)
    return plot.update_yaxes(title_text="dead units %", row=2, col=1)


def smoothed(values: Sequence[float]) -> list[float]:
    """Running means over a tenth of the values.

    >>> smoothed([1.0, 3.0, 5.0])
    [1.0, 3.0, 5.0]
    """
    window = max(1, len(values) // 10)
    return [fmean(values[max(0, place - window + 1) : place + 1]) for place in range(len(values))]
