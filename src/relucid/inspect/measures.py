"""All measurements by name. To add one, write a file with its class and add a line here."""

from __future__ import annotations

from relucid.inspect._boundary import Boundary
from relucid.inspect._invariance import LayerInvariance
from relucid.inspect._pairing import Pairings
from relucid.inspect.activity import Activity
from relucid.inspect.measurement import Measurement
from relucid.inspect.phase import PhaseCorrelations
from relucid.inspect.plasticity import Plasticity
from relucid.inspect.reconstruction import Lost

MEASURES: dict[str, type[Measurement]] = {
    "pairing": Pairings,
    "phase_correlation": PhaseCorrelations,
    "boundary": Boundary,
    "activity": Activity,
    "plasticity": Plasticity,
    "reconstruct": Lost,
    "invariance": LayerInvariance,
}
"""Measurements by name; add your own class to make `examine` run it."""

USUAL = ("pairing", "phase_correlation", "boundary", "activity")
"""Names of the measurements that `examine` runs by default."""

THOROUGH = (*USUAL, "plasticity")
"""Names of those that callbacks and `relucid examine` run."""
