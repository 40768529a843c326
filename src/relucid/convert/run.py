"""What a network computes in one mode: outputs, gradients and statistics."""

from collections.abc import Collection
from contextlib import nullcontext
from dataclasses import dataclass, is_dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from relucid._torch import DispatchMode, schema_of, tree_leaves, tree_map_only
from relucid.convert.examples import Batch, arguments
from relucid.inspect.execution import in_mode, tensors_in
from relucid.randomness import seeded


@dataclass(frozen=True)
class Evaluation:
    """What a network computes on an example in one mode."""

    outputs: list[Tensor]
    others: list[Any]  #: outputs that are not tensors
    inputs: list[Tensor | None]  #: gradients of the inputs
    gradients: dict[str, Tensor | None]  #: of the parameters wanted
    values: dict[str, Tensor]  #: the parameters
    trained: dict[str, bool]  #: which parameters require gradients
    buffers: dict[str, Tensor]  #: after the run
    backward: bool  #: whether gradients could be computed
    multiply_adds: int  #: how many products of a weight and an input were computed

    @property
    def is_finite(self) -> bool:
        """Whether outputs can be compared: some of the real or complex numbers are finite, or there are none."""
        real = [x for x in self.outputs if x.is_floating_point() or x.is_complex()]
        return any(bool(x.isfinite().any()) for x in real) or not real


def run(
    model: nn.Module,
    example: Batch,
    training: bool,
    *,
    backward: bool = True,
    count: bool = False,
    wanted: Collection[str] | None = None,
) -> Evaluation:
    """Run a network, with dropouts that halve, and compute the gradients of a fixed sum of its outputs.

    Args:
        model: Any network; its modes are put back, but not its buffers.
        example: Its input.
        training: In which mode.
        backward: Whether to compute gradients; without, they are all None.
        count: Whether to count multiply-adds.
        wanted: The parameters whose gradients to compute, by default all.
    """
    example = tree_map_only(Tensor, _leaf, example)
    leaves = [x for x in tree_leaves(example) if isinstance(x, Tensor) and x.requires_grad]
    args, kwargs = arguments(tree_map_only(Tensor, lambda x: x.clone() if x.requires_grad else x, example))
    counter = _Counting() if count else None
    with (
        in_mode(model, training),
        seeded(),
        torch.set_grad_enabled(backward),
        counter or nullcontext(),
        _Halving(),
    ):
        answer = model(*args, **kwargs)
    outputs = tensors_in(answer)
    parameters = {
        name: p
        for name, p in model.named_parameters()
        if p.requires_grad and (wanted is None or name in wanted)
    }
    with seeded():  # a backward of its own may draw, as that of shake-shake does
        gradients = _gradients(outputs, [*leaves, *parameters.values()]) if backward else None
    given = iter(gradients or ())
    return Evaluation(
        [x.detach() for x in outputs],
        [x for x in tree_leaves(answer) if isinstance(x, int | float | str) and not is_dataclass(x)],
        [next(given, None) for _ in leaves],
        dict(zip(parameters, given, strict=False)),
        {name: p.detach() for name, p in model.named_parameters()},
        {name: p.requires_grad for name, p in model.named_parameters()},
        {name: b.detach().clone() for name, b in model.named_buffers()},
        gradients is not None,
        0 if counter is None else counter.products,
    )


def _leaf(x: Tensor) -> Tensor:
    x = x.detach().clone()
    return x.requires_grad_() if x.is_floating_point() or x.is_complex() else x


def _gradients(outputs: list[Tensor], of: list[Tensor]) -> list[Tensor | None] | None:
    """The gradients of a fixed random combination of all outputs; None if there are none."""
    generator = torch.Generator().manual_seed(0)
    total = torch.zeros((), dtype=torch.float64)
    for x in outputs:
        if x.requires_grad:
            x = x.abs() if x.is_complex() else x
            factors = torch.randn(x.shape, generator=generator, dtype=torch.float64)
            total = total + (x * factors.to(x)).sum().double().cpu()
    if not total.requires_grad or not of:
        return None
    try:
        return list(torch.autograd.grad(total, of, allow_unused=True))
    except RuntimeError:
        return None


DROPOUTS: set[Any] = {
    F.dropout,
    F.dropout1d,
    F.dropout2d,
    F.dropout3d,
    F.alpha_dropout,
    F.feature_alpha_dropout,
}
DROPOUTS |= {torch.dropout, torch.alpha_dropout, torch.feature_dropout, torch.dropout_}
# What `scaled_dot_product_attention` takes by position after query, key, value and mask.
AFTER_MASK = ("dropout_p", "is_causal")


class _Counting(DispatchMode):
    """Counts products of weights and inputs."""

    def __init__(self) -> None:
        super().__init__()
        self.products = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        output = func(*args, **(kwargs or {}))
        name = schema_of(func).name
        if name == "aten::convolution":
            x, weight, transposed = args[0], args[1], args[6]
            self.products += (x if transposed else output).numel() * weight[0].numel()
        elif name in ("aten::mm", "aten::addmm"):
            self.products += output.numel() * len(args[-1])
        return output


class _Halving(TorchFunctionMode):
    """Makes dropouts halve everything: with other channels, a converted network would drop other entries."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func in DROPOUTS:
            given = dict(zip(("input", "p", "train"), args, strict=False)) | kwargs
            x = given["input"]
            # Functions in `torch` say `train`; those in `torch.nn.functional` arrive with `training` by keyword.
            if not given.get("training", given.get("train")):
                return x
            return x.mul_(0.5) if given.get("inplace", func is torch.dropout_) else x * 0.5
        if func is F.scaled_dot_product_attention:
            kwargs = dict(zip(AFTER_MASK, args[4:], strict=False)) | kwargs | {"dropout_p": 0.0}
            args = args[:4]
        return func(*args, **kwargs)
