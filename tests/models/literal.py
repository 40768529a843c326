"""AGD-Net as structure Eq. 21 is printed: batch norm, ReLU and convolution of its own for every pair of layers."""

from copy import deepcopy

import torch
from torch import nn

from relucid.nn.rules import nesterov_weights


class LiteralBlock(nn.Module):
    """z_{k+1} = sum_j alpha_j T_j(z_j) + beta (z_k - sum_j h_j z_j), with the weights of a block of ours."""

    def __init__(self, block):
        super().__init__()
        self.beta, self.h = block.beta, nesterov_weights(len(block)).tolist()
        self.alpha, self.layers = nn.ParameterList(), nn.ModuleList()
        for k, layer in enumerate(block):
            # Ours has no alpha in the first layer: batch norms cancel it.
            conv, alpha = (layer.conv1, torch.ones(1)) if k == 0 else (layer.conv1.conv, layer.conv1.alpha)
            parts = torch.arange(conv.in_channels).split(
                [block[0].conv1.in_channels, *k * [conv.out_channels]]
            )
            self.layers.append(nn.ModuleList(_pair(layer.norm1, conv, part) for part in parts))
            self.alpha.append(alpha.detach().clone())

    def forward(self, x):
        z = [x]
        for k, pairs in enumerate(self.layers):
            new = sum(a * pair(z_j) for a, pair, z_j in zip(self.alpha[k], pairs, z, strict=True))
            if k > 0:  # z_0 has other channels: h counts from z_1
                weighted = sum(h * z_j for h, z_j in zip(self.h[k - 1][:k], z[1:], strict=True))
                new = new + self.beta * (z[k] - weighted)
            z.append(new)
        return torch.cat(z, 1)


@torch.no_grad()
def _pair(norm, conv, part):
    """BN-ReLU-convolution of one predecessor, whose channels are `part` of the concatenation."""
    own_norm = nn.BatchNorm2d(len(part))
    own_norm.weight.copy_(norm.weight[part])
    own_norm.bias.copy_(norm.bias[part])
    own_conv = nn.Conv2d(len(part), conv.out_channels, conv.kernel_size, padding=conv.padding, bias=False)
    own_conv.weight.copy_(conv.weight[:, part])
    return nn.Sequential(own_norm, nn.ReLU(), own_conv)


def literal(net):
    """A copy of an AGD-Net with literal blocks."""
    net = deepcopy(net)
    for name, block in list(net.named_children()):
        if name.startswith("denseblock"):
            setattr(net, name, LiteralBlock(block))
    return net
