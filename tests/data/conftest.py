import io
import os
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from relucid.data.images import SOURCES

REAL = os.environ.get("RELUCID_DATA")


@pytest.fixture
def place(tmp_path, monkeypatch):
    """An empty data directory."""
    monkeypatch.setenv("RELUCID_DATA", str(tmp_path))
    return tmp_path


@pytest.fixture
def real(monkeypatch):
    """The directory of real data; a test that asks for it is skipped where there is none."""
    if REAL is None:
        pytest.skip("needs the real data sets: set RELUCID_DATA to their directory")
    monkeypatch.setenv("RELUCID_DATA", REAL)


def encoded(pixels: np.ndarray) -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, "PNG")
    return buffer.getvalue()


def noise(count: int, height: int = 32, width: int = 32) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, (count, height, width, 3), dtype=np.uint8)


@pytest.fixture
def expected_rows(monkeypatch):
    """A function that has a data set of images expected with so many rows for training and testing."""

    def expect(name, train, test):
        monkeypatch.setitem(SOURCES, name, replace(SOURCES[name], rows=(train, test)))

    return expect


def write_parquet(path, images, labels, image="img", label="label", kind=None):
    path.parent.mkdir(parents=True, exist_ok=True)
    column = [None if data is None else {"bytes": data, "path": None} for data in images]
    struct = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
    table = {image: pa.array(column, struct), label: pa.array(labels, kind or pa.int64())}
    pq.write_table(pa.table(table), path)
