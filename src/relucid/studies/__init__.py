"""Studies: variants of a network trained and compared honestly, resumable, on one core or on a cluster."""

from relucid.studies.catalog import built_in, find
from relucid.studies.changes import ChangedError
from relucid.studies.formats import FORMATS
from relucid.studies.plan import Run, cells, plan
from relucid.studies.run import Result, default_store, run
from relucid.studies.runner import Runner
from relucid.studies.store import Outcome, Store, StoreError
from relucid.studies.study import Column, Scale, Study
from relucid.studies.table import Cell, Table, table
from relucid.studies.travel import bring, exported

__all__ = [
    "FORMATS",
    "Cell",
    "ChangedError",
    "Column",
    "Outcome",
    "Result",
    "Run",
    "Runner",
    "Scale",
    "Store",
    "StoreError",
    "Study",
    "Table",
    "bring",
    "built_in",
    "cells",
    "default_store",
    "exported",
    "find",
    "plan",
    "run",
    "table",
]
