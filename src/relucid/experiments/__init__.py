"""Studies: a grid of runs in, records out; means, intervals, outcomes and pages are computed from records."""

from relucid.experiments._execute import run
from relucid.experiments._frame import Cell, Results, frame
from relucid.experiments._judge import (
    Claim,
    Comparison,
    Contrast,
    Quantity,
    Statement,
    at_most,
    bootstrap,
    compare,
    compare_shares,
    equal,
    higher,
    lower,
    near,
    not_worse,
)
from relucid.experiments._records import Record, arrays_of, read
from relucid.experiments._store import Store, StoreError
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
    "Statement",
    "Store",
    "StoreError",
    "Study",
    "arrays_of",
    "at_most",
    "bootstrap",
    "by_cell",
    "compare",
    "compare_shares",
    "equal",
    "frame",
    "higher",
    "lower",
    "merge",
    "near",
    "not_worse",
    "read",
    "run",
    "runner",
    "tuning",
]
