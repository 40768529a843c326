"""Change a network, keep its function, and keep it yours: the result is of the network's own class."""

from relucid.convert._fuse import fuse
from relucid.convert._restore import is_saved, load, restore
from relucid.convert._revive import revive
from relucid.convert.conversion import Change, Conversion
from relucid.convert.crelu import to_crelu
from relucid.convert.errors import ConversionError, UnchangedWarning
from relucid.convert.geometric import to_geometric
from relucid.convert.heavyball import to_heavy_ball

__all__ = [
    "Change",
    "Conversion",
    "ConversionError",
    "UnchangedWarning",
    "fuse",
    "is_saved",
    "load",
    "restore",
    "revive",
    "to_crelu",
    "to_geometric",
    "to_heavy_ball",
]
