"""Understand and improve ReLU networks.

Three independent choices in the design of a ReLU network, each from one line of research: what a unit lets
through (``activation``), how its hyperplane is described (``weights`` and ``norm``) and how the layers follow
each other (``propagation``). What people need most is here by name, and imported when it is first used.
"""

from importlib import import_module as _import
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from relucid._improve import improve as improve
    from relucid.convert import Conversion as Conversion
    from relucid.convert import ConversionError as ConversionError
    from relucid.convert import fuse as fuse
    from relucid.convert import load as load
    from relucid.convert import restore as restore
    from relucid.convert import revive as revive
    from relucid.convert import to_crelu as to_crelu
    from relucid.convert import to_geometric as to_geometric
    from relucid.convert import to_heavy_ball as to_heavy_ball
    from relucid.inspect import Examination as Examination
    from relucid.inspect import Watch as Watch
    from relucid.inspect import examine as examine
    from relucid.inspect import metrics as metrics
    from relucid.models import Design as Design
    from relucid.models import create as create
    from relucid.nn import AVR as AVR
    from relucid.nn import CReLU as CReLU
    from relucid.nn import GeometricConv1d as GeometricConv1d
    from relucid.nn import GeometricConv2d as GeometricConv2d
    from relucid.nn import GeometricConv3d as GeometricConv3d
    from relucid.nn import GeometricLinear as GeometricLinear
    from relucid.nn import MeanNorm as MeanNorm
    from relucid.nn import Propagation as Propagation
    from relucid.nn import parameter_groups as parameter_groups
    from relucid.remedies import ContinualBackprop as ContinualBackprop
    from relucid.remedies import L2Init as L2Init
    from relucid.remedies import forget as forget
    from relucid.remedies import inject as inject
    from relucid.remedies import redo as redo
    from relucid.remedies import reset as reset
    from relucid.remedies import shrink_and_perturb as shrink_and_perturb

__version__ = "0.3.0"

_ROOMS = {
    "relucid.nn": (
        *("CReLU", "AVR", "MeanNorm", "Propagation", "parameter_groups"),
        *("GeometricLinear", "GeometricConv1d", "GeometricConv2d", "GeometricConv3d"),
    ),
    "relucid.models": ("Design", "create"),
    "relucid.inspect": ("Examination", "Watch", "examine", "metrics"),
    "relucid.convert": (
        *("Conversion", "ConversionError", "fuse", "load", "restore", "revive"),
        *("to_crelu", "to_geometric", "to_heavy_ball"),
    ),
    "relucid.remedies": (
        *("ContinualBackprop", "L2Init", "forget", "inject", "redo", "reset", "shrink_and_perturb"),
    ),
    "relucid._improve": ("improve",),
}
_NAMES = {name: room for room, names in _ROOMS.items() for name in names}

if not TYPE_CHECKING:  # a type checker would take every name for an object

    def __getattr__(name: str) -> object:
        """Import a name on first use: `import relucid` alone takes no time, and only training needs more than torch."""
        if name not in _NAMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from relucid.extras import needed

        with needed(f"relucid.{name}"):
            return getattr(_import(_NAMES[name]), name)


def __dir__() -> list[str]:
    return [name for name in (*globals(), *_NAMES) if name != "TYPE_CHECKING"]
