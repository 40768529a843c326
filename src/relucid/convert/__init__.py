"""Change a network and keep its function: CReLU, geometric layers, heavy ball, and plain layers again."""

from relucid.convert.capture import capture
from relucid.convert.conversion import Change, Conversion
from relucid.convert.crelu import to_crelu
from relucid.convert.fuse import fuse
from relucid.convert.geometric import to_geometric
from relucid.convert.graph import ConversionError
from relucid.convert.heavyball import HeavyBallSum, to_heavy_ball
from relucid.convert.saved import load, save

__all__ = [
    "Change",
    "Conversion",
    "ConversionError",
    "HeavyBallSum",
    "capture",
    "fuse",
    "load",
    "save",
    "to_crelu",
    "to_geometric",
    "to_heavy_ball",
]
