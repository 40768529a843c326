"""ReLU and its relatives to CReLU: give every unit its other phase, or let opposite units share a filter (crelu)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, Literal

from torch import nn
from torch.optim import Optimizer

from relucid.convert._expand import expand
from relucid.convert._halve import halve
from relucid.convert._revive import revived_first
from relucid.convert.conversion import Conversion, conversion
from relucid.convert.errors import ConversionError
from relucid.convert.examples import Given
from relucid.convert.merge import merge
from relucid.convert.network import Layers, RecordedModel
from relucid.convert.search import delivered
from relucid.inspect.execution import Method


@conversion
def to_crelu(
    model: nn.Module,
    example: Given,
    layers: Layers = None,
    mode: Literal["expand", "merge", "halve"] = "expand",
    *,
    revive: bool = False,
    data: Any = None,
    inplace: bool = False,
    optimizer: Optimizer | Sequence[Optimizer] | None = None,
    call: Method | None = None,
    tolerance: float | None = None,
) -> Conversion:
    """The same network with CReLU, which keeps both phases of a unit, in place of ReLU.

    "expand": a ReLU that is a module of its own, called once, becomes CReLU. For any other, the module before it
    returns both signs of its value: relu([y, -y]) is CReLU. The layers that read the result, through batch norms,
    pooling or flatten, get weights of zero for the new half. A ReLU whose value is also added, multiplied, returned or
    read by something that mixes channels stays as it is. Training goes on from there.

    LeakyReLU, PReLU and the absolute value, as modules of their own, become CReLU too: each is f(x) = relu(x) -
    a relu(-x), where a is the slope below 0 (-1 for the absolute value), so the new weights are -a times the old
    ones. Where x is exactly 0, CReLU has a gradient of 0, LeakyReLU and PReLU have a. Rectified values must be finite:
    of minus infinity, which float16 has beyond 65,504, weights of zero make NaN.

    "merge": two units of one layer with w_i = -s w_j and b_i = -s b_j, batch norm folded, become the two phases of
    one filter, the one nearest to both. The weights that read them are rearranged. For ReLU only.

    Args:
        model: Any network.
        example: Its input: a tensor or array, a tuple of positional or a mapping of keyword arguments, a loader or
            data set, of which the first batch is taken, or a list of several examples.
            What a network executes on none of them stays as it is.
        layers: Names or globs of activations, or of the layers that feed them; "auto", in mode "expand", for those
            that `relucid.inspect.examine` suggests. By default all.
        mode: "expand", "merge" or "halve".
        revive: "expand": first give dead units a boundary that passes through the data, as `relucid.convert.revive`.
        data: With ``revive``, inputs that show which units are dead; by default the example.
        inplace: Convert the network itself; by default a copy.
        optimizer: With ``inplace``, an optimizer to take along: its groups refer to the new parameters, and its state
            is kept for every weight that stays, and zero for new ones.
        call: How the network is used, if not through its forward: a method's name, or a function of the network and
            the example.
        tolerance: The largest relative difference of outputs; 1e-4 in float32, 1e-10 in float64 by default. "merge":
            as many pairs are merged as it allows, the most opposite first.

    >>> import torch
    >>> net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
    >>> to_crelu(net, torch.randn(5, 4)).model
    Sequential(
      (0): Linear(in_features=4, out_features=8, bias=True)
      (1): CReLU(dim=-1)
      (2): Linear(in_features=16, out_features=2, bias=True)
    )
    """
    if mode not in ("expand", "merge", "halve"):
        raise ConversionError(f"mode is 'expand', 'merge' or 'halve', not {mode!r}")
    if (revive or data is not None) and (mode != "expand" or not revive):
        raise ConversionError("revive is for mode='expand', and data for revive")
    if mode == "halve":
        if tolerance is not None:
            raise ConversionError("mode='halve' keeps no outputs: it takes no tolerance")
        return halve(model, example, layers, call, inplace, optimizer)
    if mode == "merge":
        network = RecordedModel(model, example, call)
        return delivered(network, merge(network, layers, tolerance, inplace=inplace), inplace, optimizer)
    convert = partial(expand, example=example, layers=layers, call=call, tolerance=tolerance)
    if not revive:
        return convert(model, inplace=inplace, optimizer=optimizer)
    return revived_first(
        model, convert, example=example, data=data, call=call, inplace=inplace, optimizer=optimizer
    )
