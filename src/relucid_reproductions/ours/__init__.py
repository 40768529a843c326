"""Our own studies: questions that no paper has asked."""

from types import ModuleType

from relucid.experiments import Statement

TABLES: list[ModuleType] = []
STATEMENTS: list[Statement] = []

__all__ = ["STATEMENTS", "TABLES"]
