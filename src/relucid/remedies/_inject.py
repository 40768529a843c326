"""Plasticity injection (Nikishin et al. 2023): a new network learns what is added to the old one."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

from torch import Tensor, nn

from relucid._torch import tree_leaves, tree_map
from relucid.remedies._effect import Optimizers, RemedyError, check_network, optimizers_in


class Injected(nn.Module):
    """old(x) + (new(x) - frozen(x)): only ``new`` is trained, and ``frozen`` is what it began as.

    At first new = frozen, so that no output changes, exactly.
    """

    def __init__(self, old: nn.Module, new: nn.Module) -> None:
        super().__init__()
        self.old, self.new, self.frozen = old, new, copy.deepcopy(new)
        self.old.requires_grad_(False)
        self.frozen.requires_grad_(False)
        self.train(old.training)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """The outputs of all three, for any form of outputs that is made of tensors."""
        outputs = [net(*args, **kwargs) for net in (self.old, self.new, self.frozen)]
        leaves = list(zip(*map(tree_leaves, outputs), strict=True))
        sums = iter([_injected(*leaf) for leaf in leaves])
        return tree_map(lambda _: next(sums), outputs[0])


def _injected(old: Any, new: Any, frozen: Any) -> Any:
    return old + (new - frozen) if isinstance(old, Tensor) and old.is_floating_point() else old


def inject(
    model: nn.Module,
    fresh: nn.Module | Callable[[], nn.Module],
    *,
    optimizer: Optimizers = None,
) -> Injected:
    """Freeze a network, or its head, and let a new one learn the difference; no output changes.

    Outputs are old(x) + (new(x) - frozen copy of new(x)). Put the result where the network was:
    ``agent.head = inject(agent.head, make_head, optimizer=optimizer)``.

    Args:
        model: The network or head, which is frozen and becomes a part of the result.
        fresh: A new one of the same inputs and outputs, or a function that makes it.
        optimizer: One or several: in place of the old parameters they train the new ones.

    >>> import torch
    >>> old, x = nn.Linear(3, 2), torch.randn(5, 3)
    >>> torch.equal(inject(old, nn.Linear(3, 2))(x), old(x))
    True
    """
    check_network(model)
    optimizers = optimizers_in(optimizer, model)
    new = fresh if isinstance(fresh, nn.Module) else fresh()
    if new is model:
        raise RemedyError("fresh= must be a new network, not the one that is to be frozen")
    like = next(model.parameters(), None)
    new = new if like is None else new.to(like.device, like.dtype)
    for one in optimizers:
        _replace(one, list(model.parameters()), list(new.parameters()))
    return Injected(model, new)


def _replace(optimizer: Any, old: list[nn.Parameter], new: list[nn.Parameter]) -> None:
    """Train new parameters in the group of the first old one, and none of the old ones."""
    gone = {id(p) for p in old}
    added = False
    for group in optimizer.param_groups:
        here = [i for i, p in enumerate(group["params"]) if id(p) in gone]
        if not here:
            continue
        kept = [p for p in group["params"] if id(p) not in gone]
        if "param_names" in group:
            names = [
                n for n, p in zip(group["param_names"], group["params"], strict=True) if id(p) not in gone
            ]
            group["param_names"] = names + ([] if added else [f"new.{i}" for i in range(len(new))])
        group["params"] = kept if added else kept + new
        added = True
    for parameter in old:
        optimizer.state.pop(parameter, None)
