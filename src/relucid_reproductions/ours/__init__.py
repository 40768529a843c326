"""Our own studies: questions that no paper has asked."""

from types import ModuleType

from relucid.experiments import Statement
from relucid_reproductions.ours import recommender, repair

TABLES: list[ModuleType] = [recommender, repair]
STATEMENTS: list[Statement] = []

__all__ = ["STATEMENTS", "TABLES"]
