"""Tables of numbers: the toy problems and the six UCI regression sets of gmp."""

import math
from pathlib import Path

import torch
from torch import Tensor

from relucid.data.dataset import Data, Split
from relucid.data.paths import DamagedDataError, locate

# Rows and columns (the last one is the target) of the sets of gmp Table 3, and their number in the UCI archive, which
# no longer has Boston.
UCI = {
    "boston": (506, 14, None),
    "concrete": (1030, 9, 165),
    "energy": (768, 9, 242),
    "power": (9568, 5, 294),
    "wine": (1599, 12, 186),
    "yacht": (308, 7, 243),
}


def levy(points: int = 50, noise: float = 0.1, seed: int = 0) -> Data[Split]:
    """Noisy points of the 1-D Levy function on [-10, 10], and a grid of step 0.1 without noise (gmp Fig. 2).

    Inputs and targets are (N, 1), in float64.

    >>> data = levy()
    >>> len(data.train), len(data.test), round(data.test.targets.min().item(), 6)  # at x = 1
    (50, 201, 0.0)
    """
    generator = torch.Generator().manual_seed(seed)
    x = torch.rand(points, 1, generator=generator, dtype=torch.float64) * 20 - 10
    y = levy_function(x) + noise * torch.randn(points, 1, generator=generator, dtype=torch.float64)
    grid = torch.arange(-100, 101, dtype=torch.float64).unsqueeze(1) / 10
    return Data(Split(x, y), Split(grid, levy_function(grid)))


def levy_function(x: Tensor) -> Tensor:
    """The 1-D Levy function sin²(πw) + (w - 1)² (1 + sin²(2πw)), w = 1 + (x - 1) / 4."""
    w = 1 + (x - 1) / 4
    return torch.sin(math.pi * w) ** 2 + (w - 1) ** 2 * (1 + torch.sin(2 * math.pi * w) ** 2)


def banana(points: int = 1000, seed: int = 0) -> Data[Split]:
    """Random `points` of the 2-D Banana set, four fifths of them for training (gmp Fig. 3).

    Inputs (N, 2) in float64; classes (N,) are 0 and 1.
    """
    origin = "https://sci2s.ugr.es/keel/datasets.php"
    advice = f"put the Banana set ({origin}) there, 5300 rows `At1,At2,Class`, classes -1 and 1"
    path = locate("banana.csv", advice)
    rows = _numbers(path, columns=3, rows=5300, separator=",", header="At1,At2,Class")
    for number, label in enumerate(rows[:, 2].tolist(), start=2):
        if label not in (-1, 1):
            raise DamagedDataError(f"{path}, row {number}: the class is {label:g}; it must be -1 or 1")
    order = torch.randperm(len(rows), generator=torch.Generator().manual_seed(seed))[:points]
    whole = Split(rows[order, :2], (rows[order, 2] > 0).long())
    middle = points * 4 // 5
    return Data(whole.take(range(middle)), whole.take(range(middle, points)), classes=2)


def uci(name: str, split: int = 0) -> Data[Split]:
    """One of six UCI regression sets, divided 80 / 20 at random by `split` (gmp Table 3).

    Inputs (N, D) and targets (N, 1) as in the file, in float64.
    """
    if name not in UCI:
        raise ValueError(f"there is no UCI set {name!r} here; there are {', '.join(UCI)}")
    rows, columns, number = UCI[name]
    origin = (
        f"https://archive.ics.uci.edu/dataset/{number}"
        if number
        else "http://lib.stat.cmu.edu/datasets/boston"
    )
    advice = f"put the {name} set ({origin}) there, {rows} rows of {columns} numbers, the target last"
    path = locate(f"uci/{name}.txt", advice)
    table = _numbers(path, columns, rows)
    order = torch.randperm(rows, generator=torch.Generator().manual_seed(split))
    whole = Split(table[order, :-1], table[order, -1:])
    middle = rows * 4 // 5
    return Data(whole.take(range(middle)), whole.take(range(middle, rows)))


def _numbers(
    path: Path, columns: int, rows: int, separator: str | None = None, header: str | None = None
) -> Tensor:
    """Read the numbers of a text file as a table (rows, columns), in float64."""
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    first = 1
    if header is not None:
        if not lines or lines[0] != header:
            raise DamagedDataError(f"{path}, row 1: the header must be `{header}`")
        lines, first = lines[1:], 2
    table = []
    for number, line in enumerate(lines, start=first):
        cells = line.split(separator)
        if len(cells) != columns:
            raise DamagedDataError(f"{path}, row {number}: {len(cells)} columns instead of {columns}")
        try:
            table.append([float(cell) for cell in cells])
        except ValueError as error:
            raise DamagedDataError(f"{path}, row {number}: {error}") from None
        if not all(map(math.isfinite, table[-1])):
            raise DamagedDataError(f"{path}, row {number}: a number is not finite")
    if len(table) != rows:
        raise DamagedDataError(f"{path} has {len(table)} rows instead of {rows}: it is not whole")
    return torch.tensor(table, dtype=torch.float64)
