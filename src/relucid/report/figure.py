"""What a page shows as a figure, and the colours that all figures share."""

from dataclasses import dataclass
from html import escape
from textwrap import wrap
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import plotly.graph_objects as go

# The first three are Okabe and Ito's. Each has a contrast of 3 or more with the light page and with the dark one, and
# any two can be distinguished by readers who do not see red, green or blue.
PALETTE = ("#0072b2", "#d55e00", "#009e73", "#9a06f7", "#9690af", "#f60153")
"""Colours of lines and bars, in order of use."""


@dataclass(frozen=True)
class Figure:
    """A plot, and the title and text that a page shows with it.

    A plot needs no colours for its text, its axes and its background, and no sliders: the page gives it those that
    suit it, light or dark, and plays its frames, if it has any, by their names.

    Args:
        title: what it shows, in a few words; the page prints it, so that the plot need not.
        alt: a description for readers who cannot see it.
        plot: as Plotly has it.
    """

    title: str
    alt: str
    plot: "go.Figure"

    @property
    def wide(self) -> bool:
        """Whether it has panels side by side, which need the whole width of a page.

        >>> from plotly.subplots import make_subplots
        >>> [Figure("", "", make_subplots(*shape)).wide for shape in ((1, 2), (2, 1), (1, 1))]
        [True, False, False]
        """
        return len({axis.domain for axis in self.plot.select_xaxes()} - {None}) > 1


def literal(text: str) -> str:
    """Escape text for Plotly, which interprets some HTML.

    >>> literal("<b> & co")
    '&lt;b&gt; &amp; co'
    """
    return escape(text, quote=False)


def wrapped(text: str) -> str:
    """Escaped text in lines of about 24 characters, for the labels of an axis.

    >>> wrapped("ResNet-110 without ReLU after the sum")
    'ResNet-110 without ReLU<br>after the sum'
    """
    return "<br>".join(map(literal, wrap(text, 24, break_long_words=False)))


def template(ink: str, lines: str) -> "go.layout.Template":
    """The template of all plots, with text of colour `ink` and a grid of colour `lines`."""
    import plotly.graph_objects as go

    axis = {"gridcolor": lines, "zerolinecolor": lines, "linecolor": lines, "automargin": True}
    return go.layout.Template(
        data={"contour": [{"line": {"color": ink}}]},
        layout={
            "colorway": PALETTE,
            "font": {"color": ink, "family": "system-ui, sans-serif", "size": 13},
            "paper_bgcolor": "rgba(0,0,0,0)",
            "plot_bgcolor": "rgba(0,0,0,0)",
            "xaxis": axis,
            "yaxis": axis,
            "colorscale": {"sequential": "Cividis", "diverging": "RdBu"},
            "legend": {"orientation": "h", "yref": "container", "yanchor": "bottom", "y": 0, "x": 0},
            "margin": {"l": 48, "r": 16, "t": 52, "b": 40},
            "modebar": {"bgcolor": "rgba(0,0,0,0)", "color": ink, "activecolor": PALETTE[1]},
            "hovermode": "closest",
        },
    )


LIGHT, DARK = ("#1c1f24", "#d8dce2"), ("#e8eaed", "#3a4049")  # ink and lines
