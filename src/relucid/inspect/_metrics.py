"""The literature's measures of plasticity of a network, for any activation, in one line."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from relucid._torch import schema_of
from relucid.inspect._policy import NAN, Entropy, Policy, watched
from relucid.inspect._trace import base_name, origins
from relucid.inspect.batches import parts_of
from relucid.inspect.execution import Method, running
from relucid.inspect.features import FLAT, RANKS, Features
from relucid.inspect.recorder import Node
from relucid.nn.kinds import Kind
from relucid.nn.tracing import no_autocast

TAU = 0.1  # ReDo's threshold in the paper's figures; Plasticine uses 0.025, loss-of-plasticity 0.01
SHARES = ("dead", "dormant", "saturated", "active")
KEYS = (
    *("dead", "worst dead", "dormant", "saturated", "active"),
    *(*RANKS, "feature norm"),
    *("weight norm", "weight magnitude", "distance", "gradient norm"),
    "policy entropy",
)
Weights = nn.Module | Mapping[str, Tensor]


def metrics(
    model: nn.Module,
    inputs: Any,
    *,
    tau: float = TAU,
    layers: bool = False,
    call: Method | None = None,
    start: Weights | None = None,
    policy: Policy | None = None,
) -> dict[str, float]:
    r"""The measures of plasticity of a network on some inputs, ready for a logger: every key is always there.

    The network runs in eval mode without gradients and is left unchanged. With h_i the outputs of hidden unit i of a
    layer with H units, s the singular values of the outputs (places, channels) of the last hidden layer:

    - "dead": share of all hidden units with the same output on all inputs; "worst dead": that of the worst layer, since
      one wholly dead layer stops everything before it. nan for fewer than 35 inputs (tokens of a sequence count).
    - "dormant": E|h_i| / (1/H sum_k E|h_k|) <= tau (ReDo, Sokar et al. 2023).
    - "saturated": units whose slope is below 1% on all inputs; "active": mean share of outputs above 0.
    - "effective rank" exp(entropy(s / sum s)), "stable rank" |F|_F^2 / |F|_2^2, "srank": values that hold 99% of the
      sum (which others call stable rank), "approximate rank": those that hold 99% of the squares.
    - "feature norm": mean norm of the last hidden layer's outputs.
    - "weight norm" and "weight magnitude" (mean |w|) of all parameters, "distance" from ``start``, "gradient norm" of
      the gradients that the parameters hold now.
    - "policy entropy", in nats, if a policy is given.

    Args:
        model: Any network.
        inputs: What it takes: a tensor or array, a tuple or mapping of arguments, a loader; labels are left out.
        tau: Activity up to which a unit counts as dormant; ReDo uses 0.025 and 0.1.
        layers: Whether to add the measures of every layer, as "dead/fc1".
        call: How the network is used, if not through its forward: a method's name, or a function of both.
        start: Weights to measure the distance from: a network or a state dict.
        policy: Which part returns the logits of a policy, by name, or a function of the network and the inputs that
            returns logits or a distribution.

    >>> net = nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 2))
    >>> measures = metrics(net, torch.randn(64, 4))
    >>> measures["dead"], measures["distance"]
    (0.0, nan)
    """
    measured = measure(model, inputs, call=call, policy=policy)
    return measured.metrics(tau) | weights(model, start) | (measured.by_layer(tau) if layers else {})


@dataclass
class Measured:
    """What the hidden layers of a network, and its policy, have shown."""

    layers: dict[str, Features] = field(default_factory=dict)  #: in order of execution
    policy: Entropy = field(default_factory=Entropy)
    _keys: dict[str, str] = field(default_factory=dict)  # the activation that each name belongs to

    def add(self, prefix: str, node: Node, value: Tensor, output: Tensor) -> None:
        """Add the outputs of an activation to the features of its layer."""
        if output.dim() < 2 or not output.is_floating_point():
            return
        first = node.twin or node
        sources, is_map = origins(first)
        dim = 1 if is_map else output.dim() - 1
        doubled = node.phases[dim] if node.kind and node.kind.doubled and node.phases else 0
        if node.twin is not None:  # the second phases, by an operation of their own, of the same value
            value = -value
            units = value.relu()
            if units.shape != output.shape:
                return
            output, doubled = torch.cat([units, output], dim), output.shape[dim]
        flat = is_flat(node, value, output)
        rows, flat = (x.movedim(dim, 0).flatten(1) for x in (output, flat))
        name = self._name(prefix, first, sources)
        layer = self.layers.get(name)
        if layer is None or layer.channels != len(rows):
            if layer is not None and layer.doubled == len(rows):
                return  # the first phases of a CReLU of two operations: the second will show both
            self.layers.pop(name, None)
            layer = self.layers[name] = Features(len(rows), doubled)
        layer.update(rows, len(output) if is_map else rows.shape[1], flat)

    def _name(self, prefix: str, node: Node, sources: tuple[str, ...]) -> str:
        """The name of the layer: that of the weights that feed it; calls of one module are one layer."""
        names = tuple(dict.fromkeys(map(base_name, sources)))
        activation = node.name or node.module or node.op
        activation = base_name(activation) if node.leaf else activation
        name = prefix + (" + ".join(names) if 0 < len(names) < 4 else activation)
        key = f"{node.op} of {' '.join(names)}"
        return name if self._keys.setdefault(name, key) == key else f"{name} ({activation})"

    @property
    def dead(self) -> dict[str, float]:
        """Share of dead units by layer, for layers that saw enough inputs to tell."""
        return {name: _mean(layer.dead) for name, layer in self.layers.items() if layer.enough}

    def metrics(self, tau: float) -> dict[str, float]:
        """The measures of the whole network; those of weights are nan."""
        pooled = [self._shares(layer, tau) for layer in self.layers.values()]
        shares = {key: _pooled([masks[key] for masks in pooled]) for key in SHARES}
        shares["worst dead"] = max(self.dead.values(), default=NAN)
        last = [*self.layers.values()][-1:]
        ranks = last[0].ranks() | {"feature norm": last[0].norm} if last else {}
        return dict.fromkeys(KEYS, NAN) | shares | ranks | {"policy entropy": self.policy.mean}

    def by_layer(self, tau: float) -> dict[str, float]:
        """The measures of every layer, as "dead/fc1"."""
        measures: dict[str, float] = {}
        for name, layer in self.layers.items():
            values = {key: _mean(mask) for key, mask in self._shares(layer, tau).items()}
            values |= layer.ranks() | {"feature norm": layer.norm}
            measures |= {f"{key}/{name}": value for key, value in values.items()}
        return measures

    @staticmethod
    def _shares(layer: Features, tau: float) -> dict[str, Tensor]:
        """Masks, or shares, of units; unknown what needs more inputs."""
        unknown = torch.full((layer.units,), torch.nan, dtype=torch.float64)
        return {
            "dead": layer.dead if layer.enough else unknown,
            "dormant": layer.dormant(tau),
            "saturated": layer.saturated if layer.enough else unknown,
            "active": layer.active,
        }


def measure(
    model: nn.Module, inputs: Any, *, call: Method | None = None, policy: Policy | None = None
) -> Measured:
    """Run a network on all inputs, and collect what its hidden layers do."""
    measured = Measured()
    exact = no_autocast(model)  # the network may run under autocast; what is computed about it may not
    for name, part, use, batches in parts_of(model, inputs, call):
        prefix = f"{name}." if name else ""

        def observe(node: Node, value: Tensor, output: Tensor, prefix: str = prefix) -> None:
            with exact:
                measured.add(prefix, node, value, output)

        with (
            running(part, call=use) as (run, _),
            watched(measured.policy, model, part, policy) as chosen,
        ):
            for batch in batches:
                run(batch, observe=observe)
                chosen(batch)
    return measured


def is_flat(node: Node, value: Tensor, output: Tensor) -> Tensor:
    """Where an activation has a slope below 1%, in the shape of its output.

    Of a piecewise linear one the output tells; of any other, the difference of its outputs at two values.
    """
    kind: Kind | None = node.kind if node.twin is None else node.twin.kind
    if kind is not None:
        first, *rest = kind.boundaries
        below = output == first if kind.below == 0 else torch.zeros_like(output, dtype=torch.bool)
        return below | (output == rest[0]) if rest and kind.above == 0 else below
    function, args, kwargs = node.call
    if output.shape != value.shape or any(a.is_out for a in schema_of(function).arguments):
        return torch.zeros_like(output, dtype=torch.bool)
    moved = value + torch.finfo(value.dtype).eps ** 0.5 * (1 + value.abs())
    step = moved - value
    given = [moved if i == 0 else arg for i, arg in enumerate(args)]
    after = function(*given, **kwargs)
    after = after[0] if isinstance(after, tuple) else after
    slope: Tensor = (after - output) / step
    return slope.abs() < FLAT


def weights(
    model: nn.Module, start: Weights | None = None, gradients: float | None = None
) -> dict[str, float]:
    """The norm and mean size of all parameters, their distance from others, and the norm of their gradients."""
    parameters = {name: p.detach() for name, p in model.named_parameters()}
    count = sum(p.numel() for p in parameters.values())
    known = [p.grad for p in model.parameters() if p.grad is not None]
    if gradients is None:
        gradients = _norm(known) if known else NAN
    return {
        "weight norm": _norm(parameters.values()),
        "weight magnitude": sum(float(p.abs().sum(dtype=torch.float64)) for p in parameters.values())
        / max(count, 1),
        "distance": NAN if start is None else distance(parameters, start),
        "gradient norm": gradients,
    }


def distance(parameters: Mapping[str, Tensor], start: Weights) -> float:
    """The norm of the difference from other weights, over the parameters that have the same name and shape there."""
    others = dict(start.named_parameters()) if isinstance(start, nn.Module) else start
    shared = [(p, others[name].detach()) for name, p in parameters.items() if name in others]
    pairs = [(p, other.to(p.device)) for p, other in shared if p.shape == other.shape]
    if parameters and not pairs:
        raise ValueError("no parameter of the network has the name and shape of one in start=")
    return _norm([p.double() - other.double() for p, other in pairs])


def _norm(tensors: Any) -> float:
    return math.sqrt(sum(float(squared_norm(x)) for x in tensors))


def squared_norm(x: Tensor) -> Tensor:
    """The sum of the squares of all sizes."""
    x = x.detach()
    return (x.abs() if x.is_complex() else x).double().square().sum()


def _mean(mask: Tensor) -> float:
    return float(mask.double().mean())


def _pooled(masks: list[Tensor]) -> float:
    """The mean over the units of all layers that know."""
    known = [mask.double() for mask in masks if not bool(mask.double().isnan().any())]
    return float(torch.cat(known).mean()) if known else NAN
