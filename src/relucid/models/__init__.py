"""Every network of the three papers, and every other combination of a backbone and a design."""

from relucid.models._create import BACKBONES, Backbone, Network, create, names
from relucid.models._describe import Description, count_parameters, describe
from relucid.models._unit import Builder
from relucid.models.design import CHOICES, Design
from relucid.models.plain import LayerOptions

__all__ = [
    "BACKBONES",
    "CHOICES",
    "Backbone",
    "Builder",
    "Description",
    "Design",
    "LayerOptions",
    "Network",
    "count_parameters",
    "create",
    "describe",
    "names",
]
