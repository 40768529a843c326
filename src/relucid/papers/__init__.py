"""One package per paper: each table and figure with its rows, runs, published values, claims and errata."""

from relucid.papers.catalog import PAPERS, built_in, find, recorded, statements, studies

__all__ = ["PAPERS", "built_in", "find", "recorded", "statements", "studies"]
