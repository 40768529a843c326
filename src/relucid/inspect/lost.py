"""How much of its input each layer of a network loses, as a measurement of an examination."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from torch import Tensor

from relucid.inspect.execution import DATA, Node, execute
from relucid.inspect.measurement import ExaminedNetwork, Measurement
from relucid.inspect.reconstruction import reconstruct, reconstruction_ratio

if TYPE_CHECKING:
    from relucid.inspect.trace import Rectified


@dataclass(frozen=True)
class Lost(Measurement):
    """Reconstruction ratios |x - x'| / |x| of a layer's inputs on the example, reconstructed from its responses."""

    ratio: Tensor  #: (inputs,)

    @classmethod
    def measure(cls, layer: Rectified, network: ExaminedNetwork) -> Lost | None:
        """The ratios on the example; None unless exactly one weight feeds the layer."""
        if len(layer.sources) != 1:
            return None
        ratio = network.once(_ratios).get(layer.sources[0].name)
        return None if ratio is None else cls(ratio)

    def summary(self) -> str:
        """A summary in one sentence."""
        return f"{float(self.ratio.mean()):.1%} of the input is lost"


def _ratios(network: ExaminedNetwork) -> dict[str, Tensor]:
    """The reconstruction ratios of every layer with a weight, by name."""
    inputs: list[tuple[Node, Tensor]] = []

    def visit(node: Node, value: Tensor) -> None:
        if node.has_weight:
            inputs.append((node, value.clone()))

    execute(network.model, network.example, visit)
    # Reconstruction needs gradients, which are off during a visit.
    return {node.name: _ratio(node, value) for node, value in inputs}


def _ratio(node: Node, x: Tensor) -> Tensor:
    """The reconstruction ratio of a layer's input from its responses."""
    function, args, kwargs = node.call

    def layer(value: Tensor) -> Tensor:
        out: Tensor = function(*(value if a is DATA else a for a in args), **kwargs)
        return out

    return reconstruction_ratio(x, reconstruct(layer, layer(x), x.shape[1:]).input)
