"""Building blocks of ReLU networks: drop-in modules that need torch only."""

from relucid.nn._geometric import (
    GeometricConv1d,
    GeometricConv2d,
    GeometricConv3d,
    GeometricLayer,
    GeometricLinear,
)
from relucid.nn._parameter_groups import parameter_groups
from relucid.nn.activation import AVR, CReLU, crelu, crelu_inverse
from relucid.nn.meannorm import MeanNorm, update_norms
from relucid.nn.pairwise import Pairwise, PairwiseConv2d
from relucid.nn.parametrization import geometric
from relucid.nn.propagation import Propagation
from relucid.nn.rules import (
    ADMM,
    RULES,
    HeavyBall,
    LatestNesterov2,
    Nesterov,
    Nesterov2,
    Plain,
    RelaxedADMM,
    RelaxedNesterov2,
    Residual,
    Rule,
)
from relucid.nn.sphere import angles_of, direction, latitudes_of, metric, unit_vector

__all__ = [
    "ADMM",
    "AVR",
    "RULES",
    "CReLU",
    "GeometricConv1d",
    "GeometricConv2d",
    "GeometricConv3d",
    "GeometricLayer",
    "GeometricLinear",
    "HeavyBall",
    "LatestNesterov2",
    "MeanNorm",
    "Nesterov",
    "Nesterov2",
    "Pairwise",
    "PairwiseConv2d",
    "Plain",
    "Propagation",
    "RelaxedADMM",
    "RelaxedNesterov2",
    "Residual",
    "Rule",
    "angles_of",
    "crelu",
    "crelu_inverse",
    "direction",
    "geometric",
    "latitudes_of",
    "metric",
    "parameter_groups",
    "unit_vector",
    "update_norms",
]
