"""Mean-only normalization: IMN, on the input of a layer (gmp), and MBN, on its pre-activation."""

from collections.abc import Iterable
from itertools import chain, islice
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, fx, nn

from relucid._torch import BatchNormNd
from relucid.nn.checks import check_positive
from relucid.nn.tracing import Opaque


class MeanNorm(Opaque):
    """x minus its mean over the batch and all positions, channel by channel; plus a learned shift if ``bias``.

    Without ``bias`` it is input mean normalization (IMN, gmp Eq. 16), placed before every layer except the first;
    with ``bias`` it is mean-only batch normalization (MBN), placed between a layer and its activation. Evaluation
    uses the running mean. Distributed training uses the mean over the batches of all processes.

    ``torch.optim.swa_utils.update_bn`` updates batch norms only; :func:`update_norms` updates both.

    Args:
        num_features: C.
        bias: whether to add a learned shift.
        momentum: weight of the newest batch in the running mean; None weights all batches equally.
        dim: dimension of the channels; -1 for sequences (N, T, C).
        device: as in ``nn.BatchNorm2d``.
        dtype: as in ``nn.BatchNorm2d``.

    Shape:
        (N, C), (N, C, L), (N, C, H, W) or (N, C, D, H, W), and the same out; with ``dim=-1`` (N, ..., C).

    >>> MeanNorm(1)(torch.tensor([[1.0], [3.0]]))
    tensor([[-1.],
            [ 1.]])
    """

    weight_decay = False

    bias: nn.Parameter | None
    running_mean: Tensor
    num_batches_tracked: Tensor

    def __init__(
        self,
        num_features: int,
        *,
        bias: bool = False,
        momentum: float | None = 0.1,
        dim: int = 1,
        device: Any = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        check_positive(num_features=num_features)
        if dim not in (1, -1):
            raise ValueError(f"dim is 1, for (N, C, ...), or -1, for (N, ..., C), not {dim}")
        self.num_features, self.momentum, self.dim = num_features, momentum, dim
        kind = {"device": device, "dtype": dtype}
        self.register_parameter("bias", nn.Parameter(torch.empty(num_features, **kind)) if bias else None)
        self.register_buffer("running_mean", torch.empty(num_features, **kind))
        self.register_buffer("num_batches_tracked", torch.empty((), dtype=torch.long, device=device))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Forget all batches and set the shift to 0."""
        self.reset_running_stats()
        if self.bias is not None:
            nn.init.zeros_(self.bias)

    def reset_running_stats(self) -> None:
        """Forget all batches."""
        self.running_mean.zero_()
        self.num_batches_tracked.zero_()

    def forward(self, x: Tensor) -> Tensor:
        """The centered x, of the same shape."""
        if isinstance(x, fx.Proxy):
            return self.as_node(x)
        self._check(x)
        shift = self._batch_mean(x) if self.training else self.running_mean
        if self.bias is not None:
            shift = shift - self.bias
        return _minus(x, shift, self.dim)

    def _check(self, x: Tensor) -> None:
        C = self.num_features
        if not 2 <= x.dim() <= 5 or x.shape[self.dim] != C:
            wanted = f"(N, {C}) and up to three more dimensions" if self.dim == 1 else f"(N, ..., {C})"
            raise ValueError(f"MeanNorm({C}) takes {wanted}, not {tuple(x.shape)}")
        if self.training and x.numel() == 0:
            raise ValueError(f"MeanNorm cannot take the mean of an empty batch, {tuple(x.shape)}")

    def _batch_mean(self, x: Tensor) -> Tensor:
        mean = _mean_of_batch(x, self.dim)
        with torch.no_grad():
            self.num_batches_tracked.add_(1)
            share = 1 / self.num_batches_tracked if self.momentum is None else self.momentum
            self.running_mean.mul_(1 - share).add_(share * mean)
        return mean

    def extra_repr(self) -> str:
        """The arguments."""
        dim = "" if self.dim == 1 else f", dim={self.dim}"
        return f"{self.num_features}, bias={self.bias is not None}, momentum={self.momentum}{dim}"


def _minus(x: Tensor, shift: Tensor, dim: int) -> Tensor:
    positions = x.dim() - 2 if dim == 1 else 0
    return x - shift.to(x.dtype).view(-1, *(1,) * positions)


def _mean_of_batch(x: Tensor, dim: int) -> Tensor:
    """The mean of each channel, (C,), in float32 or better, over the batches of all processes."""
    over = [d for d in range(x.dim()) if d != dim % x.dim()]
    wide = torch.promote_types(x.dtype, torch.float32)
    total, count = x.sum(over, dtype=wide), x.numel() / x.shape[dim]
    if not (dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1):
        return total / count  # the gradient of `mean` would be as large as x
    sums: Tensor = _SumOverProcesses.apply(torch.cat((total, x.new_tensor([count], dtype=wide))))
    return sums[:-1] / sums[-1]


@torch.no_grad()
def update_norms(batches: Iterable[Any], model: nn.Module, device: Any = None) -> None:
    """Recompute the running statistics of all norms from ``batches``: ``swa_utils.update_bn``, but for MeanNorm too.

    Args:
        batches: inputs, or tuples whose first entry is the input.
        model: in training mode for one pass; then each module has its old mode again.
        device: the device to move inputs to, if any.

    >>> norm = MeanNorm(1)
    >>> update_norms([torch.tensor([[1.0]]), torch.tensor([[4.0]])], norm)
    >>> norm.running_mean
    tensor([2.5000])
    """
    batches = iter(batches)
    first = [*islice(batches, 1)]
    if not first:
        raise ValueError("there are no batches to take statistics from; the norms keep theirs")
    norms = [module for module in model.modules() if isinstance(module, MeanNorm | BatchNormNd)]
    momenta, training = [norm.momentum for norm in norms], [module.training for module in model.modules()]
    for norm in norms:
        norm.reset_running_stats()
        norm.momentum = None
    model.train()
    try:
        for batch in chain(first, batches):
            x = batch[0] if isinstance(batch, list | tuple) else batch
            model(x if device is None else x.to(device))
    finally:
        for norm, momentum in zip(norms, momenta, strict=True):
            norm.momentum = momentum
        for module, before in zip(model.modules(), training, strict=True):
            module.training = before


class _SumOverProcesses(torch.autograd.Function):
    """The sum over all processes; its gradient is the sum of their gradients."""

    @staticmethod
    def forward(ctx: object, x: Tensor) -> Tensor:
        x = x.clone()
        dist.all_reduce(x)
        return x

    @staticmethod
    def backward(ctx: object, grad: Tensor) -> Tensor:
        return _SumOverProcesses.forward(ctx, grad)
