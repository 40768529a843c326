"""Run a network on many batches: record it once, then follow the recording as long as the network repeats it.

Recording analyses every operation, which may cost as much as a small network itself. From then on,
operations are only compared with the recording, which says which values to look at. If the network takes another path
(because it branches on values, or the batch has another size), it is recorded again; a layer is still seen only once
per batch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from torch import Tensor, nn

from relucid._torch import DispatchMode
from relucid.inspect.execution import Batch, Node, Visit, called, copied, running


@contextmanager
def following(model: nn.Module, recording: Sequence[Node] = ()) -> Iterator[Callable[[Batch, Visit], None]]:
    """Yield a function that runs ``model`` on a batch and calls ``visit(node, value)`` as `execute` does.

    Args:
        model: Any network.
        recording: What `execute` returned for another batch; without it, the first batch is recorded.

    >>> import torch
    >>> net, seen = nn.Sequential(nn.Linear(2, 3), nn.ReLU()), []
    >>> with following(net) as run:
    ...     for _ in range(2):
    ...         run(torch.zeros(1, 2), lambda node, value: seen.append((node.name, tuple(value.shape))))
    >>> seen
    [('0', (1, 2)), ('1', (1, 3)), ('0', (1, 2)), ('1', (1, 3))]
    """
    with running(model) as (record, path, _):

        def run(batch: Batch, visit: Visit) -> None:
            nonlocal recording
            done: set[str] = set()

            def once(node: Node, value: Tensor) -> None:
                if node.name not in done:
                    done.add(node.name)
                    visit(node, value)

            if recording:
                follower = _Follower(recording, path, once)
                copy = copied(batch)
                with follower:
                    called(model, copy)
                if follower.finished:
                    return
            recording = record(batch, once)

        yield run


class _Follower(DispatchMode):
    """Follower of a recording; after the first difference it stops looking."""

    def __init__(self, recording: Sequence[Node], path: list[str], visit: Visit) -> None:
        super().__init__()
        self.recording, self.path, self.visit = recording, path, visit
        self.position = 0
        self.same = True

    @property
    def finished(self) -> bool:
        """Whether exactly the recorded operations were executed."""
        return self.same and self.position == len(self.recording)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if self.same:
            self._look(func, args)
        return func(*args, **(kwargs or {}))

    def _look(self, func: Any, args: Any) -> None:
        node = self.recording[self.position] if self.position < len(self.recording) else None
        self.position += 1
        if node is None or node.function is not func or node.module != self.path[-1]:
            self.same = False
        elif node.name:
            if node.same_weight(args):
                self.visit(node, args[node.argument])
            else:
                self.same = False
