"""Studies: variants of a network trained and compared honestly, resumable, on one core or on a cluster."""

from relucid.studies.changes import ChangedError
from relucid.studies.compare import Comparison, compare
from relucid.studies.expect import (
    AtMost,
    Claim,
    Derived,
    Equal,
    Higher,
    Lower,
    Near,
    NotWorse,
    Quantity,
    Statistic,
)
from relucid.studies.formats import FORMATS
from relucid.studies.outcome import Outcome
from relucid.studies.plan import Plan, Run, cells, plan
from relucid.studies.run import Result, default_store, run
from relucid.studies.runner import Runner
from relucid.studies.store import Store, StoreError
from relucid.studies.study import Column, Scale, Study
from relucid.studies.table import Cell, Table, table
from relucid.studies.travel import export_results, import_results

__all__ = [
    "FORMATS",
    "AtMost",
    "Cell",
    "ChangedError",
    "Claim",
    "Column",
    "Comparison",
    "Derived",
    "Equal",
    "Higher",
    "Lower",
    "Near",
    "NotWorse",
    "Outcome",
    "Plan",
    "Quantity",
    "Result",
    "Run",
    "Runner",
    "Scale",
    "Statistic",
    "Store",
    "StoreError",
    "Study",
    "Table",
    "cells",
    "compare",
    "default_store",
    "export_results",
    "import_results",
    "plan",
    "run",
    "table",
]
