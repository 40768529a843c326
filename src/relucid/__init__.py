"""Understand and improve ReLU networks.

Three independent choices in the design of a ReLU network, each from one line of research: what a unit lets
through (``activation``), how its hyperplane is described (``weights`` and ``norm``) and how the layers follow
each other (``propagation``). What people need most is here by name, and imported when it is first used.
"""

from importlib import import_module

__version__ = "0.3.0"

_NAMES = {
    **dict.fromkeys(("CReLU", "AVR", "MeanNorm", "Propagation", "parameter_groups"), "relucid.nn"),
    **dict.fromkeys(
        ("GeometricLinear", "GeometricConv1d", "GeometricConv2d", "GeometricConv3d"), "relucid.nn"
    ),
    "create": "relucid.models",
    "examine": "relucid.inspect",
    **dict.fromkeys(("to_crelu", "to_geometric", "to_heavy_ball", "fuse"), "relucid.convert"),
    "improve": "relucid._improve",
}


def __getattr__(name: str) -> object:
    """Import a name on first use: `import relucid` alone takes no time, and only training needs more than torch."""
    if name not in _NAMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from relucid.extras import needed

    with needed(f"relucid.{name}"):
        return getattr(import_module(_NAMES[name]), name)


def __dir__() -> list[str]:
    return [*globals(), *_NAMES]
