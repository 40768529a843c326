"""A data set in memory: inputs and targets, how they are split, and the moments of a split."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Generic, Protocol, Self, TypeVar

import torch
from torch import Tensor

from relucid._torch import tree_leaves, tree_map


class Examples(Protocol):
    """What a network is trained or tested on: in memory (`Split`) or decoded as they are needed (`Photos`)."""

    @property
    def targets(self) -> Tensor:
        """One target per example: classes (N,) or values (N, K)."""

    def __len__(self) -> int: ...

    def batch(self, indices: Tensor, seed: int = 0) -> tuple[Tensor, Tensor]:
        """The inputs and targets of these examples; `seed` determines any randomness in them."""


@dataclass(frozen=True, eq=False)
class Arrays:
    """Inputs in memory, (N, ...) or several of them by name, and their targets, if there are any.

    >>> arrays = Arrays({"x": torch.arange(3.0), "scale": 2.0})
    >>> len(arrays), arrays.whole(torch.tensor([2]))
    (3, {'x': tensor([2.]), 'scale': 2.0})
    """

    inputs: Any
    targets: Tensor | None = None
    classes: tuple[str, ...] | None = None  # names of the classes, where they have any
    name: str | None = field(default=None, kw_only=True)  # of the targets among inputs by name

    def __post_init__(self) -> None:
        if self.targets is not None and len(self) != len(self.targets):
            raise ValueError(f"{len(self)} inputs have {len(self.targets)} targets; each input needs one")

    def __len__(self) -> int:
        arrays = (leaf for leaf in tree_leaves(self.inputs) if isinstance(leaf, Tensor) and leaf.dim())
        return next(map(len, arrays), 1)

    def batch(self, indices: Tensor, seed: int = 0) -> tuple[Any, Any]:
        """The inputs and targets of these examples."""
        # ten times as fast as inputs[indices]
        targets = None if self.targets is None else self.targets.index_select(0, indices)
        if isinstance(self.inputs, Tensor):
            return self.inputs.index_select(0, indices), targets
        total = len(self)
        return tree_map(lambda leaf: _selected(leaf, indices, total), self.inputs), targets

    def whole(self, indices: Tensor, seed: int = 0) -> Any:
        """A batch in the form in which the data were given."""
        inputs, targets = self.batch(indices)
        if self.targets is None:
            return inputs
        return inputs | {self.name: targets} if self.name is not None else (inputs, targets)

    def take(self, indices: Sequence[int] | Tensor) -> Self:
        """Just these examples, in this order."""
        inputs, targets = self.batch(torch.as_tensor(indices))
        return replace(self, inputs=inputs, targets=targets)


def _selected(leaf: Any, indices: Tensor, total: int) -> Any:
    """Some rows of an array with as many as the first one; anything else belongs to every batch."""
    rows = isinstance(leaf, Tensor) and leaf.dim() and len(leaf) == total
    return leaf.index_select(0, indices) if rows else leaf


@dataclass(frozen=True, eq=False)
class Split(Arrays):
    """Inputs (N, ...) and their targets (N,) or (N, K), in memory.

    >>> split = Split(torch.arange(6.0).view(3, 2), torch.tensor([0, 1, 1]))
    >>> len(split), split.take([2, 0]).inputs.tolist()
    (3, [[4.0, 5.0], [0.0, 1.0]])
    """

    inputs: Tensor
    targets: Tensor = field()  # without a default: it must be given


@dataclass(frozen=True, eq=False)
class Part:
    """Some examples of arrays in memory, which are not copied.

    >>> Part(Split(torch.arange(6.0).view(3, 2), torch.tensor([0, 1, 1])), torch.tensor([2, 0])).targets.tolist()
    [1, 0]
    """

    arrays: Arrays
    indices: Tensor

    def __len__(self) -> int:
        return len(self.indices)

    @property
    def targets(self) -> Tensor:
        """The targets of these examples."""
        assert self.arrays.targets is not None
        return self.arrays.targets.index_select(0, self.indices)

    def batch(self, indices: Tensor, seed: int = 0) -> tuple[Any, Any]:
        """The inputs and targets of some of them."""
        return self.arrays.batch(self.indices[indices])

    def whole(self, indices: Tensor, seed: int = 0) -> Any:
        """Some of them in the form in which the data were given."""
        return self.arrays.whole(self.indices[indices])

    def take(self, indices: Sequence[int] | Tensor) -> "Part":
        """Just these of them, in this order."""
        return Part(self.arrays, self.indices[torch.as_tensor(indices)])


E = TypeVar("E", bound=Examples)


@dataclass(frozen=True, eq=False)
class Data(Generic[E]):
    """A training split and a test split; `classes` is None where the targets are values."""

    train: E
    test: E
    classes: int | None = None


@dataclass(frozen=True, eq=False)
class Moments:
    """Mean (C,), or mean image (C, H, W), and covariance (C, C) of the channels of a split, in float64."""

    mean: Tensor
    covariance: Tensor
    divisor: float | None = None  # of what is normalized; the standard deviation of each channel if None

    @property
    def std(self) -> Tensor:
        """Standard deviation (C,) of the channels, 1 for a channel that is constant."""
        std, size = self.covariance.diagonal().sqrt(), self.mean.reshape(len(self.mean), -1).abs().amax(1)
        return torch.where(std > 1e-12 * size, std, 1.0)  # rounding is not variation

    def shift_and_scale(self, inputs: Tensor) -> tuple[Tensor, Tensor]:
        """What is subtracted from inputs (N, C, ...), and what they are then divided by, as floats on their device."""
        dtype = inputs.dtype if inputs.is_floating_point() else torch.get_default_dtype()
        scale = self.std if self.divisor is None else torch.full_like(self.std, self.divisor)
        places = (1,) * (inputs.dim() - 2)
        shift = self.mean.reshape(len(self.mean), *(self.mean.shape[1:] or places))
        return shift.to(inputs.device, dtype), scale.reshape(-1, *places).to(inputs.device, dtype)

    def normalize(self, inputs: Tensor) -> Tensor:
        """Subtract the mean from inputs (N, C, ...) and divide by the standard deviation; uint8 becomes float32."""
        shift, scale = self.shift_and_scale(inputs)
        return inputs.to(shift.dtype).sub(shift).div_(scale)


def moments(examples: Examples, limit: int = 100_000) -> Moments:
    """Mean and covariance of the channels (dimension 1), over at most `limit` examples spread over the split.

    >>> found = moments(Split(torch.tensor([[0, 5], [4, 5]], dtype=torch.uint8), torch.zeros(2)))
    >>> found.mean.tolist(), found.std.tolist()
    ([2.0, 5.0], [2.0, 1.0])
    """
    if not len(examples):
        raise ValueError("a split without examples has no moments")

    def channels(indices: Tensor) -> Tensor:  # (C, N H W)
        return examples.batch(indices)[0].movedim(1, 0).flatten(1).double()

    chunks = torch.arange(0, len(examples), -(-len(examples) // limit)).split(1000)
    rough = channels(chunks[0]).mean(1, keepdim=True)  # subtracted, so that nothing cancels in the last line
    count, total, products = 0, torch.zeros_like(rough), rough @ rough.T * 0
    for chunk in chunks:
        shifted = channels(chunk) - rough
        count += shifted.shape[1]
        total += shifted.sum(1, keepdim=True)
        products += shifted @ shifted.T
    rest = total / count
    return Moments((rough + rest).squeeze(1), products / count - rest @ rest.T)


def mean_image(examples: Examples, limit: int | None = None) -> Tensor:
    """The mean input (C, ...) in float64, over all examples or `limit` of them, spread over the split.

    >>> mean_image(Split(torch.tensor([[0, 5], [4, 5]], dtype=torch.uint8), torch.zeros(2))).tolist()
    [2.0, 5.0]
    """
    chosen = torch.arange(0, len(examples), -(-len(examples) // (limit or len(examples))))
    total = sum(examples.batch(chunk)[0].double().sum(0) for chunk in chosen.split(1000))
    return torch.as_tensor(total / len(chosen))


def holdout(split: Split, share: float, seed: int = 0) -> tuple[Split, Split]:
    """The split without a random `share` of it, and that share; classes keep their proportions."""
    rest, held = held_out(split, share, seed)
    return split.take(rest), split.take(held)


def held_out(split: Split, share: float, seed: int = 0) -> tuple[Tensor, Tensor]:
    """The indices of both parts of `holdout`."""
    from sklearn.model_selection import train_test_split

    if not 0 < share < 1:
        raise ValueError(f"share={share} must lie between 0 and 1: part of the split is held out")
    rest, held = train_test_split(
        range(len(split)), test_size=share, random_state=seed, stratify=_classes(split)
    )
    return torch.tensor(rest), torch.tensor(held)


def k_fold(split: Split, index: int, folds: int, seed: int = 0) -> tuple[Split, Split]:
    """The split without its fold number `index` of `folds`, and that fold; classes keep their proportions.

    >>> split = Split(torch.arange(6.0).view(6, 1), torch.tensor([0, 0, 0, 1, 1, 1]))
    >>> sorted(int(x) for i in range(3) for x in k_fold(split, i, 3)[1].inputs)
    [0, 1, 2, 3, 4, 5]
    """
    from sklearn.model_selection import KFold, StratifiedKFold

    if not 0 <= index < folds:
        raise ValueError(f"fold {index} of {folds} does not exist; folds are numbered from 0 to {folds - 1}")
    classes = _classes(split)
    splitter = (KFold if classes is None else StratifiedKFold)(folds, shuffle=True, random_state=seed)
    rest, held = list(splitter.split(range(len(split)), classes))[index]
    return split.take(rest), split.take(held)


def _classes(split: Split) -> Tensor | None:
    return None if split.targets.is_floating_point() else split.targets
