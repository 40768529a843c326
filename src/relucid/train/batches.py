"""Batches of examples in an order determined by the seed and the epoch alone."""

from collections.abc import Callable, Iterator

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from relucid.data import Examples


def mix(*numbers: int) -> int:
    """Mix several numbers into one seed; different numbers give unrelated seeds."""
    return int(np.random.SeedSequence(numbers).generate_state(1, np.uint64)[0] >> np.uint64(1))


def are_numbers(inputs: object) -> bool:
    """Whether inputs are a tensor of real numbers or bytes, to be normalized; tokens and several inputs are not."""
    return isinstance(inputs, Tensor) and (inputs.is_floating_point() or inputs.dtype == torch.uint8)


class Batches:
    """Batches of inputs and targets; each process of a distributed training gets its share of every batch.

    Args:
        examples: the examples to draw batches from.
        batch_size: over all processes.
        seed: the order of every epoch follows from it, and so does all else that is random in that epoch
            (dropout, augmentation): torch is seeded anew when an epoch begins, which makes a training that
            resumes at an epoch the same as one that never stopped. None: in order, nothing random.
        epoch: the number of the epoch that begins.
        workers: processes that decode.
    """

    def __init__(
        self,
        examples: Examples,
        batch_size: int | None,
        seed: int | None = None,
        epoch: Callable[[], int] = lambda: 0,
        workers: int = 0,
    ) -> None:
        self.examples, self.seed, self.epoch, self.workers = examples, seed, epoch, workers
        self.batch_size = batch_size or len(examples)

    def __len__(self) -> int:
        return len(self._shares(torch.arange(len(self.examples))))

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        order, start = torch.arange(len(self.examples)), 0
        if self.seed is not None:
            start = mix(self.seed, self.epoch())
            order = torch.randperm(len(order), generator=torch.Generator().manual_seed(start))
            torch.manual_seed(mix(start, _rank()))
        shares = self._shares(order)
        plan = list(zip(shares, (mix(start, _rank(), number) for number in range(len(shares))), strict=True))
        yield from DataLoader(
            _Fetch(self.examples),
            sampler=plan,
            batch_size=None,
            num_workers=self.workers,
            generator=torch.Generator(),  # the loader draws a random number even if it needs none
        )

    def _shares(self, order: Tensor) -> list[Tensor]:
        """This process's share of every batch."""
        world = _world()
        batches: list[Tensor] = list(order.split(self.batch_size))
        if self.seed is not None and world > 1:  # equal shares, so that the mean of means is the mean
            batches = [batch[: len(batch) // world * world] for batch in batches]
        return [share for share in (batch[_rank() :: world] for batch in batches) if len(share)]


class _Fetch(Dataset[tuple[Tensor, Tensor]]):
    def __init__(self, examples: Examples) -> None:
        self.examples = examples

    def __getitem__(self, item: tuple[Tensor, int]) -> tuple[Tensor, Tensor]:
        indices, seed = item
        return self.examples.batch(indices, seed)


def _world() -> int:
    return dist.get_world_size() if dist.is_initialized() else 1


def _rank() -> int:
    return dist.get_rank() if dist.is_initialized() else 0
