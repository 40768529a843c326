"""ReDo (Sokar et al. 2023): units that are hardly active are drawn again."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from relucid.inspect._metrics import TAU, Collector
from relucid.inspect.batches import parts_of
from relucid.inspect.execution import Method, Node, running
from relucid.inspect.features import Features
from relucid.nn.tracing import no_autocast
from relucid.remedies._effect import Effect, RemedyError, check_network, moved_by
from relucid.remedies._state import Optimizers, optimizers_in
from relucid.remedies._units import HiddenLayer, draw, hidden_layers


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
    planned = []
    for layer, features in zip(layers, seen(model, layers, inputs, call), strict=True):
        units = features.dormant(tau).nonzero().flatten() if features is not None else torch.empty(0)
        if len(units):
            columns = layer.columns(units)
            if isinstance(columns, str):
                refused[layer.prefix + layer.name] = columns
            else:
                planned.append((layer, units, columns))
    with moved_by(model, inputs, call) as moved:
        for layer, units, columns in planned:
            draw(layer, units, columns, optimizers)
        changed = {layer.prefix + layer.name: tuple(units.tolist()) for layer, units, _ in planned}
        return Effect("redo", changed, moved(), refused)


def seen(
    model: nn.Module, layers: list[HiddenLayer], inputs: Any, call: Method | None
) -> list[Features | None]:
    """What the units of each layer do on all inputs."""
    features: dict[tuple[str, str], Features] = {}
    for part, module, batches in parts_of(model, inputs, call):
        with running(module, call=call if module is model else None) as (run, _):
            for batch in batches:
                collector = _ByActivation(part, features, no_autocast(model))
                run(batch, observe=collector)
    return [features.get((layer.part, _key(layer.activation))) for layer in layers]


class _ByActivation(Collector):
    """Collects features by activation, so that two of one layer are not taken for each other."""

    def __init__(self, part: str, features: dict[tuple[str, str], Features], exact: torch.autocast) -> None:
        super().__init__({}, "", exact)
        self.part, self.all = part, features

    def _name(self, node: Node, sources: tuple[str, ...]) -> str:
        key = _key(node)
        if (self.part, key) in self.all:
            self.layers[key] = self.all[self.part, key]
        return key

    def _add(self, node: Node, value: torch.Tensor, output: torch.Tensor) -> None:
        super()._add(node, value, output)
        self.all |= {(self.part, key): features for key, features in self.layers.items()}


def _key(node: Node) -> str:
    return node.name or f"{node.module}:{node.op}:{node.order}"
