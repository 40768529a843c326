"""Understand and improve ReLU networks.

Three independent choices in the design of a ReLU network, each from one line of research: what a unit lets
through (``activation``), how its hyperplane is described (``weights`` and ``norm``) and how the layers follow
each other (``propagation``).
"""

__version__ = "0.2.0"
