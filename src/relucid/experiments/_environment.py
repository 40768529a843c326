"""What a run ran on: versions, device, commit, and how its trainings were computed."""

import platform
import subprocess
from collections.abc import Sequence
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

from relucid.experiments._records import USUAL
from relucid.train.engine import Computed


def environment(trained: Sequence[Computed] = ()) -> dict[str, Any]:
    """The facts needed to understand or repeat a result.

    Args:
        trained: how the run's trainings were computed, see `relucid.train.noting`.

    >>> sorted(environment())
    ['commit', 'compiled', 'device', 'platform', 'precision', 'python', 'threads', 'trained', 'versions']
    """
    return {
        **_lasting(),
        "threads": torch.get_num_threads(),
        "trained": [*map(str, trained)],
        "precision": sorted({each.precision for each in trained}) or [USUAL],
        "compiled": any(each.engine.compile for each in trained),
    }


@lru_cache
def _lasting() -> dict[str, Any]:
    return {
        "python": platform.python_version(),
        "platform": platform.platform(),
        "device": torch.cuda.get_device_name() if torch.cuda.is_available() else platform.machine(),
        "versions": {name: _version(name) for name in ("relucid", "torch", "numpy")},
        "commit": _commit(),
    }


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _commit() -> str | None:
    """The commit of the working directory, or of relucid's own sources, marked if dirty; None if neither has any."""
    command = ["git", "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"]
    for directory in (Path.cwd(), Path(__file__).parent):
        try:
            done = subprocess.run(
                command, cwd=directory, capture_output=True, text=True, check=True, timeout=10
            )
        except (OSError, subprocess.SubprocessError):
            continue
        return done.stdout.strip()
    return None
