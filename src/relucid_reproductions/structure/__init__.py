"""structure: Li, Yang, Chen, Lin: Optimization Algorithm Inspired DNN Structure Design (2018)."""

from types import ModuleType

from relucid.experiments import Statement

TABLES: list[ModuleType] = []
STATEMENTS: list[Statement] = []

__all__ = ["STATEMENTS", "TABLES"]
