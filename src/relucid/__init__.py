"""Understand and improve ReLU networks.

Three independent choices in the design of a ReLU network, each from one line of research: what a unit lets
through (``activation``), how its hyperplane is described (``weights`` and ``norm``) and how the layers follow
each other (``propagation``).
"""

__version__ = "0.2.0"


def __getattr__(name: str) -> object:
    """Import `improve` on first use: training needs more than torch and numpy."""
    if name == "improve":
        from importlib import import_module

        from relucid.extras import needed

        with needed("relucid.improve"):
            return import_module("relucid.studies.improve").improve
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
