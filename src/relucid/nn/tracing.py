"""How a layer is being called: to be exported, by torch.fx, under autocast, or under vmap."""

from typing import Any

import torch
from torch import Tensor, fx, nn


def is_exported() -> bool:
    """Whether torch.export, an exporter to ONNX or torch.jit.trace records plain operations, to be run elsewhere.

    >>> is_exported()
    False
    """
    traced: bool = torch.jit.is_tracing()  # type: ignore[attr-defined]
    return torch.compiler.is_exporting() or torch.onnx.is_in_onnx_export() or traced


class Opaque(nn.Module):
    """A layer that a graph of torch.fx calls as a whole, like a layer of torch; torch.jit.script refuses it.

    >>> from relucid.nn import CReLU
    >>> print(fx.symbolic_trace(nn.Sequential(nn.Linear(2, 3), CReLU())).graph)
    graph():
        %input_1 : [num_users=1] = placeholder[target=input]
        %_0 : [num_users=1] = call_module[target=0](args = (%input_1,), kwargs = {})
        %_1 : [num_users=1] = call_module[target=1](args = (%_0,), kwargs = {})
        return _1
    """

    def __prepare_scriptable__(self) -> Any:
        raise NotImplementedError(
            f"torch.jit.script cannot compile {type(self).__name__}: use torch.export, torch.compile or torch.jit.trace"
        )

    def as_node(self, x: fx.Proxy) -> Any:
        """The call of this layer on ``x`` in the graph that torch.fx is tracing."""
        tracer: Any = x.tracer
        path = tracer.path_of_module(self)
        if not path:
            raise ValueError(
                f"torch.fx traces a network that contains a {type(self).__name__}, not the layer alone"
            )
        return tracer.create_proxy("call_module", path, (x,), {})


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
