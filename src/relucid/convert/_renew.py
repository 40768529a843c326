"""Give entries of a parameter new values, with an optimizer's state that lets their first step be no longer than others'."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from relucid.convert._edits import Edits

# What optimizers of torch call a state that is a size: a mean square, a sum of squares, a largest size, a step size.
SIZES = ("sq", "sum", "square_avg", "inf", "step_size")


@torch.no_grad()
def renew(
    edits: Edits,
    tensor: Tensor,
    dim: int,
    units: Tensor,
    value: Tensor | float,
    rows: slice = slice(None),
) -> None:
    r"""Write entries of a parameter or buffer; their gradients become 0.

    A first moment starts at 0. If a second moment started at 0, too, while Adam's count of steps went on, the first
    step would be (1 - beta1) / sqrt(1 - beta2) = 3.2 times the rate and the tenth 6.5 times, at which units die again. It
    starts at the mean of the living units' instead, entry by entry; where none lives, all state starts again.

    Args:
        edits: The network that is being changed, and its optimizers.
        tensor: The parameter or buffer.
        dim: The dimension of the units, 0 or 1.
        units: The units whose entries to write.
        value: The new entries.
        rows: With ``dim`` 1, the rows to write, such as those of a group of filters.
    """
    units = units.to(tensor.device)
    at = (rows, units) if dim else (units,)
    edits.write(tensor, at, value)
    if tensor.grad is not None:
        edits.write(tensor.grad, at, 0.0)
    living = torch.ones(tensor.shape[dim], dtype=torch.bool, device=tensor.device)
    living[units] = False
    none = not bool(living.any())
    for optimizer in edits.optimizers:
        state = optimizer.state.get(tensor)
        if not state:
            continue
        entries = {k: v for k, v in state.items() if isinstance(v, Tensor) and v.dim()}
        if (none and rows == slice(None)) or any(v.shape != tensor.shape for v in entries.values()):
            optimizer.state[tensor] = {}  # the edits put the old one back if need be
            continue
        for key, entry in entries.items():
            is_size = key.endswith(SIZES) and not bool((entry < 0).any())
            mean = entry.mean() if none else entry[rows if dim else slice(None)]
            if not none:
                mean = mean.index_select(dim, living.nonzero().flatten()).mean(dim, keepdim=True)
            edits.write(entry, at, mean if is_size else 0.0)
