"""How many products of a weight and an input a call computes."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch.nn.functional as F
from torch import Tensor
from torch.utils._pytree import tree_leaves

from relucid.convert.graph import FILTERS, RECURRENT_CALLS, TRANSPOSED


def products(function: Any, args: Sequence[Any], kwargs: Mapping[str, Any], output: Any) -> int:
    """Return how many products of a weight and an input a function has computed; 0 for functions without weights.

    Args:
        function: What linear, convolution and recurrent layers and attention call, or any other function of torch.
        args: Its positional arguments.
        kwargs: Its keyword arguments.
        output: What it returned.

    >>> import torch
    >>> x, weight = torch.randn(5, 3), torch.randn(2, 3)
    >>> products(F.linear, (x, weight), {}, F.linear(x, weight))
    30
    """
    if function in FILTERS or function in TRANSPOSED:
        given = dict(zip(("input", "weight"), args, strict=False)) | dict(kwargs)
        read: Tensor = given["input"] if function in TRANSPOSED else output
        weight: Tensor = given["weight"]
        return read.numel() * math.prod(weight.shape[1:])
    if function in RECURRENT_CALLS:  # every matrix, at every step of every sequence; states have 3 dimensions
        matrices = [w for w in tree_leaves(args[2:]) if isinstance(w, Tensor) and w.dim() == 2]
        x: Tensor = args[0]
        return math.prod(x.shape[:-1]) * sum(w.numel() for w in matrices)
    if function is F.multi_head_attention_forward:
        names = ("query", "key", "value", "embed_dim_to_check")
        given = dict(zip(names, args, strict=False)) | dict(kwargs)
        query, key, value, size = (given[name] for name in names)
        return int(
            (2 * query.numel() + key.numel() + value.numel()) * size
        )  # the output is as large as the query
    return 0
