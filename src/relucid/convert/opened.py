"""Modules that are looked into in another way: torch's transformer layers, norms with an activation inside."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from relucid.convert.graph import NORMS
from relucid.convert.network import light_copy


def encoder_layer(
    m: Any, src: Any, src_mask: Any = None, src_key_padding_mask: Any = None, is_causal: bool = False
) -> Any:
    """What ``nn.TransformerEncoderLayer`` computes, without its fast path, which is one opaque function."""

    def attend(x: Any) -> Any:
        options = {"attn_mask": src_mask, "key_padding_mask": src_key_padding_mask, "is_causal": is_causal}
        return m.dropout1(m.self_attn(x, x, x, need_weights=False, **options)[0])

    def feed_forward(x: Any) -> Any:
        return m.dropout2(m.linear2(m.dropout(m.activation(m.linear1(x)))))

    if m.norm_first:
        x = src + attend(m.norm1(src))
        return x + feed_forward(m.norm2(x))
    x = m.norm1(src + attend(src))
    return m.norm2(x + feed_forward(x))


def encoder(
    m: Any, src: Any, mask: Any = None, src_key_padding_mask: Any = None, is_causal: bool | None = None
) -> Any:
    """What ``nn.TransformerEncoder`` computes, without nested tensors."""
    options = {"src_mask": mask, "src_key_padding_mask": src_key_padding_mask, "is_causal": bool(is_causal)}
    for layer in m.layers:
        src = layer(src, **options)
    return src if m.norm is None else m.norm(src)


OPENED: dict[type[nn.Module], Callable[..., Any]] = {
    nn.TransformerEncoderLayer: encoder_layer,
    nn.TransformerEncoder: encoder,
}


def is_norm_with_more(module: nn.Module) -> bool:
    """Whether a module is of a class that someone has made of a batch norm of torch's."""
    return isinstance(module, _BatchNorm) and type(module) not in NORMS


def norm_of(module: nn.Module) -> nn.Module:
    """The batch norm of torch's with the parameters and buffers of one that does more, and its children."""
    kind = next(t for t in type(module).__mro__ if t in NORMS)
    assert isinstance(module, _BatchNorm)
    options = (module.eps, module.momentum, module.affine, module.track_running_stats)
    new: nn.Module = kind(module.num_features, *options)
    new._parameters.update({name: module._parameters.get(name) for name in new._parameters})
    new._buffers.update({name: module._buffers.get(name) for name in new._buffers})
    new._modules.update(module._modules)
    return new.train(module.training)


def is_norm_and_then(module: nn.Module, x: Any) -> bool:
    """Whether a module computes, in both modes, what its batch norm does, and then something without the mode."""
    if not isinstance(x, Tensor):
        return False
    try:
        return all(_agree(light_copy(module), light_copy(module), x.detach(), mode) for mode in (True, False))
    except Exception:
        return False


@contextmanager
def norms_called(call: Callable[[Any], Any]) -> Iterator[None]:
    """While it lasts, ``F.batch_norm`` in a module's code is ``call`` of its input."""
    norm = F.batch_norm

    def once(value: Any, *_: Any, **__: Any) -> Any:
        with patch.object(F, "batch_norm", norm):  # which the call will need
            return call(value)

    with patch.object(F, "batch_norm", once):
        yield


def _agree(module: nn.Module, other: nn.Module, x: Tensor, training: bool) -> bool:
    norm = norm_of(other).train(training)
    other.train(training)
    other.training = False
    with torch.no_grad():
        torch.manual_seed(0)
        expected = module.train(training)(x)
        torch.manual_seed(0)
        with norms_called(norm):
            found = other(x)
    pairs = [(expected, found), *((b, norm.get_buffer(n)) for n, b in module.named_buffers(recurse=False))]
    return all(torch.allclose(a, b, rtol=1e-5, atol=1e-7, equal_nan=True) for a, b in pairs)
