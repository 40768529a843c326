"""A table of a network's layers: output shapes, parameters, multiply-adds."""

from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.parametrize import is_parametrized
from torch.utils.flop_counter import FlopCounterMode

from relucid._torch import tree_leaves

TOKENS = (torch.int32, torch.int64)  # what an embedding takes
FUSED = (nn.RNNBase, nn.MultiheadAttention)  # their kernels hide their products from the counter


@dataclass(frozen=True)
class Row:
    """A layer: name, kind, output shape for one input (None if it is never called), and cost."""

    name: str
    kind: str
    output_shape: tuple[int, ...] | None
    parameters: int
    multiply_adds: int


@dataclass(frozen=True)
class Description:
    """The layers of a network, and their totals."""

    rows: tuple[Row, ...]

    @property
    def parameters(self) -> int:
        """The number of parameters of all layers."""
        return sum(row.parameters for row in self.rows)

    @property
    def multiply_adds(self) -> int:
        """The multiply-adds of all convolutions and matrix products, for one input."""
        return sum(row.multiply_adds for row in self.rows)

    def __str__(self) -> str:
        lines = [("layer", "kind", "output", "parameters", "multiply-adds")]
        for row in self.rows:
            shape = " x ".join(map(str, row.output_shape or ()))
            lines.append((row.name, row.kind, shape, f"{row.parameters:,}", f"{row.multiply_adds:,}"))
        lines.append(("total", "", "", f"{self.parameters:,}", f"{self.multiply_adds:,}"))
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        adjust = (str.ljust, str.ljust, str.ljust, str.rjust, str.rjust)
        return "\n".join(
            "  ".join(f(cell, width) for f, cell, width in zip(adjust, line, widths, strict=True))
            for line in lines
        )


def count_parameters(net: nn.Module) -> int:
    """The number of a network's parameters.

    >>> count_parameters(nn.Linear(4, 3))
    15
    """
    return sum(parameter.numel() for parameter in net.parameters())


def describe(net: nn.Module, example: Tensor | None = None) -> Description:
    """Describe a network's layers: output shapes, parameters and multiply-adds, measured by running a copy on zeros.

    >>> from relucid.models import create
    >>> print(describe(create("mlp", in_channels=8, num_classes=1)))
    layer   kind    output  parameters  multiply-adds
    fc1     Linear  100            900            800
    act1    ReLU    100              0              0
    output  Linear  1              101            100
    total                        1,001            900

    Args:
        net: a network from ``create``; any other needs an ``example``.
        example: a batch of inputs; only its shape matters, and whether it has integers for an embedding.
    """
    shape = getattr(net, "input_shape", ()) if example is None else tuple(example.shape[1:])
    if not shape:
        raise ValueError("describe needs an example input for a network that `create` did not build")
    for name, module in net.named_modules():
        if isinstance(module, FUSED):
            kind = type(module).__name__
            raise ValueError(f"describe cannot count the multiply-adds of {name or 'the network'}, a {kind}")
    replica = deepcopy(net).eval()
    like = next((p for p in net.parameters() if p.is_floating_point()), torch.empty(0))
    dtype = example.dtype if example is not None and example.dtype in TOKENS else like.dtype
    shapes: dict[str, tuple[int, ...]] = {}
    for name, module in replica.named_modules():
        module.register_forward_hook(_record(shapes, name))
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        replica(torch.zeros(1, *shape, dtype=dtype, device=like.device))
    counts, root = counter.get_flop_counts(), type(replica).__name__

    def flops(name: str) -> int:
        return sum(counts.get(f"{root}.{name}", {}).values())

    rows = []
    for name, module in replica.named_modules():
        if not name or "parametrizations" in name.split("."):
            continue
        flops_here = flops(name) - sum(flops(f"{name}.{child}") for child, _ in module.named_children())
        parameters = sum(p.numel() for p in module.parameters(recurse=is_parametrized(module)))
        is_called_leaf = name in shapes and not any(True for _ in module.children())
        if parameters or flops_here or is_called_leaf:
            kind = type(module).__name__.removeprefix("Parametrized")
            rows.append(Row(name, kind, shapes.get(name), parameters, flops_here // 2))
    return Description(tuple(rows))


def _record(shapes: dict[str, tuple[int, ...]], name: str) -> Callable[[nn.Module, Any, Any], None]:
    def hook(module: nn.Module, inputs: Any, output: Any) -> None:
        # of several outputs the first is shown: a recurrent cell returns its state after it
        first = next((leaf for leaf in tree_leaves(output) if isinstance(leaf, Tensor)), None)
        if first is not None:
            shapes[name] = tuple(first.shape[1:])

    return hook
