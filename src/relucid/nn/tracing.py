"""How a layer is being called: to compute, or to be traced, compiled, exported or mapped."""

from typing import Any

import torch
from torch import Tensor


def is_traced(x: Tensor) -> bool:
    """Whether a graph of plain operations is being recorded: by torch.jit.trace, torch.fx or an exporter.

    Not by torch.compile, which also records autograd functions.

    >>> is_traced(torch.ones(1))
    False
    """
    # torch.fx traces with a Proxy, which is no tensor.
    recorded: bool = torch.jit.is_tracing()  # type: ignore[attr-defined]  # torch.compile knows this one only
    return not isinstance(x, Tensor) or recorded or is_exported()


def is_exported() -> bool:
    """Whether torch.export or an ONNX exporter is running."""
    return torch.compiler.is_exporting() or torch.onnx.is_in_onnx_export()


def has_values(x: Tensor) -> bool:
    """Whether the numbers in ``x`` can be read from its memory.

    Not while tracing or compiling, on "meta", inside torch.func, or of a tensor that is a wrapper around others.
    """
    # Exporters compile or trace; asking each of them would take longer than all the rest.
    recorded: bool = torch.compiler.is_compiling() or torch.jit.is_tracing()  # type: ignore[attr-defined]
    return (
        isinstance(x, Tensor)
        and not (recorded or x.is_meta or is_transformed())
        and torch._C._has_storage(x)
        and type(x).__torch_dispatch__ is Tensor.__torch_dispatch__
        and not x._is_zerotensor()
    )


def is_transformed() -> bool:
    """Whether a transform of torch.func is running: what is computed then belongs to it.

    >>> is_transformed()
    False
    """
    return torch._C._functorch.peek_interpreter_stack() is not None


def mapped_first(info: Any, in_dims: tuple[int | None, ...], inputs: tuple[Any, ...]) -> list[Any]:
    """The inputs of a function under vmap, with the mapped dimension first in every tensor."""
    return [
        x if not isinstance(x, Tensor)
        else x.expand(info.batch_size, *x.shape) if dim is None
        else x.movedim(dim, 0)
        for x, dim in zip(inputs, in_dims, strict=True)
    ]  # fmt: skip
