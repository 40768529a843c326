"""The choices that turn a backbone into a network: activation, weights, norm and propagation."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, fields
from typing import Any, Literal

from torch import nn

from relucid.nn.activation import AVR
from relucid.nn.rules import RULES, Rule
from relucid.printing import suggest


@dataclass(frozen=True)
class Activation:
    """An activation of a design: how to make it, whether CReLU applies it to both phases, and He's gain for it."""

    make: Callable[[], nn.Module]
    both_phases: bool = False
    # He's gain keeps the mean square through ReLU and CReLU; AVR keeps it by itself.
    gain: Literal["relu", "leaky_relu", "linear"] = "relu"


ACTIVATIONS: dict[str, Activation] = {
    "relu": Activation(nn.ReLU),
    "avr": Activation(AVR, gain="linear"),
    "crelu": Activation(nn.ReLU, both_phases=True),
    "leaky_crelu": Activation(nn.LeakyReLU, both_phases=True, gain="leaky_relu"),
    "sigmoid": Activation(nn.Sigmoid),
}

# The networks of gmp have two setups. The default is the paper's: its claims are about what it describes. That of the
# authors' code, where the paper is silent, is `relucid.models.published.AUTHORS`, in the networks "...-authors". One
# choice of theirs is in all studies of gmp: scales begin with the lengths of Glorot's weights, as in the runs behind
# the published figures; r = 1, as gmp 4.3 says, has rows or studies of its own ("r = 1", "...-one").
# The paper does not say exactly where IMN goes. gmp Eq. 16 centers the input of a ReLU layer. "input_mean" does just
# that, and the "-imn" networks use it: a skip stays the identity, and the output layer, which learns no features
# (gmp 4.1), is left alone. The authors' code centers the output of every activation instead, "activation_mean": before
# VGG-6's max-pools and output layer, and after the sum of a residual block, hence on the next skip too.
CHOICES: dict[str, Collection[str]] = {
    "activation": ACTIVATIONS,
    "weights": ("standard", "weightnorm", "geometric"),
    "norm": ("none", "batch", "mean", "input_mean", "activation_mean"),
    "propagation": (*RULES, "dense"),
}
"""The values of every choice of a design."""


@dataclass(frozen=True)
class Design:
    """What a unit lets through, how its hyperplane is described, and how the layers follow each other.

    A field that is None leaves the choice to the backbone.

    Args:
        activation: a name in ``ACTIVATIONS``: "relu", "avr", "crelu", "leaky_crelu" (CReLU with leaky ReLU inside,
            crelu 2.1), or "sigmoid" (structure 5.3).
        weights: "standard", "weightnorm" or "geometric" (gmp).
        norm: "none", "batch", "mean" (MBN, on the pre-activation), "input_mean" (IMN, on a layer's input) or
            "activation_mean" (IMN on the output of every activation).
        propagation: a name in ``relucid.nn.RULES``, "dense", or a rule such as ``HeavyBall(beta=0.3)``.

    >>> Design(activation="crelu", norm="batch")
    Design(activation='crelu', weights=None, norm='batch', propagation=None)
    >>> print(Design(weights="geometric").with_defaults(Design("relu", "standard", "none", "plain")))
    relu, geometric weights, norm none, plain
    """

    activation: str | None = None
    weights: str | None = None
    norm: str | None = None
    propagation: str | Rule | None = None

    def __post_init__(self) -> None:
        for name, allowed in CHOICES.items():
            value = getattr(self, name)
            if value is None or value in allowed or (name == "propagation" and isinstance(value, Rule)):
                continue
            raise ValueError(f"{name} is one of {', '.join(allowed)}, not {value!r}{suggest(value, allowed)}")
        if self.weights == "weightnorm" and self.norm == "batch":
            raise ValueError(
                "batch norm cancels the length that weightnorm learns, which leaves standard weights: give "
                "norm='mean' (as in gmp), 'input_mean' or 'none' with weights='weightnorm'"
            )

    def with_defaults(self, other: "Design") -> "Design":
        """Fill in this design's open fields from ``other``."""
        return Design(**{f.name: _first(getattr(self, f.name), getattr(other, f.name)) for f in fields(self)})

    @classmethod
    def from_dict(cls, choices: Mapping[str, Any]) -> "Design":
        """The design of these choices, as JSON has them: a rule is the name of its class and its arguments.

        >>> print(Design.from_dict({"norm": "batch", "propagation": {"rule": "HeavyBall", "beta": 0.3}}).propagation)
        HeavyBall(beta=0.3, beta1=None, beta2=None, learnable=False)
        """
        unknown = [name for name in choices if name not in CHOICES]
        if unknown:
            raise ValueError(f"a design has no {unknown[0]!r}, only {', '.join(CHOICES)}")
        rule = choices.get("propagation")
        return cls(**{**choices, "propagation": _rule(rule) if isinstance(rule, Mapping) else rule})

    def __str__(self) -> str:
        default = "backbone's own"
        return (
            f"{self.activation or default}, {self.weights or default} weights, norm {self.norm or default}, "
            f"{self.propagation or default}"
        )


def _first(value: Any, otherwise: Any) -> Any:
    return otherwise if value is None else value


def _rule(written: Mapping[str, Any]) -> Rule:
    kinds = {kind.__name__: kind for kind in Rule.__subclasses__()}
    name = written.get("rule")
    if name not in kinds:
        raise ValueError(f"a rule is one of {', '.join(kinds)}, not {name!r}{suggest(name, kinds)}")
    return kinds[name](**{key: _hashable(value) for key, value in written.items() if key != "rule"})


def _hashable(value: Any) -> Any:
    """Turn JSON's lists into tuples."""
    return tuple(map(_hashable, value)) if isinstance(value, list) else value
