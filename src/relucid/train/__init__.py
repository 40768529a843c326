"""Training: one network with Lightning, or hundreds of small ones at once."""

from relucid.train.ensemble import Ensemble, ensemble
from relucid.train.plateau import Plateau

__all__ = ["Ensemble", "Plateau", "ensemble"]
