"""Activations that keep both signs of a unit: CReLU, its inverse, and the absolute value (AVR)."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, fx, nn

from relucid.nn.checks import Activation as Activation
from relucid.nn.checks import check_callable, name_of
from relucid.nn.tracing import Opaque, is_exported


def crelu(x: Tensor, dim: int = 1, *, paired: int | None = None) -> Tensor:
    """Both signs of ``x``, one after the other: ``[relu(x), relu(-x)]`` (crelu Definition 2.1).

    The gradient is that of two ReLUs (0 at 0). Backward needs only the output, which the next layer stores anyway.

    Args:
        x: (..., C, ...), floating point.
        dim: dimension of the C channels.
        paired: double the first ``paired`` channels only; all of them by default.

    Returns:
        (..., 2C, ...), or (..., C + paired, ...): the positive phase of every channel, then the negative phases.

    >>> crelu(torch.tensor([[1.0, -2.0]]))
    tensor([[1., 0., 0., 2.]])
    >>> crelu(torch.tensor([[1.0, -2.0]]), paired=1)
    tensor([[1., 0., 0.]])
    """
    if isinstance(x, fx.Proxy):
        return x.tracer.create_proxy("call_function", crelu, (x, dim), {"paired": paired})
    dim, paired = _check(x, dim, paired)
    if torch.compiler.is_compiling() or is_exported():  # a compiler fuses this by itself
        return both_signs(x, dim, paired).relu()
    y: Tensor = _CReLU.apply(x, dim, paired)
    return y


def both_signs(x: Tensor, dim: int, paired: int | None = None, groups: int = 1) -> Tensor:
    """``[x, -x]``, where ``-x`` has only the first ``paired`` channels; all of them if None.

    The channels may be several ``groups`` of equal size, each followed by its own negation.

    >>> both_signs(torch.tensor([[1.0, -2.0]]), dim=1, paired=1)
    tensor([[ 1., -2., -1.]])
    >>> both_signs(torch.tensor([[1.0, -2.0]]), dim=1, groups=2)
    tensor([[ 1., -1., -2.,  2.]])
    """
    return grouped(torch.cat((x, -x if paired is None else -x.narrow(dim, 0, paired)), dim), dim, groups)


def grouped(y: Tensor, dim: int, groups: int) -> Tensor:
    """Both signs of several groups of channels, (..., 2C, ...), in another order: each group with its own two.

    >>> grouped(torch.tensor([1, 2, -1, -2]), dim=0, groups=2)
    tensor([ 1, -1,  2, -2])
    """
    if groups == 1:
        return y
    dim %= y.dim()
    blocks: Tensor = y.unflatten(dim, (2, groups, -1))
    return blocks.transpose(dim, dim + 1).flatten(dim, dim + 2)


def crelu_inverse(y: Tensor, dim: int = 1) -> Tensor:
    """The ``x`` whose ``crelu(x, dim)`` is ``y``: the positive phase minus the negative one.

    >>> crelu_inverse(torch.tensor([[1.0, 0.0, 0.0, 2.0]]))
    tensor([[ 1., -2.]])
    """
    _check(y, dim, None)
    if y.shape[dim] % 2:
        raise ValueError(
            f"crelu_inverse needs an even number of channels, two phases each; dim {dim} has {y.shape[dim]}"
        )
    positive, negative = y.chunk(2, dim)
    return positive - negative


class CReLU(Opaque):
    """``[f(x), f(-x)]`` for an elementwise activation f, ReLU by default (crelu Definition 2.1).

    Args:
        dim: dimension of the channels.
        activation: any elementwise callable; ReLU by default.
        paired: double the first ``paired`` channels only; all of them by default.
        groups: the channels are that many groups of equal size, each followed by its own negative phases: what a
            convolution with as many groups can read.

    >>> CReLU()(torch.randn(8, 3, 32, 32)).shape
    torch.Size([8, 6, 32, 32])
    >>> CReLU(activation=torch.tanh)(torch.zeros(8, 3)).shape
    torch.Size([8, 6])
    """

    def __init__(
        self,
        dim: int = 1,
        activation: Activation | None = None,
        paired: int | None = None,
        groups: int = 1,
    ) -> None:
        super().__init__()
        check_callable(activation)
        if groups < 1 or (groups > 1 and paired is not None):
            raise ValueError(f"groups={groups} must be 1 or more, and 1 if only some channels are paired")
        self.dim = dim
        self.activation = activation
        self.paired = paired
        self.groups = groups

    def forward(self, x: Tensor) -> Tensor:
        """Both signs of ``x``, (..., C, ...) -> (..., 2C, ...)."""
        if isinstance(x, fx.Proxy):
            return self.as_node(x)
        return self.along(x, self.dim)

    def along(self, x: Tensor, dim: int) -> Tensor:
        """Both signs of an ``x`` whose channels are in ``dim``."""
        _check(x, dim, self.paired)
        if x.shape[dim] % self.groups:
            raise ValueError(f"{x.shape[dim]} channels cannot be divided into {self.groups} groups")
        if self.activation is None or is_relu(self.activation):
            y = crelu(x, dim, paired=self.paired)
        else:
            y = self.activation(both_signs(x, dim, self.paired))
        return grouped(y, dim, self.groups)

    def extra_repr(self) -> str:
        """The arguments that differ from the defaults, always with ``dim``."""
        parts = [f"dim={self.dim}"]
        if self.activation is not None and not isinstance(self.activation, nn.Module):
            parts.append(f"activation={name_of(self.activation)}")
        if self.paired is not None:
            parts.append(f"paired={self.paired}")
        if self.groups > 1:
            parts.append(f"groups={self.groups}")
        return ", ".join(parts)


class AVR(nn.Module):
    """The absolute value ``|x|`` (crelu: "absolute value rectification"): both phases, without telling them apart.

    >>> AVR()(torch.tensor([-1.0, 2.0]))
    tensor([1., 2.])
    """

    def forward(self, x: Tensor) -> Tensor:
        """``|x|``, of the shape of ``x``."""
        return x.abs()


def is_relu(activation: Activation) -> bool:
    """Whether ``activation`` is ReLU, as a module or as torch's function.

    >>> is_relu(nn.ReLU()), is_relu(F.relu), is_relu(torch.tanh)
    (True, True, False)
    """
    # A subclass may compute something else.
    return type(activation) is nn.ReLU or activation in (torch.relu, F.relu)


def _check(x: Tensor, dim: int, paired: int | None) -> tuple[int, int]:
    """The non-negative ``dim`` and the number of doubled channels; raises if the arguments do not fit ``x``."""
    if not isinstance(x, Tensor):
        raise TypeError(f"CReLU takes a tensor, not a {type(x).__name__}")
    if not x.is_floating_point():
        raise TypeError(f"CReLU takes a real floating-point tensor, not {x.dtype}")
    if not -x.dim() <= dim < x.dim():
        raise IndexError(f"dim {dim} is not a dimension of a tensor of shape {tuple(x.shape)}")
    channels = x.shape[dim]
    if paired is not None and not 0 <= paired <= channels:
        raise ValueError(f"paired={paired} is not between 0 and the {channels} channels of dim {dim}")
    return dim % x.dim(), channels if paired is None else paired


class _CReLU(torch.autograd.Function):
    @staticmethod
    def forward(x: Tensor, dim: int, paired: int) -> Tensor:
        shape = list(x.shape)
        shape[dim] += paired
        # Same memory order as x: channels-last stays channels-last.
        order = sorted(range(x.dim()), key=x.stride, reverse=True)
        y = torch.empty_permuted(shape, order, dtype=x.dtype, device=x.device)
        positive, negative = y.split([x.shape[dim], paired], dim)
        torch.clamp(x, min=0, out=positive)
        torch.neg(x.narrow(dim, 0, paired), out=negative).relu_()
        return y

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, int, int], output: Tensor) -> None:
        _, ctx.dim, ctx.paired = inputs
        ctx.save_for_backward(output)
        ctx.save_for_forward(output)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        (y,) = ctx.saved_tensors
        dim, paired = ctx.dim, ctx.paired
        through = torch.ops.aten.threshold_backward(grad, y, 0)  # ReLU's own backward, for both phases
        positive, negative = through.split([y.shape[dim] - paired, paired], dim)
        if paired == positive.shape[dim]:
            return positive - negative, None, None
        doubled, plain = positive.split([paired, positive.shape[dim] - paired], dim)
        return torch.cat((doubled - negative, plain), dim), None, None

    @staticmethod
    def jvp(ctx: Any, tangent: Tensor, *_: None) -> Tensor:
        (y,) = ctx.saved_tensors
        both = torch.cat((tangent, -tangent.narrow(ctx.dim, 0, ctx.paired)), ctx.dim)
        out: Tensor = torch.ops.aten.threshold_backward(both, y, 0)
        return out

    @staticmethod
    def vmap(
        info: Any, in_dims: tuple[int, None, None], x: Tensor, dim: int, paired: int
    ) -> tuple[Tensor, int]:
        return _CReLU.apply(x.movedim(in_dims[0], 0), dim + 1, paired), 0
