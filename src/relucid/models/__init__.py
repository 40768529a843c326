"""Every network of the three papers, and every other combination of a backbone and a design."""

from relucid.models.describe import Description, describe
from relucid.models.design import Design
from relucid.models.plain import LayerOptions
from relucid.models.registry import Network, create, names

__all__ = ["Description", "Design", "LayerOptions", "Network", "create", "describe", "names"]
