"""Fully connected networks: the MLPs of gmp 5.3, and stages of equal layers as in structure 5.3."""

from collections.abc import Sequence

from torch import nn

from relucid.models.chain import Chain
from relucid.nn.propagation import Propagation
from relucid.nn.rules import Plain


def mlp(chain: Chain, num_classes: int, *, hidden: Sequence[int] = (100,)) -> None:
    """Hidden layers and an output layer; under a rule other than plain all hidden layers have one width."""
    widths = [chain.scaled(units) for units in hidden]
    _check(chain, widths)
    if isinstance(chain.rule, Plain):
        for k, units in enumerate(widths, start=1):
            chain.linear(k, units)
    else:
        chain.linear(1, widths[0], end="one_phase")
        chain.add("stage", Propagation(_layers(chain, len(widths) - 1), chain.rule))
    chain.output("output", num_classes)


def feedforward(chain: Chain, num_classes: int, *, depth: int = 10) -> None:
    """x_0 to x_K of ``num_classes`` features each, joined by a rule, nothing before or after (structure 5.3)."""
    if chain.channels != num_classes:
        raise ValueError(
            f"feedforward keeps the number of features: in_channels is {chain.channels}, num_classes "
            f"{num_classes}; give the same"
        )
    first = _layers(chain, 1)
    chain.centred = True
    chain.add("stage", Propagation(first + _layers(chain, depth - 1), chain.rule))


def _layers(chain: Chain, depth: int) -> list[nn.Module | list[nn.Module]]:
    """Transforms T(x) = Phi(W x) that keep the number of features."""

    def transform() -> nn.Module:
        branch = chain.branch()
        branch.linear(1, chain.channels, end="same_channels")
        return branch.sequential()

    return chain.transforms(depth, transform)


def _check(chain: Chain, widths: Sequence[int]) -> None:
    if not widths:
        raise ValueError("an mlp has hidden layers: give hidden=(100,), for example")
    if not isinstance(chain.rule, Plain) and (len(widths) < 2 or len(set(widths)) > 1):
        raise ValueError(
            f"a rule joins layers of one width, two or more: hidden={tuple(widths)} allows propagation='plain' only"
        )
    if chain.design.norm == "input_mean" and len(widths) < 2:
        raise ValueError(
            "norm='input_mean' stands before every layer but the first and the output: an mlp of one hidden layer has "
            "no such layer; give norm='none' or more hidden layers"
        )
