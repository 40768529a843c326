"""Graphs of torch.fx, and torch.jit.script, see the library's layers as they see torch's own."""

import pytest
import torch
from torch import fx, nn

from relucid.nn import (
    AVR,
    CReLU,
    GeometricConv2d,
    GeometricLinear,
    MeanNorm,
    Pairwise,
    Propagation,
    crelu,
)

WHOLE = {
    "crelu": lambda: CReLU(),
    "conv": lambda: GeometricConv2d(4, 6, 3, activation=CReLU(groups=2)),
    "linear": lambda: GeometricLinear(5, 3, activation=nn.ReLU()),
    "norm": lambda: MeanNorm(4, bias=True),
    "dense": lambda: Pairwise([nn.Conv2d(4, 2, 1), nn.Conv2d(6, 2, 1)], 0.1),
    "stage": lambda: Propagation([nn.Conv2d(4, 4, 1) for _ in range(3)], "nesterov"),
}


class Function(nn.Module):
    def forward(self, x):
        return crelu(x, -1, paired=2)


@pytest.mark.parametrize("make", [*WHOLE.values(), AVR, Function])
def test_a_network_traced_by_fx_computes_and_learns_the_same(make):
    net, x = nn.Sequential(nn.Identity(), make()), torch.randn(2, 4, 5, 5)
    traced = fx.symbolic_trace(net)
    torch.testing.assert_close(traced(x), net(x))
    parameters = list(net.parameters())
    if parameters:
        found = torch.autograd.grad(traced(x).square().sum(), list(traced.parameters()))
        expected = torch.autograd.grad(net(x).square().sum(), parameters)
        torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("make", WHOLE.values())
def test_a_layer_is_one_module_of_the_graph(make):
    graph = fx.symbolic_trace(nn.Sequential(nn.Identity(), make())).graph
    assert [node.target for node in graph.nodes if node.op == "call_module"] == ["0", "1"]


@pytest.mark.parametrize("make", WHOLE.values())
def test_what_cannot_be_traced_or_scripted_is_refused(make):
    layer = make()
    with pytest.raises(ValueError, match=type(layer).__name__):
        fx.symbolic_trace(layer)
    with pytest.raises(NotImplementedError, match=type(layer).__name__):
        torch.jit.script(nn.Sequential(nn.Identity(), layer))


def test_avr_is_scripted():
    x = torch.randn(3)
    assert torch.equal(torch.jit.script(nn.Sequential(AVR()))(x), x.abs())
