"""What a network has learned: which units are dead, paired or redundant, and where their boundaries lie."""

from relucid.inspect.boundary import Activity, ActivityCounter, Boundary, boundary, hyperplanes
from relucid.inspect.complexity import Complexity, complexity
from relucid.inspect.convergence import convergence
from relucid.inspect.examination import Examination
from relucid.inspect.examine import examine
from relucid.inspect.findings import Finding
from relucid.inspect.invariance import Invariance, invariance
from relucid.inspect.objective import ACTIVATIONS, Objective, minimize
from relucid.inspect.pairing import Pairing, figure_of_pairs, pairing
from relucid.inspect.perturbation import Perturbation, perturbation
from relucid.inspect.phase import PhaseCorrelation, phase_correlation
from relucid.inspect.reconstruction import (
    Reconstruction,
    figure_of_images,
    frame_bounds,
    pooling_bound,
    random_layer,
    random_ratio,
    ratio_of_layer,
    reconstruct,
    reconstruction_ratio,
)
from relucid.inspect.trace import Rectified, Source, Trace, trace
from relucid.inspect.tracker import BoundaryTracker, Evolution

__all__ = [
    "ACTIVATIONS",
    "Activity",
    "ActivityCounter",
    "Boundary",
    "BoundaryTracker",
    "Complexity",
    "Evolution",
    "Examination",
    "Finding",
    "Invariance",
    "Objective",
    "Pairing",
    "Perturbation",
    "PhaseCorrelation",
    "Reconstruction",
    "Rectified",
    "Source",
    "Trace",
    "boundary",
    "complexity",
    "convergence",
    "examine",
    "figure_of_images",
    "figure_of_pairs",
    "frame_bounds",
    "hyperplanes",
    "invariance",
    "minimize",
    "pairing",
    "perturbation",
    "phase_correlation",
    "pooling_bound",
    "random_layer",
    "random_ratio",
    "ratio_of_layer",
    "reconstruct",
    "reconstruction_ratio",
    "trace",
]
