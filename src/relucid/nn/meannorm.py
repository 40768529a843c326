"""Mean-only normalization: IMN, on the input of a layer (gmp), and MBN, on its pre-activation."""

import copy

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.modules.conv import _ConvNd


class MeanNorm(nn.Module):
    """x minus its mean over the batch and all positions, channel by channel; plus a learned shift if ``bias``.

    Without ``bias`` it is input mean normalization (IMN, gmp Eq. 16), which stands before a layer but the
    first; with ``bias`` it is mean-only batch normalization (MBN), which stands between a layer and its
    activation. In evaluation the running mean takes the place of the batch's. Under distributed training the
    mean is that of all processes' batches together.

    Args:
        num_features: C.
        bias: whether to add a learned shift.
        momentum: weight of the newest batch in the running mean; None for the mean of all batches alike.

    Shape:
        (N, C), (N, C, L), (N, C, H, W) or (N, C, D, H, W), and the same out.

    >>> MeanNorm(1)(torch.tensor([[1.0], [3.0]]))
    tensor([[-1.],
            [ 1.]])
    """

    weight_decay = False

    bias: nn.Parameter | None
    running_mean: Tensor
    num_batches_tracked: Tensor

    def __init__(self, num_features: int, *, bias: bool = False, momentum: float | None = 0.1) -> None:
        super().__init__()
        if num_features < 1:
            raise ValueError(f"num_features must be at least 1, not {num_features}")
        self.num_features = num_features
        self.momentum = momentum
        self.register_parameter("bias", nn.Parameter(torch.zeros(num_features)) if bias else None)
        self.register_buffer("running_mean", torch.zeros(num_features))
        self.register_buffer("num_batches_tracked", torch.tensor(0))

    def forward(self, x: Tensor) -> Tensor:
        """The centred x, of its shape."""
        if not 2 <= x.dim() <= 5 or x.shape[1] != self.num_features:
            raise ValueError(
                f"MeanNorm({self.num_features}) takes (N, {self.num_features}) and up to three more dimensions, "
                f"not {tuple(x.shape)}"
            )
        shift = self._batch_mean(x) if self.training else self.running_mean
        if self.bias is not None:
            shift = shift - self.bias
        return x - shift.to(x.dtype).view(-1, *(1,) * (x.dim() - 2))

    def _batch_mean(self, x: Tensor) -> Tensor:
        if x.numel() == 0:
            raise ValueError(f"MeanNorm cannot take the mean of an empty batch, {tuple(x.shape)}")
        over = [d for d in range(x.dim()) if d != 1]
        wide = torch.promote_types(x.dtype, torch.float32)
        if dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1:
            count = x.new_tensor([x.numel() / x.shape[1]], dtype=wide)
            total: Tensor = _SumOverProcesses.apply(torch.cat((x.sum(over, dtype=wide), count)))
            mean = total[:-1] / total[-1]
        else:
            mean = x.mean(over, dtype=wide)
        with torch.no_grad():
            self.num_batches_tracked.add_(1)
            share = 1 / self.num_batches_tracked if self.momentum is None else self.momentum
            self.running_mean.mul_(1 - share).add_(share * mean)
        return mean

    def extra_repr(self) -> str:
        """The arguments."""
        return f"{self.num_features}, bias={self.bias is not None}, momentum={self.momentum}"


class _SumOverProcesses(torch.autograd.Function):
    """The sum over all processes, whose gradient is the sum of their gradients."""

    @staticmethod
    def forward(ctx: object, x: Tensor) -> Tensor:
        x = x.clone()
        dist.all_reduce(x)
        return x

    @staticmethod
    def backward(ctx: object, grad: Tensor) -> Tensor:
        return _SumOverProcesses.forward(ctx, grad)


Layer = nn.Linear | _ConvNd


def fold(first: nn.Module, second: nn.Module) -> Layer:
    """One standard layer that computes ``second(first(x))`` in evaluation, where one of the two is a MeanNorm.

    A norm after a layer moves its bias. A norm before a layer does so as well, except before a zero-padded
    convolution, whose zeros would have to be centred too: that is refused.

    >>> norm, layer = MeanNorm(3).eval(), nn.Linear(3, 2)
    >>> x = torch.randn(8, 3)
    >>> torch.allclose(fold(norm, layer)(x), layer(norm(x)), atol=1e-6)
    True
    """
    if isinstance(first, Layer) and isinstance(second, MeanNorm):
        return _with_bias(first, -_shift(second))
    if isinstance(first, MeanNorm) and isinstance(second, Layer):
        if pads_with_zeros(second):
            raise ValueError(
                "a MeanNorm does not fold into a zero-padded convolution, whose border would differ; "
                "pad first, then centre, then convolve without padding"
            )
        groups = second.groups if isinstance(second, _ConvNd) else 1
        sums = second.weight.flatten(2).sum(2) if second.weight.dim() > 2 else second.weight
        per_group = _shift(first).view(groups, 1, -1) * sums.view(groups, -1, sums.shape[1])
        return _with_bias(second, -per_group.sum(2).flatten())
    raise TypeError(
        "fold takes a MeanNorm and a linear or convolution layer, in the order in which they are applied, "
        f"not {type(first).__name__} and {type(second).__name__}"
    )


def pads_with_zeros(layer: nn.Module) -> bool:
    """Whether a layer sees zeros around its input.

    >>> pads_with_zeros(nn.Conv2d(1, 1, 3, padding=1)), pads_with_zeros(nn.Conv2d(1, 1, 3, padding="valid"))
    (True, False)
    >>> pads_with_zeros(nn.Conv2d(1, 1, 3, padding=1, padding_mode="reflect"))
    False
    """
    if not isinstance(layer, _ConvNd) or layer.padding_mode != "zeros" or layer.padding == "valid":
        return False
    if layer.padding == "same":
        return any(size > 1 for size in layer.kernel_size)
    return any(size != 0 for size in layer.padding)


def _shift(norm: MeanNorm) -> Tensor:
    return norm.running_mean if norm.bias is None else norm.running_mean - norm.bias


@torch.no_grad()
def _with_bias(layer: Layer, added: Tensor) -> Layer:
    layer = copy.deepcopy(layer)
    bias = added if layer.bias is None else layer.bias + added
    layer.bias = nn.Parameter(bias.to(layer.weight.dtype))
    return layer
