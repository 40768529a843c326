"""Pictures of boundaries in one and two dimensions (gmp Fig. 1a, 5, 6)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

    from relucid.inspect.boundary import Boundary


def draw(found: Boundary, data: Tensor | None = None) -> Figure:
    """Draw the boundaries of units with one or two inputs, over ``data`` (points, n) if given."""
    dimension = found.direction.shape[1]
    if dimension > 2:
        raise ValueError(f"boundaries can be drawn for units with one or two inputs; these have {dimension}")
    shown = [found.location.nan_to_num(0).flatten(), torch.ones(1)] + (
        [] if data is None else [data.flatten()]
    )
    reach = 1.5 * float(torch.cat([points.cpu() for points in shown]).abs().max())
    return _points(found, data, reach) if dimension == 1 else _lines(found, data, reach)


def _points(found: Boundary, data: Tensor | None, reach: float) -> Figure:
    """Draw each unit's ReLU(u x + lambda), and the points where they switch."""
    import plotly.graph_objects as go

    x = torch.linspace(-reach, reach, 201).unsqueeze(1).to(found.direction)
    places = found.location.flatten().tolist()
    figure = go.Figure(layout={"xaxis_title": "x", "yaxis_title": "ReLU(u x + λ)"})
    for i, response in enumerate(found.distance(x).relu().T):
        figure.add_scatter(
            x=x.flatten().tolist(), y=response.tolist(), name=f"unit {i}", line_color="steelblue"
        )
    figure.add_scatter(x=places, y=[0.0] * len(places), mode="markers", name="φ", marker_color="sienna")
    if data is not None:
        points, tick = data.flatten().tolist(), {"symbol": "line-ns-open"}
        figure.add_scatter(x=points, y=[0.0] * len(points), mode="markers", name="data", marker=tick)
    return figure


def _lines(found: Boundary, data: Tensor | None, reach: float) -> Figure:
    """Draw each boundary as a line, with its location phi and an arrow to its active side."""
    import plotly.graph_objects as go

    figure = go.Figure(layout={"xaxis_title": "x1", "yaxis_title": "x2", "yaxis_scaleanchor": "x"})
    if data is not None:
        x, y = data.T.tolist()
        figure.add_scatter(x=x, y=y, mode="markers", name="data", marker={"size": 3, "color": "gray"})
    for i, (u, phi) in enumerate(zip(found.direction.cpu(), found.location.cpu(), strict=True)):
        along = torch.stack([-u[1], u[0]])
        x, y = torch.stack([phi - 2 * reach * along, phi + 2 * reach * along]).T.tolist()
        figure.add_scatter(x=x, y=y, mode="lines", name=f"unit {i}", line_color="sienna")
        x, y = torch.stack([0 * phi, phi]).T.tolist()
        dots = {"dash": "dot", "color": "steelblue"}
        figure.add_scatter(x=x, y=y, mode="lines+markers", name=f"φ of unit {i}", line=dots)
        (x, y), (from_x, from_y) = (phi + 0.15 * reach * u).tolist(), phi.tolist()
        arrow = {
            "ax": from_x,
            "ay": from_y,
            "axref": "x",
            "ayref": "y",
            "arrowcolor": "green",
            "showarrow": True,
        }
        figure.add_annotation(x=x, y=y, **arrow)
    return figure.update_xaxes(range=[-reach, reach]).update_yaxes(range=[-reach, reach])
