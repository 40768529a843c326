"""Training: one network, or hundreds of small ones at once."""

from relucid.memory import keep_memory, memory_is_kept
from relucid.train._ensemble import Ensemble, ensemble
from relucid.train._fit import Fitted, fit
from relucid.train.engine import Engine, noting
from relucid.train.measure import DivergedError, vote
from relucid.train.plateau import Plateau
from relucid.train.recipe import Recipe
from relucid.train.resources import Machine

__all__ = [
    "DivergedError",
    "Engine",
    "Ensemble",
    "Fitted",
    "Machine",
    "Plateau",
    "Recipe",
    "ensemble",
    "fit",
    "keep_memory",
    "memory_is_kept",
    "noting",
    "vote",
]
