"""How a layer is being called: to be exported, under autocast, or under vmap."""

from typing import Any

import torch
from torch import Tensor, nn


def is_exported() -> bool:
    """Whether torch.export, an exporter to ONNX or torch.jit.trace records plain operations, to be run elsewhere.

    >>> is_exported()
    False
    """
    traced: bool = torch.jit.is_tracing()  # type: ignore[attr-defined]
    return torch.compiler.is_exporting() or torch.onnx.is_in_onnx_export() or traced


def uncached_autocast(device_type: str) -> torch.autocast:
    """The current autocast without its cache of weights, which in older torch are cast without gradients.

    >>> uncached_autocast("cpu").device
    'cpu'
    """
    return torch.autocast(
        device_type,
        dtype=torch.get_autocast_dtype(device_type),
        enabled=torch.is_autocast_enabled(device_type),
        cache_enabled=False,
    )


def no_autocast(model: nn.Module) -> torch.autocast:
    """Autocast switched off, on the device of a network's weights."""
    device_types = (p.device.type for p in model.parameters() if not p.is_meta)
    return torch.autocast(next(device_types, "cpu"), enabled=False)


def mapped_first(info: Any, in_dims: tuple[int | None, ...], inputs: tuple[Any, ...]) -> list[Any]:
    """The inputs of a function under vmap, with the mapped dimension first in every tensor."""
    return [
        x if not isinstance(x, Tensor)
        else x.expand(info.batch_size, *x.shape) if dim is None
        else x.movedim(dim, 0)
        for x, dim in zip(inputs, in_dims, strict=True)
    ]  # fmt: skip
