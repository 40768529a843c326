r"""Layers whose units are hyperplanes, described by angles and a radius: geometric parameterization (gmp).

A unit is :math:`z = r \, g(u(\theta)^T x + \lambda)` (gmp Eq. 15): the direction u and the radius :math:`\lambda`
place its boundary, the scale r sets the size of its output.
"""

import math
from collections.abc import Callable
from typing import Any, ClassVar, Literal, Self

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from relucid._torch import ConvNd
from relucid.nn.activation import CReLU, is_relu
from relucid.nn.affine import padding_of
from relucid.nn.checks import Activation, check_callable, check_homogeneous, check_positive, name_of
from relucid.nn.rectify import fits, not_zero, of_channels, rectify
from relucid.nn.sphere import direction, latitudes_of
from relucid.nn.tracing import is_exported

Standard = nn.Linear | ConvNd
Init = Literal["one", "glorot", "glorot_uniform"]
_BLOCK = (
    2**16
)  # numbers of a weight whose angles are computed at a time: their float64 copies stay in the cache


class _Geometric(nn.Module):
    """Base class of the geometric layers."""

    standard: ClassVar[type[Any]]  # the standard layer's class, and its arguments
    arguments: ClassVar[tuple[str, ...]]
    spatial: ClassVar[int]  # number of dimensions after the channels
    weight_decay: ClassVar[bool] = False

    latitudes: nn.Parameter
    offset: nn.Parameter | None
    scale: nn.Parameter | None
    sign: Tensor | None
    # The last sources and weight in evaluation.
    _evaluated: "tuple[list[Tensor | None], Tensor] | None" = None

    def _set_up(
        self, like: Standard, activation: Activation | None, init: Init, scale: bool, device: Any
    ) -> None:
        """Copy the arguments of a standard layer and create the parameters."""
        if init not in ("one", "glorot", "glorot_uniform"):
            raise ValueError(f"init must be 'one', 'glorot' or 'glorot_uniform', not {init!r}")
        if not like.weight.is_floating_point():
            raise TypeError(f"a geometric layer needs a real floating-point dtype, not {like.weight.dtype}")
        check_callable(activation)
        for name in self.arguments:
            setattr(self, name, getattr(like, name))
        self.init, self.activation, self.weight_shape = init, activation, like.weight.shape
        units, inputs = self.weight_shape[0], self.weight_shape[1:].numel()
        kind = {"device": device, "dtype": like.weight.dtype}
        self.latitudes = nn.Parameter(torch.empty(units, inputs - 1, **kind))
        self.register_parameter("scale", nn.Parameter(torch.empty(units, **kind)) if scale else None)
        offset = None if like.bias is None else nn.Parameter(torch.empty(units, **kind))
        self.register_parameter("offset", offset)
        # In one dimension a direction is a sign, which no gradient changes.
        self.register_buffer("sign", torch.empty(units, 1, **kind) if inputs == 1 else None)
        self.reset_parameters()

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """Draw directions uniformly on the sphere; offsets are 0, scales 1 or those of Glorot's weights (gmp 4.3).

        The paper's "uniformly at random" means the direction: if each angle were uniform, the first few coordinates
        would take up all of u.
        """
        if self.latitudes.is_meta:  # there are no values to set, and meta tensors are slow
            return
        weight = torch.empty(self.weight_shape, device=self.latitudes.device, dtype=torch.float32)
        if self.init == "glorot_uniform":
            # As in the gmp authors' code, where the fan-out omits the area of a convolution's kernel.
            bound = math.sqrt(6 / (self.weight_shape[1:].numel() + self.weight_shape[0]))
            nn.init.uniform_(weight, -bound, bound)
        else:
            nn.init.xavier_normal_(weight)
        self._describe(weight, None)
        if self.scale is not None and self.init == "one":
            self.scale.fill_(1.0)

    @property
    def angles(self) -> Tensor:
        """The angles of gmp Eq. 10, (units, n - 1): pi/2 minus the latitudes, which are stored."""
        return math.pi / 2 - self.latitudes

    @property
    def direction(self) -> Tensor:
        """The unit vectors u, one per unit: (units, n), in float32 or better."""
        wide = torch.promote_types(self.latitudes.dtype, torch.float32)
        return _built(self.latitudes.to(wide), None, self.sign)

    @property
    def weight(self) -> Tensor:
        """The weight r u of the standard layer that computes r (u.x + lambda); computed, so changes to it are lost."""
        return _built(self.latitudes, self.scale, self.sign).view(self.weight_shape)

    @property
    def bias(self) -> Tensor | None:
        """The bias r lambda of the standard layer that computes r (u.x + lambda); computed, as the weight is."""
        return self._bias(self.scale)

    def __setattr__(self, name: str, value: Any) -> None:
        if name in ("weight", "bias"):
            raise AttributeError(self._refusal(name, "latitudes" if name == "weight" else "offset"))
        super().__setattr__(name, value)

    def register_parameter(self, name: str, param: nn.Parameter | None) -> None:
        """As in any module, except that a parameter named weight or bias (from pruning, say) is refused."""
        if name.startswith(("weight", "bias")):
            raise AttributeError(self._refusal(name, "latitudes" if name.startswith("weight") else "offset"))
        super().register_parameter(name, param)

    def _refusal(self, name: str, source: str) -> str:
        kind = type(self).__name__
        return (
            f"a {kind} has no {name} to set: it is computed from the layer's `{source}` and `scale`; "
            f"set those, or convert a standard layer with {kind}.from_standard"
        )

    def _weight(self, scale: Tensor | None) -> Tensor:
        """The weight ``scale`` u; in evaluation on a CPU, the last one if it was made of the same numbers.

        To compare the numbers themselves costs a fraction of computing the weight, and no way of changing a parameter
        escapes it.
        """
        own = self.training or torch.is_grad_enabled() or torch.compiler.is_compiling() or is_exported()
        if own or type(self.latitudes) is not nn.Parameter or self.latitudes.device.type != "cpu":
            return _built(self.latitudes, scale, self.sign).view(self.weight_shape)
        sources, last = [self.latitudes, scale, self.sign], self._evaluated
        if last is None or not all(map(_equal, sources, last[0])):
            copies = [None if each is None else each.detach().clone() for each in sources]
            last = copies, _built(self.latitudes, scale, self.sign).view(self.weight_shape)
            self._evaluated = last
        return last[1]

    def forget_weight(self) -> None:
        """Drop the weight that evaluation would use again."""
        self._evaluated = None

    def train(self, mode: bool = True) -> Self:
        """Set the mode, and let go of the weight of evaluation, which training would hold for nothing."""
        self.forget_weight()
        return super().train(mode)

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "_evaluated": None}

    def _bias(self, scale: Tensor | None) -> Tensor | None:
        return self.offset if self.offset is None or scale is None else scale * self.offset

    def forward(self, x: Tensor) -> Tensor:
        """The output r g(u.x + lambda), of the shape that the standard layer and the activation g give."""
        if self.activation is None:
            return self._affine(x, self._weight(self.scale), self._bias(self.scale))
        if self.scale is not None and is_relu(self.activation) and fits(self.latitudes):
            # r inside the weight costs less than outside the ReLU.
            r = not_zero(self.scale)
            y = self._affine(x, self._weight(r), self._bias(r))
            return rectify(y, r.view(-1, *(1,) * self.spatial))
        # Eq. 15 literally.
        y = self._activated(self._affine(x, self._weight(None), self.offset))
        if self.scale is None:
            return y
        scale = of_channels(self.scale, self.activation, y.shape[-1 - self.spatial])
        return y * scale.to(y.dtype).view(-1, *(1,) * self.spatial)

    def _activated(self, y: Tensor) -> Tensor:
        if isinstance(self.activation, CReLU):  # the layer knows its channel dimension, batched or not
            return self.activation.along(y, -1 - self.spatial)
        return y if self.activation is None else self.activation(y)

    def _affine(self, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        raise NotImplementedError

    @classmethod
    def from_standard(cls, layer: Standard, activation: Activation | None = None) -> Self:
        """The geometric layer that computes ``layer``, or ``activation(layer(x))`` with the activation inside.

        What is frozen stays frozen.

        A filter of zeros has no direction: it gets an arbitrary one, with a scale so small relative to its bias
        that the output stays constant.
        """
        if not isinstance(layer, cls.standard):
            raise TypeError(
                f"{cls.__name__}.from_standard takes an nn.{cls.standard.__name__}, not {type(layer).__name__}"
            )
        for name, values in (("weight", layer.weight), ("bias", layer.bias)):
            if values is not None and not values.isfinite().all():
                raise ValueError(
                    f"the {name} of the layer holds NaN or infinity; it has no direction to keep"
                )
        if activation is not None:
            check_homogeneous(activation, layer.weight, cls.spatial)
        arguments = {name: getattr(layer, name) for name in cls.arguments}
        new = cls(**arguments, bias=layer.bias is not None, dtype=layer.weight.dtype, device="meta")
        new.to_empty(device=layer.weight.device)
        new.activation = activation
        new._describe(layer.weight, layer.bias)
        for own, of in ((new.latitudes, layer.weight), (new.scale, layer.weight), (new.offset, layer.bias)):
            if own is not None and isinstance(of, nn.Parameter):
                own.requires_grad_(of.requires_grad)
        return new.train(layer.training)

    def to_standard(self) -> Standard:
        """The standard layer with the same output; an activation inside the layer is left out.

        What is frozen stays frozen.
        """
        if self.activation is not None and self.scale is not None:
            negative = int((self.scale < 0).sum())
            if negative:
                raise ValueError(
                    f"{negative} of {len(self.scale)} scales are negative, and r g(s) is not g(r s) then; "
                    "relucid.convert.fuse moves them into the layers that follow"
                )
            check_homogeneous(self.activation, self.scale, self.spatial)
        arguments = {name: getattr(self, name) for name in self.arguments}
        layer: Standard = self.standard(
            **arguments, bias=self.offset is not None, dtype=self.latitudes.dtype, device="meta"
        ).to_empty(device=self.latitudes.device)
        with torch.no_grad():
            # In float64: products in float32 are off by 1e-6 of the filter's length.
            rows = _built(self.latitudes.double(), self.scale, self.sign)
            layer.weight.copy_(rows.view(self.weight_shape))
            layer.weight.requires_grad_(self.latitudes.requires_grad)
            if layer.bias is not None and self.offset is not None and self.bias is not None:
                layer.bias.copy_(self.bias)
                layer.bias.requires_grad_(self.offset.requires_grad)
        return layer.train(self.training)

    @torch.no_grad()
    def _describe(self, weight: Tensor, bias: Tensor | None) -> None:
        """Set direction, offset and scale to those of a standard weight and bias."""
        rows = weight.flatten(1)
        if self.sign is not None:
            self.sign.copy_(torch.where(rows < 0, -1.0, 1.0))
        norms = rows.new_empty(len(rows), dtype=torch.float64)
        block = max(1, _BLOCK // rows.shape[1])
        for part, latitudes, lengths in zip(
            rows.split(block), self.latitudes.split(block), norms.split(block), strict=True
        ):
            part = part.to(latitudes.dtype)
            torch.linalg.vector_norm(part, dim=1, dtype=torch.float64, out=lengths)
            latitudes.copy_(latitudes_of(part.masked_fill(lengths[:, None] == 0, 1.0)))
        if bias is not None:
            # Limits the offset to limits.max / 64, so that sums of its products with gradients stay finite.
            limits = torch.finfo(self.latitudes.dtype)
            norms = norms.maximum(bias.double().abs() * max(limits.eps**2, 64 / limits.max))
        if self.scale is not None:
            self.scale.copy_(norms)
        if self.offset is not None:
            zero = torch.zeros_like(norms)
            self.offset.copy_(zero if bias is None else torch.where(norms == 0, zero, bias / norms))

    def extra_repr(self) -> str:
        """The arguments of the standard layer, then ours."""
        parts = [self.standard.extra_repr(self)]
        if self.activation is not None and not isinstance(self.activation, nn.Module):
            parts.append(f"activation={name_of(self.activation)}")
        return ", ".join(parts)


def _equal(a: Tensor | None, b: Tensor | None) -> bool:
    if a is None or b is None:
        return a is b
    return a.dtype == b.dtype and torch.equal(a, b)


def _built(latitudes: Tensor, scale: Tensor | None, sign: Tensor | None) -> Tensor:
    """The rows r u of a weight, (units, n), in the dtype of the latitudes."""
    rows = direction(latitudes, scale)
    return rows if sign is None else rows * sign


class GeometricLinear(_Geometric):
    r"""A linear layer in geometric parameterization, r g(u.x + lambda) (gmp Eq. 15).

    A drop-in for ``nn.Linear``. Its parameters are ``latitudes`` (pi/2 minus the angles of gmp Eq. 10), ``offset``
    (the radius lambda) and ``scale`` (r): as many numbers as the standard layer has.

    Args:
        in_features: n.
        out_features: the number of units.
        bias: whether there is an ``offset``.
        device: as in ``nn.Linear``.
        dtype: as in ``nn.Linear``.
        activation: g, any elementwise callable or CReLU; none by default.
        init: initial scales: 1 ("one", as in the paper), or the norms of Glorot's weights, normal ("glorot") or
            uniform ("glorot_uniform", as in the authors' runs).
        scale: whether there is a ``scale``; a norm after the layer would cancel it.

    Shape:
        (..., in_features) -> (..., out_features).

    >>> layer = GeometricLinear(3, 5, activation=nn.ReLU())
    >>> layer(torch.zeros(2, 3)).shape
    torch.Size([2, 5])
    >>> standard = nn.Linear(3, 5)
    >>> back = GeometricLinear.from_standard(standard).to_standard()
    >>> torch.allclose(back.weight, standard.weight)
    True
    """

    standard = nn.Linear
    arguments = ("in_features", "out_features")
    spatial = 0

    in_features: int
    out_features: int

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = True,
        device: Any = None,
        dtype: torch.dtype | None = None,
        *,
        activation: Activation | None = None,
        init: Init = "one",
        scale: bool = True,
    ) -> None:
        check_positive(in_features=in_features, out_features=out_features)
        super().__init__()
        like = nn.Linear(in_features, out_features, bias, device="meta", dtype=dtype)
        self._set_up(like, activation, init, scale, device)

    def _affine(self, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        return F.linear(x, weight, bias)


CONVOLUTIONS: dict[int, Callable[..., Tensor]] = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}


class _GeometricConv(_Geometric):
    arguments = (
        "in_channels",
        "out_channels",
        "kernel_size",
        "stride",
        "padding",
        "dilation",
        "groups",
        "padding_mode",
    )

    in_channels: int
    out_channels: int
    kernel_size: tuple[int, ...]
    stride: tuple[int, ...]
    padding: tuple[int, ...] | str
    dilation: tuple[int, ...]
    groups: int
    padding_mode: str
    output_padding = (0,)  # nn.ConvNd's repr reads it

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Any,
        stride: Any = 1,
        padding: Any = 0,
        dilation: Any = 1,
        groups: int = 1,
        bias: bool = True,
        padding_mode: str = "zeros",
        device: Any = None,
        dtype: torch.dtype | None = None,
        *,
        activation: Activation | None = None,
        init: Init = "one",
        scale: bool = True,
    ) -> None:
        check_positive(in_channels=in_channels, out_channels=out_channels)
        super().__init__()
        geometry = (in_channels, out_channels, kernel_size, stride, padding, dilation)
        like = self.standard(*geometry, groups, bias, padding_mode, device="meta", dtype=dtype)
        self._set_up(like, activation, init, scale, device)

    def _affine(self, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        padding = self.padding
        if self.padding_mode != "zeros":
            x, padding = F.pad(x, padding_of(self), self.padding_mode), (0,)
        return CONVOLUTIONS[self.spatial](x, weight, bias, self.stride, padding, self.dilation, self.groups)


class GeometricConv1d(_GeometricConv):
    """``nn.Conv1d`` in geometric parameterization; see ``GeometricLinear``.

    >>> GeometricConv1d(4, 6, 3, padding="same", groups=2)(torch.zeros(1, 4, 10)).shape
    torch.Size([1, 6, 10])
    """

    standard = nn.Conv1d
    spatial = 1


class GeometricConv2d(_GeometricConv):
    """``nn.Conv2d`` in geometric parameterization; see ``GeometricLinear``.

    >>> GeometricConv2d(3, 8, 3, stride=2, activation=nn.ReLU())
    GeometricConv2d(
      3, 8, kernel_size=(3, 3), stride=(2, 2)
      (activation): ReLU()
    )
    """

    standard = nn.Conv2d
    spatial = 2


class GeometricConv3d(_GeometricConv):
    """``nn.Conv3d`` in geometric parameterization; see ``GeometricLinear``.

    >>> GeometricConv3d(1, 2, 3, padding_mode="circular", padding=1)(torch.zeros(1, 1, 4, 4, 4)).shape
    torch.Size([1, 2, 4, 4, 4])
    """

    standard = nn.Conv3d
    spatial = 3
