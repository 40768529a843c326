"""Remedies for a network that has stopped learning: the field's, as functions on a network and its optimizer.

Each changes the network in place, takes its optimizer (or several) along, and says what it changed and by how much
outputs moved. `relucid.convert` has two more, which change no output: `to_crelu` and `revive`.
"""

from relucid.convert import revive
from relucid.remedies._continual_backprop import ContinualBackprop, contribution
from relucid.remedies._effect import Effect, RemedyError
from relucid.remedies._forget import forget
from relucid.remedies._inject import Injected, inject
from relucid.remedies._l2_init import L2Init, l2_distance
from relucid.remedies._redo import redo
from relucid.remedies._reset import reset
from relucid.remedies._shrink_and_perturb import mixed, shrink_and_perturb

__all__ = [
    "ContinualBackprop",
    "Effect",
    "Injected",
    "L2Init",
    "RemedyError",
    "contribution",
    "forget",
    "inject",
    "l2_distance",
    "mixed",
    "redo",
    "reset",
    "revive",
    "shrink_and_perturb",
]
