"""The private names of torch that relucid uses, each with its reason; no other file may use any.

`tests/test_torch.py` fails for each of them when a release of torch changes what we rely on.
"""

import sys
from typing import Any

from torch import Tensor, nn

# A tensor inside vmap or another transform of torch.func must not be kept: it has no meaning outside.
from torch._C._functorch import is_functorch_wrapped_tensor

# Base classes of layers that come in one, two and three dimensions: torch has no public name for "any convolution".
from torch.nn.modules.batchnorm import _BatchNorm as BatchNormNd
from torch.nn.modules.conv import _ConvNd as ConvNd
from torch.nn.modules.conv import _ConvTransposeNd as ConvTransposeNd

# What `torch.nn.utils.parametrizations.weight_norm` registers; ensembles replace it, as vmap has no rule for it.
from torch.nn.utils.parametrizations import _WeightNorm as WeightNorm

# The only way to see every operation of a network, however it is written.
from torch.utils._python_dispatch import TorchDispatchMode

# Nested containers of tensors; `torch.utils.pytree` is public from 2.9 on.
from torch.utils._pytree import tree_leaves, tree_map, tree_map_only

__all__ = [
    "BatchNormNd",
    "ConvNd",
    "ConvTransposeNd",
    "DispatchMode",
    "WeightNorm",
    "compiler_is_imported",
    "copy_hooks",
    "has_hooks",
    "hook_counts",
    "is_compiled",
    "is_functorch_wrapped_tensor",
    "is_sharded",
    "parameter_hooks",
    "registries",
    "schema_of",
    "slow_path",
    "storage_of",
    "tree_leaves",
    "tree_map",
    "tree_map_only",
    "unparametrized_class",
    "version_of",
]

# Where a module keeps the hooks that users registered: torch has no public way to list them.
HOOKS = (
    *("_forward_hooks", "_forward_hooks_with_kwargs", "_forward_hooks_always_called"),
    *("_forward_pre_hooks", "_forward_pre_hooks_with_kwargs"),
    *("_backward_hooks", "_backward_pre_hooks", "_is_full_backward_hook"),
)


def copy_hooks(old: nn.Module, new: nn.Module) -> None:
    """Give ``new`` the hooks on calls and gradients that ``old`` has."""
    for name in HOOKS:
        setattr(new, name, getattr(old, name))


def has_hooks(module: nn.Module) -> bool:
    """Whether a module has hooks on its calls or gradients."""
    return any(getattr(module, name) for name in HOOKS)


def hook_counts(module: nn.Module) -> list[int]:
    """How many hooks of each kind a module has."""
    return [len(getattr(module, name) or ()) for name in HOOKS if name != "_is_full_backward_hook"]


def parameter_hooks(parameter: Tensor) -> bool:
    """Whether a parameter has hooks on its gradient."""
    return bool(parameter._backward_hooks) or bool(getattr(parameter, "_post_accumulate_grad_hooks", None))


def is_compiled(model: object) -> bool:
    """Whether ``torch.compile`` returned it: a module around the original."""
    return isinstance(getattr(model, "_orig_mod", None), nn.Module)


def is_sharded(module: nn.Module) -> bool:
    """Whether FSDP has divided its weights among processes; to ask without it being there would import it."""
    fsdp, tensors = (sys.modules.get(f"torch.distributed.{name}") for name in ("fsdp", "tensor"))
    wrapped = fsdp is not None and isinstance(module, fsdp.FullyShardedDataParallel)
    parameters = list(module.parameters(recurse=False)) if tensors is not None else []
    return wrapped or any(isinstance(p, tensors.DTensor) for p in parameters)  # type: ignore[union-attr]


def registries(module: nn.Module) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
    """What a module has registered, by name: parameters, buffers, modules. Setting in them keeps the order of names."""
    return module._parameters, module._buffers, module._modules


def slow_path(layer: nn.TransformerEncoderLayer) -> None:
    """Make a layer call its modules: its fast path multiplies by their weights, whatever they have become."""
    layer.activation_relu_or_gelu = 0


def unparametrized_class(module: nn.Module) -> type[nn.Module]:
    """The class of a parametrized module before; torch gives every such module a class of its own."""
    return type(module).__mro__[1]


class DispatchMode(TorchDispatchMode):
    """A mode that sees every operation."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        # Skipping would import the compiler, which takes seconds; nothing is compiled under our modes.
        return False


def schema_of(operation: Any) -> Any:
    """The name and the arguments of an operation that a dispatch mode sees."""
    return operation._schema


def storage_of(tensor: Tensor) -> int:
    """A number that tensors share if they share memory; unlike an address it is also that of an empty storage."""
    return int(tensor.untyped_storage()._cdata)


def version_of(tensor: Tensor) -> int:
    """How often a tensor was changed in place, as autograd counts it."""
    return tensor._version


def compiler_is_imported() -> bool:
    """Whether anything may have been compiled; to ask the compiler would import it, which takes seconds."""
    return "torch._dynamo" in sys.modules
