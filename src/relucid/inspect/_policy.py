"""How certain a policy is of its actions: the entropy of what the part of an agent that chooses them returns."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from relucid.inspect.execution import called

Policy = str | Callable[[nn.Module, Any], Any]  # a part's name, or a function of the network and the inputs
CERTAIN = 0.15  # share of the greatest entropy below which a policy is reported
NAN = float("nan")


@dataclass
class Entropy:
    """Mean entropy of a policy over all its choices, in nats."""

    total: float = 0.0
    choices: int = 0
    greatest: float = NAN  #: what it could be at most; nan if there is no bound

    @property
    def mean(self) -> float:
        """The mean; nan if no choice was seen."""
        return self.total / self.choices if self.choices else NAN

    @property
    def is_certain(self) -> bool:
        """Whether the policy hardly ever tries another action."""
        return self.mean < CERTAIN * self.greatest

    def add(self, output: Any) -> None:
        """Add what a policy returned: logits (..., actions), a distribution, or a tuple that begins with one.

        >>> entropy = Entropy()
        >>> entropy.add(torch.zeros(5, 4))
        >>> round(entropy.mean, 4), round(entropy.greatest, 4), entropy.choices
        (1.3863, 1.3863, 5)
        """
        if isinstance(output, tuple | list):
            output = output[0]
        if isinstance(output, Tensor):
            output = torch.distributions.Categorical(logits=output.detach().float(), validate_args=False)
        if not hasattr(output, "entropy"):
            raise TypeError(f"policy= must give logits or a distribution, not {type(output).__name__}")
        entropy, logits = output.entropy(), getattr(output, "logits", None)
        self.total, self.choices = self.total + float(entropy.sum()), self.choices + entropy.numel()
        self.greatest = (
            math.log(max(logits.shape[-1], 1)) if isinstance(logits, Tensor) and logits.dim() else NAN
        )

    def sentence(self, policy: Policy | None) -> str:
        """What a certain policy means, and what helps."""
        head = policy if isinstance(policy, str) else "its last layer"
        return (
            f"the policy is certain of its actions (entropy {self.mean:.2g} of at most {self.greatest:.2g}): if it "
            f"does not learn, give it a new head, relucid.remedies.reset(model, [{head!r}], optimizer=optimizer); a "
            "conversion keeps outputs, and so cannot help"
        )


@contextmanager
def watched(
    entropy: Entropy, model: nn.Module, part: nn.Module, policy: Policy | None
) -> Iterator[Callable[[Any], None]]:
    """Add what a policy returns meanwhile; yield what to call with every batch that the part has run on."""
    if callable(policy):
        yield (lambda batch: entropy.add(called(model, batch, policy))) if part is model else _ignore
        return
    head = model.get_submodule(policy) if policy is not None else None
    if head is None or all(module is not head for module in part.modules()):
        yield _ignore
        return
    handle = head.register_forward_hook(lambda _module, _args, output: entropy.add(output))
    try:
        yield _ignore
    finally:
        handle.remove()


def _ignore(_: Any) -> None:
    """Nothing: a hook sees what the policy returns."""
