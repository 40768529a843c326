"""Files that are missing, damaged or of another kind: what is in them, who reads them, the error, and what it names."""

from functools import partial

import numpy as np
import pyarrow as pa
import pytest
import torch

from relucid.data import (
    DamagedDataError,
    MissingDataError,
    banana,
    cifar10,
    directory,
    from_table,
    imagenet,
    imagenet32,
    uci,
)
from relucid.data.folder import Images

from .conftest import encoded, noise, write_parquet
from .test_arrays import FLOWERS, write_image
from .test_images import write_cifar, write_source
from .test_photos import write_photos
from .test_tables import write_banana, write_yacht

PIXELS = encoded(noise(1)[0])


def cifar(place, images=(PIXELS,), labels=(1,), **columns):
    write_cifar(place)
    write_parquet(place / "cifar10" / "train.parquet", images, labels, **columns)


def source(place, content=None, labels=(1, 1000, 7)):
    write_source(place, labels)
    if content is not None:
        np.savez(place / "imagenet32" / "val_data.npz", **content)


def source_of_bytes(place):
    write_source(place)
    (place / "imagenet32" / "Imagenet32_train_npz" / "train_data_batch_1.npz").write_bytes(b"nothing")


def ended_early(place):
    write_cifar(place)
    train = place / "cifar10" / "train.parquet"
    train.write_bytes(train.read_bytes()[:-20])


def yacht(place, fifth):
    path = write_yacht(place)
    lines = path.read_text(encoding="utf-8").splitlines()
    path.write_text("\n".join([*lines[:4], fifth, *lines[5:]]))


def text(place, content, name="table.csv", encoding="utf-8"):
    (place / name).write_bytes(content.encode(encoding))


def cat(place, files=()):
    write_image(place / "train" / "cat" / "1.png", "red")
    for file in files:
        (place / "train" / "cat" / file).write_bytes(b"nothing")


def nothing(place):
    pass


def folder(name):
    return lambda place: (place / name).mkdir()


def table(target="b"):
    return from_table(directory() / "table.csv", target)


def images(name=""):
    return Images(directory() / name)


def first_photo():
    return imagenet().train.batch(torch.tensor([0]))


OTHERS = {"data": np.zeros((1, 10), np.uint8), "labels": np.array([1])}
KIND, YACHT = partial(table, target="kind"), partial(uci, "yacht")
# What is done to the directory, who reads it, the value that the error names, and how many rows are expected if not 1.
MISSING = [
    (nothing, cifar10, "run `hf download uoft-cs/cifar10 "),
    (nothing, partial(imagenet32, original=True), "download"),
    (nothing, imagenet, "run `hf download ILSVRC/"),
    (nothing, YACHT, "yacht.txt .*308 rows of 7"),
    (nothing, banana, "banana.csv .*https://.*5300"),
]
DAMAGED = [
    (folder("cifar10"), cifar10, r"no train\*\.parquet: run `hf download"),
    (write_cifar, cifar10, "3 rows in train.parquet; .* 50000", 50000),
    (partial(cifar, images=[b"no image at all"]), cifar10, "row 0: .* not decode"),
    (partial(cifar, images=[PIXELS[:-200]]), cifar10, "row 0: .* not decode"),
    (partial(cifar, images=[None]), cifar10, "row 0: .* not decode"),
    (partial(cifar, images=[encoded(noise(1, 32, 31)[0])]), cifar10, "row 0: .* 31x32"),
    (partial(cifar, images=[PIXELS] * 2, labels=[1, 10]), cifar10, "row 1: label 10", 2),
    (partial(cifar, images=[PIXELS] * 2, labels=[1, None]), cifar10, "row 1: label None", 2),
    (partial(cifar, labels=[3.0], kind=pa.float64()), cifar10, "`label` .* double"),
    (partial(cifar, label="klass"), cifar10, "no column `label`"),
    (ended_early, cifar10, "cannot be read as parquet"),
    (source, imagenet32, "3 images .* there are 4", 4),
    (partial(source, labels=(0, 1, 2)), imagenet32, "labels .* 1 to 1000", 3),
    (partial(source, content=OTHERS), imagenet32, "val_data.npz: data are 1x10", 3),
    (source_of_bytes, imagenet32, "train_data_batch_1.npz cannot", 3),
    (folder("imagenet"), imagenet, "neither train"),
    (partial(write_photos, images=[b"nothing"], labels=[3]), first_photo, "row 0: .* not decode"),
    (partial(write_photos, images=[PIXELS] * 2, labels=[3, 1000]), imagenet, "row 1: label 1000"),
    (partial(yacht, fifth="1 2 3"), YACHT, "yacht.txt, row 5: 3 columns instead of 7"),
    (partial(yacht, fifth="1 2 3 4 5 6 x"), YACHT, "yacht.txt, row 5: .*: 'x'"),
    (partial(yacht, fifth="1 2 3 4 5 6 nan"), YACHT, "yacht.txt, row 5: .* not finite"),
    (partial(write_yacht, rows=300), YACHT, "300 rows instead of 308"),
    (partial(write_banana, last="1.0,2.0,3"), banana, "row 5301: the class is 3"),
    (partial(text, content="a,b,c\n", name="banana.csv"), banana, "row 1: .*`At1,At2,Class`"),
    (partial(text, content="größe,b\n1,2\n", encoding="latin-1"), table, "UTF-8"),
    (partial(cat, files=["2.png"]), partial(images, name="train"), "2.png does not decode"),
]
WRONG = [
    (nothing, partial(uci, "yatch"), "'yatch' .*yacht"),
    (partial(text, content=FLOWERS), partial(table, target="colour"), "'colour'; .* width, length, kind"),
    (partial(text, content=FLOWERS), partial(table, target="width"), "'kind' .* numbers"),
    (partial(text, content="kind\na\nb\n"), KIND, "no column besides 'kind'"),
    (partial(text, content=FLOWERS + "1.0,,iris\n"), KIND, "row 5: column 'length' is empty"),
    (partial(text, content=FLOWERS + "1.0,iris\n"), KIND, "row 5: 2 cells instead of 3"),
    (partial(text, content="a,a,b\n1,2,3\n"), table, "'a' twice"),
    (partial(text, content="a,b\n"), table, "no rows"),
    (partial(text, content=""), table, "is empty"),
    (partial(text, content="a,b\nnan,1\n"), table, "not finite"),
    *(  # numbers are as people write them
        (partial(text, content=f"a,b\n{cell},1\n2,0\n"), table, "'a' does not hold numbers")
        for cell in ("1_0", "0x10", "٣", "1 0")
    ),
    (nothing, lambda: from_table([[1, 2]], "y"), "named columns"),
    (nothing, partial(images, name="none"), "none is not a folder"),
    (nothing, images, "has no images"),
    (cat, images, "1.png has no class"),
]
ERRORS = {
    MissingDataError: MISSING,
    DamagedDataError: DAMAGED,
    ValueError: WRONG,
    FileNotFoundError: [(nothing, table, r"table\.csv")],
}
CASES = [(error, *case) for error, cases in ERRORS.items() for case in cases]


@pytest.mark.parametrize("case", CASES, ids=map(str, range(len(CASES))))
def test_it_is_refused_with_the_file_the_row_and_the_value(place, expected_rows, case):
    error, prepare, read, value, rows = (*case, 1)[:5]
    for name in ("cifar10", "imagenet32"):
        expected_rows(name, rows, 1)
    prepare(place)
    with pytest.raises(error, match=value):
        read()
