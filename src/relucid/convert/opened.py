"""Modules that tracing needs help with: torch's transformer layers, and norms with an activation inside."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from inspect import signature
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
    """Compute what ``nn.TransformerEncoderLayer`` does, without its fast path, which is one opaque function."""

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
    """Compute what ``nn.TransformerEncoder`` does, without nested tensors."""
    options = {"src_mask": mask, "src_key_padding_mask": src_key_padding_mask, "is_causal": bool(is_causal)}
    for layer in m.layers:
        src = layer(src, **options)
    return src if m.norm is None else m.norm(src)


def decoder_layer(m: Any, tgt: Any, memory: Any, **masks: Any) -> Any:
    """Compute what ``nn.TransformerDecoderLayer`` does; ``masks`` are its further arguments."""
    own, other = _mask_options("tgt", masks), _mask_options("memory", masks)

    def attend(x: Any) -> Any:
        return m.dropout1(m.self_attn(x, x, x, need_weights=False, **own)[0])

    def look_up(x: Any) -> Any:
        return m.dropout2(m.multihead_attn(x, memory, memory, need_weights=False, **other)[0])

    def feed_forward(x: Any) -> Any:
        return m.dropout3(m.linear2(m.dropout(m.activation(m.linear1(x)))))

    if m.norm_first:
        x = tgt + attend(m.norm1(tgt))
        x = x + look_up(m.norm2(x))
        return x + feed_forward(m.norm3(x))
    x = m.norm1(tgt + attend(tgt))
    x = m.norm2(x + look_up(x))
    return m.norm3(x + feed_forward(x))


def _mask_options(name: str, masks: dict[str, Any]) -> dict[str, Any]:
    """Return the options of an attention from the arguments of a decoder layer for it."""
    return {
        "attn_mask": masks.get(f"{name}_mask"),
        "key_padding_mask": masks.get(f"{name}_key_padding_mask"),
        "is_causal": bool(masks.get(f"{name}_is_causal")),
    }


def decoder(m: Any, tgt: Any, memory: Any, **masks: Any) -> Any:
    """Compute what ``nn.TransformerDecoder`` does; ``masks`` are its further arguments."""
    for layer in m.layers:
        tgt = layer(tgt, memory, **masks)
    return tgt if m.norm is None else m.norm(tgt)


def transformer(m: Any, src: Any, tgt: Any, **masks: Any) -> Any:
    """Compute what ``nn.Transformer`` does; ``masks`` are its further arguments."""
    options = _mask_options("src", masks)
    padding = options["key_padding_mask"]
    memory = m.encoder(src, options["attn_mask"], padding, options["is_causal"])
    return m.decoder(
        tgt, memory, **{name: mask for name, mask in masks.items() if not name.startswith("src")}
    )


def by_name(compute: Callable[..., Any]) -> Callable[..., Any]:
    """Return ``compute`` for a module and two inputs, with all further arguments passed on by name."""

    def call(m: nn.Module, *args: Any, **kwargs: Any) -> Any:
        bound = signature(type(m).forward).bind(m, *args, **kwargs)
        return compute(*bound.args[:3], **dict(list(bound.arguments.items())[3:]))

    return call


OPENED: dict[type[nn.Module], Callable[..., Any]] = {
    nn.TransformerEncoderLayer: encoder_layer,
    nn.TransformerEncoder: encoder,
    nn.TransformerDecoderLayer: by_name(decoder_layer),
    nn.TransformerDecoder: by_name(decoder),
    nn.Transformer: by_name(transformer),
}


def is_norm_with_more(module: nn.Module) -> bool:
    """Return whether a module's class is derived from one of torch's batch norms."""
    return isinstance(module, _BatchNorm) and type(module) not in NORMS


def norm_of(module: nn.Module) -> nn.Module:
    """Return torch's batch norm with the parameters, buffers and children of a norm that does more."""
    kind = next(t for t in type(module).__mro__ if t in NORMS)
    assert isinstance(module, _BatchNorm)
    options = (module.eps, module.momentum, module.affine, module.track_running_stats)
    new: nn.Module = kind(module.num_features, *options)
    new._parameters.update({name: module._parameters.get(name) for name in new._parameters})
    new._buffers.update({name: module._buffers.get(name) for name in new._buffers})
    new._modules.update(module._modules)
    return new.train(module.training)


def is_norm_and_then(module: nn.Module, x: Any) -> bool:
    """Return whether a module is, in both modes, a batch norm followed by something that ignores the mode."""
    if not isinstance(x, Tensor):
        return False
    try:
        return all(_agree(light_copy(module), light_copy(module), x.detach(), mode) for mode in (True, False))
    except Exception:
        return False


@contextmanager
def norms_called(call: Callable[[Any], Any]) -> Iterator[None]:
    """Replace ``F.batch_norm`` by ``call``, applied to its input, within the block."""
    norm = F.batch_norm

    def once(value: Any, *_: Any, **__: Any) -> Any:
        with patch.object(F, "batch_norm", norm):  # because ``call`` may use it
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
