"""What every remedy takes and returns: a network, its optimizers, and what became of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from relucid.inspect.batches import parts_of
from relucid.inspect.execution import Method, called, in_mode
from relucid.inspect.recorder import tensors_in
from relucid.printing import Summarized, counted
from relucid.randomness import seeded

NAN = float("nan")
Optimizers = Any  # one torch.optim.Optimizer, a wrapper of one, or several


class RemedyError(ValueError):
    """A remedy that cannot be applied; nothing has been changed."""


@dataclass(frozen=True)
class Effect(Summarized):
    """What a remedy changed, and by how much outputs moved."""

    remedy: str
    changed: Mapping[str, tuple[int, ...]]  #: by layer: the units drawn again; () for a layer as a whole
    moved: float  #: largest change of an output on the inputs; nan if none were given
    #: layers that should be changed but cannot, and why
    refused: Mapping[str, str] = field(default_factory=dict)

    @property
    def units(self) -> int:
        """How many units were drawn again."""
        return sum(map(len, self.changed.values()))

    def summary(self) -> str:
        """What was done, in one sentence, then what was not."""
        what = counted(self.units, "unit") if self.units else counted(len(self.changed), "layer")
        moved = "" if self.moved != self.moved else f"; outputs moved by at most {self.moved:.2g}"
        lines = [f"{self.remedy}: {what} changed{moved}"]
        return "\n".join(lines + [f"not changed: {name}: {why}" for name, why in self.refused.items()])


@contextmanager
def moved_by(model: nn.Module, inputs: Any, call: Method | None = None) -> Iterator[Callable[[], float]]:
    """Note what a network returns for inputs; yield a function that tells by how much that has moved since."""
    if inputs is None:
        yield lambda: NAN
        return
    parts = [(part, use, list(batches)) for _, part, use, batches in parts_of(model, inputs, call)]

    def outputs() -> list[Tensor]:
        values = []
        for part, use, batches in parts:
            with in_mode(part, False), torch.no_grad(), seeded():
                returned = [tensors_in(called(part, batch, use)) for batch in batches]
            values += [x.detach().clone() for xs in returned for x in xs if x.is_floating_point()]
        return values

    before = outputs()

    def moved() -> float:
        pairs = zip(before, outputs(), strict=True)
        return max((float((a - b).abs().nan_to_num(0).max()) for a, b in pairs if a.numel()), default=0.0)

    yield moved


def check_network(model: nn.Module) -> None:
    """Refuse what is not a network whose values can be changed in place."""
    if not isinstance(model, nn.Module):
        raise RemedyError(f"a network is an nn.Module, not a {type(model).__name__}")
    if isinstance(model, DistributedDataParallel):
        raise RemedyError(
            "each process would draw other values: give the network inside (model.module) on every process, after the "
            "same torch.manual_seed, and with the same inputs"
        )


def optimizers_in(optimizer: Optimizers, model: nn.Module | None = None) -> list[Any]:
    """The optimizers as a list; refuse what is none, and those that train nothing of the network.

    >>> optimizers_in(None)
    []
    """
    given = (
        [] if optimizer is None else [*optimizer] if isinstance(optimizer, Sequence | set) else [optimizer]
    )
    known = set() if model is None else {id(p) for p in model.parameters()}
    for one in given:
        if not hasattr(one, "param_groups"):
            raise RemedyError(
                f"optimizer= takes one torch.optim.Optimizer or several, not a {type(one).__name__}"
            )
        if model is not None and not any(
            id(p) in known for group in one.param_groups for p in group["params"]
        ):
            raise RemedyError("the optimizer trains no parameter of this network: give the one that does")
        if isinstance(one, torch.optim.LBFGS):
            raise RemedyError(
                "LBFGS keeps one history of all parameters, which would be wrong: use a new LBFGS"
            )
    return given
