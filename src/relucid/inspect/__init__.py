"""What a network has learned: which units are dead, paired or redundant, and where their boundaries lie."""

from relucid.inspect.activity import Activity, ActivityCounter
from relucid.inspect.boundary import Boundary, boundary, hyperplanes
from relucid.inspect.callbacks import hugging_face_callback, lightning_callback
from relucid.inspect.classes import ClassActivity
from relucid.inspect.comparison import Comparison, LayerChange, compare
from relucid.inspect.complexity import Complexity, complexity
from relucid.inspect.convergence import convergence
from relucid.inspect.examination import Examination
from relucid.inspect.examine import examine
from relucid.inspect.findings import Finding
from relucid.inspect.invariance import Invariance, invariance
from relucid.inspect.measurement import Gauge, Measurement, Network, Seen
from relucid.inspect.measures import MEASURES, USUAL
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
from relucid.inspect.suggestion import Suggestion
from relucid.inspect.top import TopInputs
from relucid.inspect.trace import Rectified, Source, Trace, trace
from relucid.inspect.tracker import BoundaryTracker, Evolution

__all__ = [
    "ACTIVATIONS",
    "MEASURES",
    "USUAL",
    "Activity",
    "ActivityCounter",
    "Boundary",
    "BoundaryTracker",
    "ClassActivity",
    "Comparison",
    "Complexity",
    "Evolution",
    "Examination",
    "Finding",
    "Gauge",
    "Invariance",
    "LayerChange",
    "Measurement",
    "Network",
    "Objective",
    "Pairing",
    "Perturbation",
    "PhaseCorrelation",
    "Reconstruction",
    "Rectified",
    "Seen",
    "Source",
    "Suggestion",
    "TopInputs",
    "Trace",
    "boundary",
    "compare",
    "complexity",
    "convergence",
    "examine",
    "figure_of_images",
    "figure_of_pairs",
    "frame_bounds",
    "hugging_face_callback",
    "hyperplanes",
    "invariance",
    "lightning_callback",
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
