"""Studies: a grid of runs in, records out; means, intervals, outcomes and pages are computed from records."""

from typing import TYPE_CHECKING

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

if TYPE_CHECKING:
    from relucid.experiments._execute import run

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

if not TYPE_CHECKING:  # a type checker would take every name for an object

    def __getattr__(name: str) -> object:
        """Import `run`, and so torch, when it is first used: to look at results takes neither torch nor its seconds."""
        if name != "run":
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from relucid.experiments._execute import run

        return run
