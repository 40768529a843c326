"""A stage with a transform of its own for every pair of layers: DenseNet's block, and AGD-Net's.

A layer that convolves the concatenation of all layers before it is a sum of one convolution for each of them, so
structure Eq. 18 with such transforms costs what DenseNet costs (Eq. 19).
"""

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor, nn

from relucid.nn.rules import momentum


class PairwiseConv2d(nn.Conv2d):
    """sum_j alpha_j conv_j(z_j) of inputs z_j that come concatenated: a convolution with learned ``alpha``, first 1.

    ``alpha``, shape (len(channels),), scales the weight's input channels: behind the batch norm and the ReLU, where
    it is not cancelled, and without a cost that grows with the image. Otherwise as ``nn.Conv2d``, with one group.

    >>> layer = PairwiseConv2d([16, 12, 12], 12, kernel_size=3, padding=1, bias=False)
    >>> layer(torch.zeros(2, 40, 8, 8)).shape, layer.alpha.shape
    (torch.Size([2, 12, 8, 8]), torch.Size([3]))

    Args:
        channels: the numbers of channels of the inputs.
        out_channels: as in ``nn.Conv2d``, also the others.
        kernel_size: see there.
        stride: see there.
        padding: see there.
        dilation: see there.
        bias: see there.
    """

    def __init__(
        self,
        channels: Sequence[int],
        out_channels: int,
        kernel_size: int | tuple[int, int],
        stride: int | tuple[int, int] = 1,
        padding: int | tuple[int, int] = 0,
        dilation: int | tuple[int, int] = 1,
        bias: bool = True,
    ) -> None:
        super().__init__(sum(channels), out_channels, kernel_size, stride, padding, dilation, bias=bias)
        self.alpha = nn.Parameter(torch.ones(len(channels)))
        of_input = torch.arange(len(channels)).repeat_interleave(torch.tensor(channels))
        self.register_buffer("_of_input", of_input, persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        """(N, sum(channels), H, W) -> (N, out_channels, H', W')."""
        alpha = self.alpha[self.get_buffer("_of_input")]
        y: Tensor = self._conv_forward(x, self.weight * alpha.view(1, -1, 1, 1), self.bias)
        return y


class Pairwise(nn.ModuleList):
    """[z_0, ..., z_K] concatenated, z_{k+1} = T_{k+1}([z_0, ..., z_k]) + beta (z_k - sum_j h_{k+1,j} z_j).

    ``beta=0`` is DenseNet's block (structure Eq. 19: Eq. 18 with alpha = 1 and beta = 0). AGD-Net (Eq. 21) has
    ``beta=0.1`` and transforms with a :class:`PairwiseConv2d` behind batch norm and ReLU. The input z_0 has another
    number of channels: it takes part in T only, and h, of Eq. 5, counts from z_1.

    >>> block = Pairwise([nn.Conv2d(16, 12, 1), nn.Conv2d(28, 12, 1)], beta=0.1)
    >>> block(torch.zeros(2, 16, 8, 8)).shape
    torch.Size([2, 40, 8, 8])
    """

    def __init__(self, transforms: Iterable[nn.Module], beta: float = 0.0) -> None:
        super().__init__(transforms)
        self.beta = beta
        self._momentum: list[float] = momentum(len(self)).tolist()

    def extra_repr(self) -> str:
        """Its one coefficient."""
        return f"beta={self.beta}"

    def forward(self, x: Tensor) -> Tensor:
        """(N, C, ...) -> (N, C + channels of all layers, ...)."""
        layers, running = [x], torch.zeros(())
        for k, transform in enumerate(self):
            z = transform(torch.cat(layers, dim=1))
            if self.beta != 0 and k > 0:
                _check_channels(z, layers[-1])
                # As in Nesterov2 the sum runs along: z_k - sum_j h_{k+1,j} z_j = -running.
                running = self._momentum[k - 1] * (running + layers[-1])
                z = z - self.beta * running
            layers.append(z)
        return torch.cat(layers, dim=1)


def _check_channels(z: Tensor, before: Tensor) -> None:
    if isinstance(z, Tensor) and z.shape != before.shape:
        raise ValueError(
            f"with beta other than 0 layers are added: give all the same shape, not {tuple(before.shape)} "
            f"and {tuple(z.shape)}"
        )
