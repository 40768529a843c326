"""gmp: Chen, Ge: Neural Characteristic Activation Value Analysis (geometric parameterization)."""

from types import ModuleType

from relucid.experiments import Statement

TABLES: list[ModuleType] = []
STATEMENTS: list[Statement] = []

__all__ = ["STATEMENTS", "TABLES"]
