"""Data sets: toy functions, tables, images, and your own.

Every loader returns `Data`, a training and a test split. Files are looked for in the directory `RELUCID_DATA`. Your own
data in any form become `Data` by `as_data`; arrays and tables become a `Split` by `from_arrays` and `from_table`.
"""

from relucid.data._augment import augment, color, crop, flip, jitter, ten_crops
from relucid.data.arrays import from_arrays, from_table
from relucid.data.dataset import (
    Arrays,
    Data,
    Examples,
    Moments,
    Part,
    Split,
    holdout,
    k_fold,
    mean_image,
    moments,
)
from relucid.data.images import cifar10, cifar100, digits, imagenet32
from relucid.data.named import BUILT_IN
from relucid.data.parts import as_data
from relucid.data.paths import DamagedDataError, MissingDataError, directory
from relucid.data.photos import imagenet
from relucid.data.source import Rows, Stream, in_batches
from relucid.data.tables import banana, levy, levy_function, uci


def present() -> dict[str, bool]:
    """Every data set by name, with whether its files are in the data directory.

    >>> present()["digits"]
    True
    """
    files = {**{name: built_in.file for name, built_in in BUILT_IN.items()}, "imagenet": "imagenet"}
    return {name: file is None or (directory() / file).exists() for name, file in files.items()}


__all__ = [
    "Arrays",
    "DamagedDataError",
    "Data",
    "Examples",
    "MissingDataError",
    "Moments",
    "Part",
    "Rows",
    "Split",
    "Stream",
    "as_data",
    "augment",
    "banana",
    "cifar10",
    "cifar100",
    "color",
    "crop",
    "digits",
    "directory",
    "flip",
    "from_arrays",
    "from_table",
    "holdout",
    "imagenet",
    "imagenet32",
    "in_batches",
    "jitter",
    "k_fold",
    "levy",
    "levy_function",
    "mean_image",
    "moments",
    "present",
    "ten_crops",
    "uci",
]
