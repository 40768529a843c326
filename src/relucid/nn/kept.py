"""A cache for weights built from parameters: valid until one of the parameters changes."""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor, nn
from torch.optim.optimizer import _foreach_supported_types, register_optimizer_step_post_hook

from relucid.nn.sphere_grad import differentiable, write_vector
from relucid.nn.tracing import has_values

Parts = TypeVar("Parts")


class Watched(nn.Parameter):
    """A parameter that notices what autograd's version counter misses: writes through ``data`` and by optimizers.

    Who has asked for ``data`` may write to it later, unseen: from then on the parameter is ``exposed``, and nothing
    that is built from it is kept. What nobody can notice: writes to ``detach().numpy()`` and to the storage itself.
    """

    changes = 0
    exposed = False

    @property
    def data(self) -> Tensor:
        """As for any tensor."""
        self.exposed = True
        return super().data

    @data.setter
    def data(self, new: Tensor) -> None:
        self.exposed = True
        nn.Parameter.data.__set__(self, new)  # type: ignore[attr-defined]

    def __deepcopy__(self, memo: dict[int, Any]) -> "Watched":
        if id(self) not in memo:
            memo[id(self)] = Watched(
                self.detach().clone(memory_format=torch.preserve_format), self.requires_grad
            )
        copied: Watched = memo[id(self)]
        return copied

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        return _rebuilt, (self.detach(), self.requires_grad)

    @property
    def is_alone(self) -> bool:
        """Whether its memory is all its own: neither part of a larger buffer nor shared with other processes."""
        return not self.is_shared() and self.untyped_storage().nbytes() == self.numel() * self.itemsize


def _rebuilt(values: Tensor, requires_grad: bool) -> Watched:
    return Watched(values, requires_grad)


torch.serialization.add_safe_globals([_rebuilt])  # parameters that were saved themselves, not as a state_dict


def _note_step(optimizer: torch.optim.Optimizer, *_: Any) -> None:
    """Count a step: fused ones change parameters without a new version."""
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            if type(parameter) is Watched:
                parameter.changes += 1


register_optimizer_step_post_hook(_note_step)

# On a GPU, optimizers update many parameters per call, but only those of types in this list.
_foreach_supported_types.append(Watched)


class _Source(NamedTuple):
    """The state of a parameter when a weight was built from it; holds its memory, so that the address is not reused."""

    parameter: Watched
    memory: Tensor
    address: int
    dtype: torch.dtype
    version: int
    changes: int

    @classmethod
    def of(cls, parameter: Watched) -> "_Source":
        memory = parameter.detach()
        return cls(parameter, memory, memory.data_ptr(), memory.dtype, parameter._version, parameter.changes)

    def is_still(self, parameter: Watched) -> bool:
        return (
            self.parameter is parameter
            and not parameter.exposed
            and self.changes == parameter.changes
            and self.version == parameter._version
            and self.address == parameter.data_ptr()
            and self.dtype == parameter.dtype
        )


class _Built(NamedTuple):
    sources: list[_Source]
    w: Tensor
    p: Tensor | None  # for derivatives; None if they are not needed
    holders: int  # tensors that share the memory of w and p while no graph does


class _Settled(NamedTuple):
    sources: list[_Source]
    activation: Any
    parts: Any


class Kept:
    """The weight, direction times scale, that was built last, and what it was built from."""

    _built: _Built | None = None
    _settled: _Settled | None = None

    def __deepcopy__(self, memo: dict[int, Any]) -> "Kept":
        return Kept()

    def __reduce__(self) -> tuple[type["Kept"], tuple[()]]:
        return Kept, ()

    @staticmethod
    def can_keep(*parameters: Tensor) -> bool:
        """Whether changes of the parameters would be noticed: they are the layer's own, and not being traced."""
        return has_values(parameters[0]) and all(
            type(each) is Watched
            and each.dtype in (torch.float32, torch.float64)
            and not (each.exposed or each.is_inference())
            and each.is_alone
            for each in parameters
        )

    def settled(self, parameters: list[Any], activation: Any, settle: Callable[[], Parts]) -> Parts | None:
        """``settle()``, without gradients, called again only if a parameter or the activation has changed.

        None if a change of the parameters would go unnoticed.
        """
        if not has_values(parameters[0]):
            return None
        old = self._settled
        if old is not None and old.activation is activation and _all_still(old.sources, parameters):
            known: Parts = old.parts
            return known
        if not self.can_keep(*parameters):
            return None
        with torch.inference_mode(False), torch.no_grad():
            sources, parts = [_Source.of(each) for each in parameters], settle()
        self._settled = _Settled(sources, activation, parts)
        return parts

    def made(self) -> Iterator[tuple[Tensor, list[Watched]]]:
        """All cached tensors, each with the parameters it was built from."""
        if self._built is not None:
            yield self._built.w, [source.parameter for source in self._built.sources]
        if self._settled is not None:
            sources = [source.parameter for source in self._settled.sources]
            for part in self._settled.parts:
                if isinstance(part, Tensor) and not isinstance(part, Watched):
                    yield part, sources

    def direction(self, latitudes: Watched, scale: Watched | None = None) -> Tensor:
        """``direction(latitudes, scale)``, rebuilt only if one of them has changed."""
        w, p = self.vector(latitudes, scale)
        return w if p is None else differentiable(latitudes, scale, 1, w, p)[0]

    def vector(self, latitudes: Watched, scale: Watched | None = None) -> tuple[Tensor, Tensor | None]:
        """The values of w and, if gradients are needed, of p (see ``sphere_grad``)."""
        parameters = [latitudes] if scale is None else [latitudes, scale]
        trained = torch.is_grad_enabled() and any(each.requires_grad for each in parameters)
        built = self._built
        if built is None or (trained and built.p is None) or not _all_still(built.sources, parameters):
            with torch.inference_mode(False), torch.no_grad():
                built = self._built = self._build(parameters, trained)
        return built.w, built.p if trained else None

    def _build(self, parameters: list[Watched], trained: bool) -> _Built:
        self._settled = None  # it may hold memory that is now free
        w, p = self._free_memory(parameters[0]) or _new_memory(parameters[0])
        write_vector(parameters[0], parameters[1] if len(parameters) > 1 else None, True, w, p)
        sources = [_Source.of(each) for each in parameters]
        return _Built(sources, w, p, _holders(w, p)) if trained else _Built(sources, w, None, _holders(w))

    def _free_memory(self, latitudes: Tensor) -> tuple[Tensor, Tensor] | None:
        """The memory of the previous weight, if nothing else uses it; the weight is given up."""
        # In one step: another thread must not have it, too.
        old: _Built | None = vars(self).pop("_built", None)
        if old is None or old.p is None or not latitudes.is_cpu:  # on a GPU, another stream may still read it
            return None
        alike = old.p.shape == latitudes.shape and old.p.dtype == latitudes.dtype and old.p.is_cpu
        return (old.w, old.p) if alike and _holders(old.w, old.p) == old.holders else None


def _all_still(sources: list[_Source], parameters: list[Watched]) -> bool:
    return len(sources) == len(parameters) and all(map(_Source.is_still, sources, parameters))


def _new_memory(latitudes: Tensor) -> tuple[Tensor, Tensor]:
    units, angles = latitudes.shape
    return latitudes.new_empty(units, angles + 1), latitudes.new_empty(units, angles)


def _holders(*tensors: Tensor) -> int:
    """How many tensors share the memory of these."""
    return sum(torch._C._storage_Use_Count(x.untyped_storage()._cdata) for x in tensors)
