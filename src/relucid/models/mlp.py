"""Fully connected networks: the MLPs of gmp 5.3 and the stages of equal layers of structure 5.3."""

from collections.abc import Sequence

from torch import nn

from relucid.models.chain import Chain
from relucid.nn.propagation import Propagation
from relucid.nn.rules import Plain, Rule, rule_of


def mlp(chain: Chain, num_classes: int, *, hidden: Sequence[int] = (100,)) -> None:
    """Hidden layers and an output layer; under a rule other than plain all hidden layers have the same width."""
    widths = [chain.scaled(units) for units in hidden]
    if isinstance(_rule(chain), Plain):
        for k, units in enumerate(widths, start=1):
            chain.linear(k, units)
    else:
        _check(widths)
        chain.linear(1, widths[0], end="one_phase")
        chain.add("stage", _stage(chain, len(widths) - 1))
    chain.output("output", num_classes)


def feedforward(chain: Chain, num_classes: int, *, depth: int = 10) -> None:
    """x_0, ..., x_K of ``num_classes`` numbers each, joined by a rule, and nothing before or after (structure 5.3)."""
    if chain.channels != num_classes:
        raise ValueError(
            f"feedforward keeps the number of features from x_0 to x_K: in_channels is {chain.channels}, "
            f"num_classes {num_classes}; give in_channels={num_classes}"
        )
    chain.add("stage", _stage(chain, depth))


def _stage(chain: Chain, depth: int) -> Propagation:
    """Layers T(x) = Phi(W x) joined by the design's rule."""
    rule, layers = _rule(chain), []
    for _ in range(depth):
        layers.append([_transform(chain) for _ in range(rule.paths)])
        chain.centred = True
    return Propagation(layers if rule.paths > 1 else [transform for (transform,) in layers], rule)


def _transform(chain: Chain) -> nn.Sequential:
    branch = chain.branch()
    branch.linear(1, chain.channels, end="same_channels")
    return branch.sequential()


def _rule(chain: Chain) -> Rule:
    assert chain.design.propagation is not None
    return rule_of(chain.design.propagation)


def _check(widths: Sequence[int]) -> None:
    if len(widths) < 2 or len(set(widths)) > 1:
        raise ValueError(
            f"a rule joins layers of one width, two or more: hidden={tuple(widths)} allows propagation='plain' only"
        )
