"""Our own studies: which networks keep learning, and what the three papers leave open."""

from types import ModuleType

from relucid.experiments import Statement
from relucid_reproductions.ours import (
    calibration,
    games,
    halve,
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
    halve,
    calibration,
]
STATEMENTS: list[Statement] = []

__all__ = ["STATEMENTS", "TABLES"]
