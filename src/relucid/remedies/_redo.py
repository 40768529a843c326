"""ReDo (Sokar et al. 2023): units that are hardly active are drawn again."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from relucid.inspect._metrics import TAU, measure
from relucid.inspect.execution import Method
from relucid.remedies._effect import Effect, Optimizers, RemedyError, check_network, moved_by, optimizers_in
from relucid.remedies._units import hidden_layers


def redo(
    model: nn.Module,
    inputs: Any,
    tau: float = TAU,
    *,
    optimizer: Optimizers = None,
    call: Method | None = None,
) -> Effect:
    r"""Draw the dormant units of every hidden layer again, in place (ReDo, Sokar et al. 2023).

    A unit with E|h_i| / (1/H sum_k E|h_k|) <= tau gets new incoming weights, drawn as its layer draws its first ones, a
    bias of 0, and outgoing weights of 0; units drawn at the same time may read each other, so that a network whose
    layers are all dead learns again. Outputs change by what dormant units contributed: nothing if they were dead.

    Args:
        model: Any network; its layers are found by running it.
        inputs: Inputs that show which units are dormant, in any form that `relucid.metrics` takes.
        tau: The threshold; the paper uses 0.025 and 0.1, and 0 redraws dead ReLU units only.
        optimizer: One or several, whose state for the entries drawn again starts so that their first step is not longer
            than a living unit's.
        call: How the network is used, if not through its forward: a method's name, or a function of both.

    >>> net = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 2))
    >>> _ = net[0].bias.data[:3].fill_(-100.0)
    >>> effect = redo(net, torch.randn(64, 4), tau=0.0)
    >>> effect.changed, effect.moved
    ({'0': (0, 1, 2)}, 0.0)
    """
    check_network(model)
    if not tau >= 0:
        raise RemedyError(f"tau must be 0 or more; got {tau}")
    optimizers = optimizers_in(optimizer, model)
    layers, refused = hidden_layers(model, inputs, call)
    features = measure(model, inputs, call=call).layers
    planned = []
    for name, layer in layers.items():
        units = features[name].dormant(tau).nonzero().flatten() if name in features else torch.empty(0)
        columns = layer.columns() if len(units) else {}
        if isinstance(columns, str):
            refused[name] = columns
        elif len(units):
            planned.append((name, layer, units, columns))
    with moved_by(model, inputs, call) as moved:
        for _, layer, units, columns in planned:
            layer.draw(units, columns, optimizers)
        changed = {name: tuple(units.tolist()) for name, _, units, _ in planned}
        return Effect("redo", changed, moved(), refused)
