"""Studies: a grid of runs in, records out; means, intervals, outcomes and pages are computed from records."""

from relucid.experiments._frame import Cell, Record, Results
from relucid.experiments._judge import (
    Claim,
    Comparison,
    Contrast,
    Quantity,
    bootstrap,
    compare,
    compare_shares,
    higher,
    lower,
    not_worse,
)
from relucid.experiments._study import Column, Run, Runner, Scale, Study, by_cell, merge, runner
from relucid.experiments._tuning import tuning

__all__ = [
    "Cell",
    "Claim",
    "Column",
    "Comparison",
    "Contrast",
    "Quantity",
    "Record",
    "Results",
    "Run",
    "Runner",
    "Scale",
    "Study",
    "bootstrap",
    "by_cell",
    "compare",
    "compare_shares",
    "higher",
    "lower",
    "merge",
    "not_worse",
    "runner",
    "tuning",
]
