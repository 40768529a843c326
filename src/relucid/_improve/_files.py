"""Data that workers share: written once to a file, which each of them maps into its memory."""

from functools import lru_cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from relucid._improve._digests import digest_of_data
from relucid._torch import tree_leaves
from relucid.data import Arrays, Data, Split
from relucid.files import replacing

LARGE = 1 << 26  # bytes from which data go through a file
CLASSES: dict[str, type[Arrays]] = {"Arrays": Arrays, "Split": Split}


def nbytes(parts: Any) -> int:
    """The size of arrays in memory; 0 for data that are read when they are needed."""
    if isinstance(parts, Data):
        return nbytes(parts.train) + nbytes(parts.test)
    if not isinstance(parts, Arrays):
        return 0
    leaves = (leaf for leaf in tree_leaves((parts.inputs, parts.targets)) if isinstance(leaf, Tensor))
    return sum(leaf.nbytes for leaf in leaves)


def kept(parts: Any, directory: Path) -> Path:
    """The file of data in a directory, written unless it is there."""
    file = directory / f"{digest_of_data(parts)}.pt"
    if not file.exists():
        directory.mkdir(parents=True, exist_ok=True)
        several = [parts.train, parts.test] if isinstance(parts, Data) else [parts]
        content = [
            (type(part).__name__, part.inputs, part.targets, part.classes, part.name) for part in several
        ]
        with replacing(file) as new:
            torch.save({"parts": content, "classes": getattr(parts, "classes", None)}, new)
    return file


@lru_cache(maxsize=1)
def mapped(file: Path) -> Any:
    """The data of a file, whose pages are read when they are needed."""
    content = torch.load(file, mmap=True, weights_only=True)
    parts = [
        CLASSES[kind](inputs, targets, classes, name=name)
        for kind, inputs, targets, classes, name in content["parts"]
    ]
    return Data(parts[0], parts[1], content["classes"]) if len(parts) == 2 else parts[0]
