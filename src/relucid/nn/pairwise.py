"""A stage with a separate transform for every pair of layers: the blocks of DenseNet and AGD-Net.

Convolving the concatenation of all earlier layers is the same as summing one convolution per earlier layer, so
structure Eq. 18 with such transforms costs as much as DenseNet (Eq. 19).
"""

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.nn import functional as F

from relucid.nn.rules import momentum
from relucid.nn.tracing import Opaque


class PairwiseConv2d(nn.Module):
    """sum_j alpha_j conv_j(z_j) for concatenated inputs z_j, as one convolution with learned ``alpha``.

    ``alpha``, shape (len(channels),), starts at 1 and scales the weight's input channels: scaling before a batch
    norm would be cancelled, and scaling images would cost more. After a CReLU, both signs of z_j share alpha_j.

    >>> layer = PairwiseConv2d(nn.Conv2d(40, 12, 3, padding=1), channels=[16, 12, 12])
    >>> layer(torch.zeros(2, 40, 8, 8)).shape, layer.alpha.shape
    (torch.Size([2, 12, 8, 8]), torch.Size([3]))

    Args:
        conv: an ``nn.Conv2d`` or a similar layer, with one group, zero padding and no activation inside.
        channels: the number of channels of each input.
    """

    weight_decay = False

    def __init__(self, conv: Any, channels: Sequence[int]) -> None:
        super().__init__()
        if conv.groups > 1 or conv.padding_mode != "zeros" or getattr(conv, "activation", None) is not None:
            kind = " ".join(str(conv).split())
            raise ValueError(f"conv must have one group, zero padding and no activation inside, not {kind}")
        phases, rest = divmod(conv.in_channels, sum(channels))
        if rest or phases == 0:
            raise ValueError(
                f"inputs of {list(channels)} channels do not make up the {conv.in_channels} of conv"
            )
        self.conv = conv
        self._inputs = [j for j, count in enumerate(channels) for _ in range(count)] * phases
        like = next(conv.parameters())
        self.alpha = nn.Parameter(torch.empty(len(channels), device=like.device, dtype=like.dtype))
        index = torch.empty(len(self._inputs), dtype=torch.long, device=like.device)
        self.register_buffer("_of_input", index, persistent=False)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Set ``alpha`` to 1; ``conv`` is left alone."""
        nn.init.ones_(self.alpha)
        self.get_buffer("_of_input").copy_(torch.tensor(self._inputs, device="cpu"))

    def forward(self, x: Tensor) -> Tensor:
        """(N, sum(channels), H, W) -> (N, out_channels, H', W'), or both without N."""
        conv: Any = self.conv
        weight = conv.weight * self.alpha[self.get_buffer("_of_input")].view(1, -1, 1, 1)
        return F.conv2d(x, weight, conv.bias, conv.stride, conv.padding, conv.dilation)


class Pairwise(Opaque, nn.ModuleList):
    """[z_0, ..., z_K] concatenated, z_{k+1} = T_{k+1}([z_0, ..., z_k]) + beta (z_k - sum_j h_{k+1,j} z_j).

    ``beta=0`` is DenseNet's block (structure Eq. 19: Eq. 18 with alpha = 1, beta = 0). AGD-Net (Eq. 21) has
    ``beta=0.1`` and transforms with a :class:`PairwiseConv2d` after batch norm and ReLU. The input z_0 has another
    number of channels, so it enters T only, and the h of Eq. 5 counts from z_1.

    >>> block = Pairwise([nn.Conv2d(16, 12, 1), nn.Conv2d(28, 12, 1)], beta=0.1)
    >>> block(torch.zeros(2, 16, 8, 8)).shape
    torch.Size([2, 40, 8, 8])
    """

    def __init__(self, transforms: Iterable[nn.Module], beta: float = 0.0) -> None:
        super().__init__(transforms)
        self.beta = beta
        self._momentum: list[float] = momentum(len(self)).tolist()

    def extra_repr(self) -> str:
        """The coefficient."""
        return f"beta={self.beta}"

    def forward(self, x: Tensor) -> Tensor:
        """(N, C, ...) -> (N, C + channels of all layers, ...)."""
        if isinstance(x, fx.Proxy):
            return self.as_node(x)
        layers: list[Tensor] = [x]
        running: Any = 0.0
        for k, transform in enumerate(self):
            z = transform(torch.cat(layers, dim=1))
            if self.beta != 0 and k > 0:
                _check_channels(z, layers[-1])
                # A running sum, as in Nesterov2: z_k - sum_j h_{k+1,j} z_j = -running.
                running = self._momentum[k - 1] * (running + layers[-1])
                z = z - self.beta * running
            layers.append(z)
        return torch.cat(layers, dim=1)


def _check_channels(z: Tensor, before: Tensor) -> None:
    if z.shape != before.shape:
        raise ValueError(
            f"with beta other than 0, layers are added: give all the same shape, not {tuple(before.shape)} "
            f"and {tuple(z.shape)}"
        )
