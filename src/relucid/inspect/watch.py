"""Watch a network in a training loop of one's own: log what its units do, and warn when too many are dead."""

from __future__ import annotations

import inspect
import logging
from collections import deque
from collections.abc import Callable, Collection, Mapping
from typing import Any

from torch import Tensor, nn
from torch.optim import Optimizer
from torch.utils.hooks import RemovableHandle

from relucid._torch import tree_leaves, tree_map
from relucid.inspect._examine import examine
from relucid.inspect.examination import Examination

LIMIT = 0.1  # share of dead units above which a network is reported
WATCHED = ("activity", "plasticity")
INPUTS = 256  # so many of the network's latest inputs are watched
STEPS = 8  # so many steps before an examination, inputs begin to be kept
LOGGER = logging.getLogger("relucid")
REMEDY = "to_crelu(model, example, inplace=True, optimizer=optimizer)"
Log = Callable[[Mapping[str, float], int], object]


class Watch:
    """Watcher of a network in any training loop.

    Call `step` after every optimizer step, or `attach` the watch to the optimizer. Every so many steps it examines the
    network on its latest inputs and logs the metrics. If the share of dead units has passed a limit, it warns and names
    the remedy.

    Args:
        model: The network.
        every: Examine after every so many steps.
        data: Data to watch the units on, in any form that `examine` takes and that can be iterated more than once. By
            default the 256 or so inputs that the network was called with last, in training mode.
        limit: Share of dead units above which to warn.
        measures: As for `examine`.
        log: Called with the metrics and the number of steps; by default they go to the logger "relucid", at level INFO.
            Warnings always go there, at level WARNING.

    >>> import torch
    >>> net = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 2))
    >>> optimizer = torch.optim.Adam(net.parameters())
    >>> watch = Watch(net, every=10, log=lambda metrics, step: print(step, f"{metrics['dead']:.0%} dead"))
    >>> _ = net[0].bias.data.fill_(-100.0)
    >>> for _ in range(10):
    ...     net(torch.randn(64, 4)).square().mean().backward()
    ...     optimizer.step()
    ...     watch.step()
    10 100% dead
    """

    def __init__(
        self,
        model: nn.Module,
        *,
        every: int = 1000,
        data: Any = None,
        limit: float = LIMIT,
        measures: Collection[str] = WATCHED,
        log: Log | None = None,
    ) -> None:
        if every < 1:
            raise ValueError(f"every must be at least 1 step; got {every}")
        if not 0 <= limit <= 1:
            raise ValueError(f"limit must be a share from 0 to 1; got {limit}")
        self.model, self.every, self.data, self.limit, self.measures = model, every, data, limit, measures
        self.log = log or _to_logger
        self.time = 0
        self.examination: Examination | None = None  #: the latest
        self._latest: deque[Any] = deque()
        self._handles: list[RemovableHandle] = [model.register_forward_pre_hook(self._note, with_kwargs=True)]

    def attach(self, optimizer: Optimizer) -> Watch:
        """Make the optimizer call `step` after each of its own steps, until `detach`."""
        self._handles.append(optimizer.register_step_post_hook(lambda *_: self.step()))
        return self

    def detach(self) -> None:
        """Stop watching."""
        for handle in self._handles:
            handle.remove()
        self._latest.clear()

    def __deepcopy__(self, memo: object) -> Watch:
        """The same watch: a copy of the network, which a conversion makes for one, is not watched."""
        return self

    def step(self) -> None:
        """Count a step, and examine the network if it is due."""
        self.time += 1
        if self.time % self.every:
            return
        if not self._latest:
            unseen = "not examined: the network was not called in training mode in the last %d steps"
            LOGGER.warning("step %d: " + unseen, self.time, min(STEPS, self.every))
            return
        data = [*self._latest] if self.data is None else self.data
        self.examination = examine(self.model, self._latest[-1], data, measures=self.measures)
        self.log(self.examination.metrics(), self.time)
        if message := warning(self.examination, self.limit):
            LOGGER.warning("step %d: %s", self.time, message)
        self._latest.clear()

    def _note(self, model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Keep the inputs of a call, shortly before an examination."""
        if model is not self.model or not model.training or self.every - self.time % self.every > STEPS:
            return
        batch = _by_name(model, args, kwargs) if kwargs else args[0] if len(args) == 1 else args
        self._latest.append(tree_map(lambda x: x.detach().clone() if isinstance(x, Tensor) else x, batch))
        while sum(map(_size, self._latest)) - _size(self._latest[0]) >= INPUTS:
            self._latest.popleft()


def warning(found: Examination, limit: float) -> str:
    """A warning that the share of dead units has passed a limit, with the remedy; "" if it has not.

    >>> import torch
    >>> net = nn.Sequential(nn.Linear(4, 6), nn.ReLU())
    >>> _ = net[0].bias.data.fill_(-100.0)
    >>> print(warning(examine(net, torch.randn(64, 4)), 0.1))
    100% of the units are dead, more than 10%: to_crelu(model, example, inplace=True, optimizer=optimizer) lets ...
    """
    dead = found.metrics().get("dead", 0.0)
    if dead <= limit:
        return ""
    convertible = any(each.conversion == "to_crelu" for each in found.suggestions())
    remedy = f": {REMEDY} lets them learn again and changes no output" if convertible else ""
    return f"{dead:.0%} of the units are dead, more than {limit:.0%}{remedy}"


def _to_logger(metrics: Mapping[str, float], step: int) -> None:
    whole = {name: value for name, value in metrics.items() if "/" not in name}
    LOGGER.info("step %d: %s", step, ", ".join(f"{name} {value:.1%}" for name, value in whole.items()))


def _by_name(model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    """The arguments of a call by name, those by position first."""
    return dict(zip(inspect.signature(model.forward).parameters, args, strict=False)) | kwargs


def _size(batch: Any) -> int:
    """The number of inputs in a batch."""
    return next((len(leaf) for leaf in tree_leaves(batch) if isinstance(leaf, Tensor) and leaf.dim()), 1)
