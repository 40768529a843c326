"""Stages with a transform for every pair of layers, against one convolution for every pair."""

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn.functional import conv2d, relu

from relucid.nn.pairwise import Pairwise, PairwiseConv2d
from relucid.nn.rules import nesterov_weights

FIRST, GROWTH = 5, 3


def widths(k):
    """The channels of z_0, ..., z_k."""
    return [FIRST, *[GROWTH] * k]


def norm_relu_conv(k, pairwise=True):
    """The transform of layer k + 1, with coefficients that are not 1."""
    conv = nn.Conv2d(sum(widths(k)), GROWTH, 3, padding=1, bias=False)
    if pairwise:
        conv = PairwiseConv2d(conv, widths(k))
        nn.init.normal_(conv.alpha)
    return nn.Sequential(nn.BatchNorm2d(sum(widths(k))), nn.ReLU(), conv).double()


def one_for_every_pair(transform, zs):
    """sum_j alpha_j T_j(z_j), where T_j is the batch norm, ReLU and convolution of the channels of z_j alone."""
    norm, _, conv = transform
    alpha, conv = (conv.alpha, conv.conv) if isinstance(conv, PairwiseConv2d) else ([1] * len(zs), conv)
    total, begin = 0, 0
    for j, z in enumerate(zs):
        part = slice(begin, begin := begin + z.shape[1])
        mean = z.mean((0, 2, 3), keepdim=True)
        normed = (z - mean) / (z.var((0, 2, 3), unbiased=False, keepdim=True) + norm.eps).sqrt()
        scaled = normed * norm.weight[part].view(1, -1, 1, 1) + norm.bias[part].view(1, -1, 1, 1)
        total = total + alpha[j] * conv2d(relu(scaled), conv.weight[:, part], padding=1)
    return total


def eq21(transforms, x, beta):
    zs = [x]
    for k, transform in enumerate(transforms):
        z = one_for_every_pair(transform, zs)
        if k > 0:  # z_1 is the first with as many channels as the others
            h = nesterov_weights(k)[k - 1]
            z = z + beta * (zs[k] - sum(h[j] * zs[j + 1] for j in range(k)))
        zs.append(z)
    return torch.cat(zs, dim=1)


@settings(deadline=None, max_examples=20)
@given(st.integers(0, 6), st.floats(-1, 1))
def test_agd_net_is_one_convolution_for_every_pair_with_the_momentum_of_eq21(depth, beta):
    T = [norm_relu_conv(k) for k in range(depth)]
    x = torch.randn(2, FIRST, 4, 4, dtype=torch.float64)
    torch.testing.assert_close(Pairwise(T, beta)(x), eq21(T, x, beta), rtol=1e-10, atol=1e-10)


def test_densenet_is_eq18_with_alpha_one_and_beta_zero():
    T = [norm_relu_conv(k, pairwise=False) for k in range(5)]
    x = torch.randn(2, FIRST, 4, 4, dtype=torch.float64)
    y = x
    for transform in T:
        y = torch.cat([y, transform(y)], dim=1)
    torch.testing.assert_close(Pairwise(T)(x), y)
    torch.testing.assert_close(Pairwise(T)(x), eq21(T, x, beta=0), rtol=1e-10, atol=1e-10)


def test_alpha_starts_at_one_and_learns():
    plain, x = nn.Conv2d(5, 4, 3, stride=2, padding=1, dilation=2), torch.randn(2, 5, 9, 9)
    conv = PairwiseConv2d(plain, [2, 3])
    torch.testing.assert_close(conv(x), plain(x))
    conv(x).sum().backward()
    assert conv.alpha.grad.shape == (2,)
    assert (conv.alpha.grad != 0).all()


def test_both_phases_of_a_crelu_share_their_alpha():
    conv, x = PairwiseConv2d(nn.Conv2d(6, 4, 1), [1, 2]), torch.randn(2, 3, 5, 5)
    nn.init.normal_(conv.alpha)
    scale = conv.alpha[[0, 1, 1]].view(1, 3, 1, 1)
    scaled_before = conv.conv(torch.cat([scale * relu(x), scale * relu(-x)], dim=1))
    torch.testing.assert_close(conv(torch.cat([relu(x), relu(-x)], dim=1)), scaled_before)


def test_compiles_and_exports():
    torch.compiler.reset()
    net = Pairwise([norm_relu_conv(k) for k in range(3)], beta=0.1).eval()
    x = torch.randn(2, FIRST, 4, 4, dtype=torch.float64)
    torch.testing.assert_close(torch.compile(net, fullgraph=True, backend="aot_eager")(x), net(x))
    torch.testing.assert_close(torch.export.export(net, (x,)).module()(x), net(x))


def test_begins_on_the_meta_device(device):
    conv = PairwiseConv2d(nn.Conv2d(5, 4, 3, device="meta"), [2, 3])
    assert conv(torch.empty(1, 5, 4, 4, device="meta")).shape == (1, 4, 2, 2)
    conv.to_empty(device=device)
    conv.conv.reset_parameters()
    conv.reset_parameters()
    x = torch.randn(2, 5, 9, 9)
    torch.testing.assert_close(conv(x), conv.conv(x))
