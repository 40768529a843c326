"""crelu: Shang, Sohn, Almeida, Lee: Understanding and Improving CNNs via Concatenated ReLU (ICML 2016)."""

from types import ModuleType

from relucid.experiments import Statement

TABLES: list[ModuleType] = []
STATEMENTS: list[Statement] = []

__all__ = ["STATEMENTS", "TABLES"]
