"""Read-only tensors: computed from a layer's parameters, they cannot be set."""

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor

from relucid.nn.tracing import has_values

_IN_PLACE = {
    f"__{name}__" for name in ("setitem", "iadd", "isub", "imul", "itruediv", "ifloordiv", "ipow", "imod")
}
_HARMLESS = {"requires_grad_", "detach_", "share_memory_"}


def read_only(x: Tensor, why: str) -> Tensor:
    """``x``, protected against changes in place, which would be lost: they raise an error that says ``why``.

    >>> torch.nn.init.zeros_(read_only(torch.ones(2), "set `latitudes` instead"))
    Traceback (most recent call last):
    RuntimeError: set `latitudes` instead
    """
    if not has_values(x):
        return x
    protected: Any = x.as_subclass(_ReadOnly)
    protected.why = why
    return protected  # type: ignore[no-any-return]


class _ReadOnly(Tensor):
    why: str

    @classmethod
    def __torch_function__(
        cls,
        func: Callable[..., Any],
        types: Iterable[type],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        kwargs = kwargs or {}
        target = kwargs.get("out", args[0] if args else kwargs.get("tensor"))
        if isinstance(target, _ReadOnly) and ("out" in kwargs or _changes(func)):
            raise RuntimeError(target.why)  # a TypeError would make `w += 1` a `w = w + 1`
        with torch._C.DisableTorchFunctionSubclass():
            result = func(*args, **kwargs)
        if func == Tensor.data.__get__:  # type: ignore[attr-defined]
            return read_only(result, args[0].why)
        return result


def _changes(func: Callable[..., Any]) -> bool:
    """Whether a function of torch changes its first argument."""
    name = getattr(func, "__name__", "")
    if name in _IN_PLACE or func == Tensor.data.__set__:  # type: ignore[attr-defined]
        return True
    return name.endswith("_") and not name.endswith("__") and name not in _HARMLESS
