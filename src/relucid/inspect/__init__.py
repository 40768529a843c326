"""What a network has learned: which units are dead, paired or redundant, and where their boundaries lie.

`examine` measures all layers at once; the other functions measure one thing each. Quantities that only the papers'
own studies need, such as Rademacher complexities, are in `relucid_reproductions`.
"""

from relucid._deprecated import renamed
from relucid.inspect._boundary import Boundary, boundary
from relucid.inspect._examine import DEFAULT_MEASURES, EXTENDED_MEASURES, MEASURES, examine
from relucid.inspect._invariance import Invariance, invariance
from relucid.inspect._metrics import metrics
from relucid.inspect._pairing import Pairing, figure_of_pairs, pairing
from relucid.inspect._trace import Rectified, Trace, trace
from relucid.inspect.activity import Activity
from relucid.inspect.callbacks import hugging_face_callback, lightning_callback
from relucid.inspect.examination import Changes, Examination, ExaminedLayer
from relucid.inspect.features import approximate_rank, effective_rank, srank, stable_rank
from relucid.inspect.findings import Finding, Suggestion
from relucid.inspect.measurement import LayerBatch, Measurement, StreamingMeasure
from relucid.inspect.phase import PhaseCorrelation, phase_correlation
from relucid.inspect.plasticity import Plasticity
from relucid.inspect.reconstruction import Reconstruction, reconstruct, reconstruction_ratio
from relucid.inspect.tracker import BoundaryTracker, Evolution
from relucid.inspect.watch import Watch

__all__ = [
    "DEFAULT_MEASURES",
    "EXTENDED_MEASURES",
    "MEASURES",
    "Activity",
    "Boundary",
    "BoundaryTracker",
    "Changes",
    "Evolution",
    "Examination",
    "ExaminedLayer",
    "Finding",
    "Invariance",
    "LayerBatch",
    "Measurement",
    "Pairing",
    "PhaseCorrelation",
    "Plasticity",
    "Reconstruction",
    "Rectified",
    "StreamingMeasure",
    "Suggestion",
    "Trace",
    "Watch",
    "approximate_rank",
    "boundary",
    "effective_rank",
    "examine",
    "figure_of_pairs",
    "hugging_face_callback",
    "invariance",
    "lightning_callback",
    "metrics",
    "pairing",
    "phase_correlation",
    "reconstruct",
    "reconstruction_ratio",
    "srank",
    "stable_rank",
    "trace",
]

__getattr__ = renamed(
    __name__,
    {
        "Gauge": "StreamingMeasure",
        "Seen": "LayerBatch",
        "USUAL": "DEFAULT_MEASURES",
        "THOROUGH": "EXTENDED_MEASURES",
    },
)
