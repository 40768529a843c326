"""Columns of a CSV file as arrays."""

import csv
import re
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relucid.data.paths import DamagedDataError

SEPARATORS = ",;\t"
WHOLE = re.compile(r"[+-]?[0-9]+")
NUMBER = re.compile(
    r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?|[+-]?(nan|inf(inity)?)", re.IGNORECASE
)


def read_csv(path: Path) -> dict[str, NDArray[Any]]:
    """Read the columns of a CSV file with a header: integers, floating-point numbers, or text if a cell is neither.

    Commas, semicolons and tabs separate; the one that is most frequent in the header counts.
    """
    if not path.is_file():
        raise FileNotFoundError(f"there is no file {path}")
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            first = file.readline()
            file.seek(0)
            rows = list(csv.reader(file, delimiter=max(SEPARATORS, key=first.count)))
    except UnicodeDecodeError:
        raise DamagedDataError(f"{path} is not text in UTF-8") from None
    if not rows:
        raise DamagedDataError(f"{path} is empty")
    header = [name.strip() for name in rows[0]]
    if len(set(header)) < len(header):
        twice = next(name for name in header if header.count(name) > 1)
        raise DamagedDataError(f"{path}: the header names {twice!r} twice")
    cells = [_cells(path, number, row, header) for number, row in enumerate(rows[1:], start=2) if row]
    if not cells:
        raise DamagedDataError(f"{path} has a header and no rows")
    return {name: _typed(column) for name, column in zip(header, zip(*cells, strict=True), strict=True)}


def _cells(path: Path, number: int, row: list[str], header: list[str]) -> list[str]:
    """The cells of a row; none may be missing."""
    cells = [cell.strip() for cell in row]
    if len(cells) != len(header):
        raise DamagedDataError(f"{path}, row {number}: {len(cells)} cells instead of {len(header)}")
    if "" in cells:
        raise DamagedDataError(f"{path}, row {number}: column {header[cells.index('')]!r} is empty")
    return cells


def _typed(cells: tuple[str, ...]) -> NDArray[Any]:
    """Numbers as a person writes them; numpy would also take 1_0 for 10."""
    for pattern, kind in ((WHOLE, np.int64), (NUMBER, np.float64)):
        if all(map(pattern.fullmatch, cells)):
            with suppress(OverflowError):
                return np.array(cells).astype(kind)
    return np.array(cells)
