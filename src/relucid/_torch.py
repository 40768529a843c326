"""The private names of torch that relucid uses, each with its reason; no other file may use any.

`tests/test_torch.py` fails for each of them when a release of torch changes what we rely on.
"""

from torch import nn

# Base classes of layers that come in one, two and three dimensions: torch has no public name for "any convolution".
from torch.nn.modules.batchnorm import _BatchNorm as BatchNormNd
from torch.nn.modules.conv import _ConvNd as ConvNd
from torch.nn.modules.conv import _ConvTransposeNd as ConvTransposeNd

# The only way to see every operation of a network, however it is written.
from torch.utils._python_dispatch import TorchDispatchMode

# Nested containers of tensors; `torch.utils.pytree` is public from 2.9 on.
from torch.utils._pytree import tree_flatten, tree_leaves, tree_map, tree_map_only, tree_unflatten

__all__ = [
    "BatchNormNd",
    "ConvNd",
    "ConvTransposeNd",
    "TorchDispatchMode",
    "copy_hooks",
    "tree_flatten",
    "tree_leaves",
    "tree_map",
    "tree_map_only",
    "tree_unflatten",
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
