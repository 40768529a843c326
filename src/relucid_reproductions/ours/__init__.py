"""Our own studies: which networks keep learning, and what the three papers leave open."""

from types import ModuleType

from relucid.experiments import Statement
from relucid_reproductions.ours import (
    calibration,
    games,
    mend,
    merge,
    plasticity,
    ppo,
    quickstart,
    recommender,
    repair,
    together,
)

TABLES: list[ModuleType] = [
    quickstart,
    recommender,
    repair,
    ppo,
    games,
    plasticity,
    mend,
    together,
    merge,
    calibration,
]
STATEMENTS: list[Statement] = []

__all__ = ["STATEMENTS", "TABLES"]
