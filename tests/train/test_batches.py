"""Batches are the same whoever makes them, and what goes wrong in a worker is said in one sentence."""

import os

import pytest
import torch

from relucid.data import DamagedDataError, Split
from relucid.data.folder import Images
from relucid.data.source import source
from relucid.train import Machine
from relucid.train.batches import Batches

PIL = pytest.importorskip("PIL.Image")


@pytest.fixture
def folder(tmp_path):
    """Twelve photographs of different sizes in two classes."""
    generator = torch.Generator().manual_seed(0)
    for number in range(12):
        place = tmp_path / "photographs" / ("cat" if number % 2 else "dog")
        place.mkdir(parents=True, exist_ok=True)
        pixels = torch.randint(256, (40 + number, 60, 3), dtype=torch.uint8, generator=generator)
        PIL.fromarray(pixels.numpy()).save(place / f"{number}.jpg")
    return tmp_path / "photographs"


def epochs(batches):
    return [[(x.clone(), y.clone()) for x, y in batches.epoch(seed)] for seed in (1, 2, None)]


def test_batches_are_equal_for_any_number_of_workers_in_every_epoch(folder):
    examples = source(Images(folder, size=16))
    expected = epochs(Batches(examples, 5))
    assert [len(epoch) for epoch in expected] == [3, 3, 3]
    assert not torch.equal(expected[0][0][1], expected[1][0][1])
    for workers in (1, 2):
        for ours, theirs in zip(epochs(Batches(examples, 5, workers=workers)), expected, strict=True):
            for batch, other in zip(ours, theirs, strict=True):
                assert all(map(torch.equal, batch, other))


def test_an_epoch_goes_on_where_it_stopped():
    examples = Split(torch.arange(10.0).view(10, 1), torch.arange(10))
    batches = Batches(examples, 3)
    rest = [y.tolist() for _, y in batches.epoch(7)][2:]
    assert [y.tolist() for _, y in batches.epoch(7, first=2)] == rest


@pytest.mark.parametrize("workers", [0, 2])
def test_a_damaged_photograph_is_named_by_whoever_reads_it(folder, workers):
    (folder / "cat" / "3.jpg").write_bytes(b"no photograph")
    with pytest.raises(DamagedDataError, match=r"3\.jpg does not decode as an image$"):
        list(Batches(source(Images(folder, size=16)), 4, workers=workers).epoch(0))


def test_only_what_is_decoded_takes_workers_by_default(folder):
    cores = len(os.sched_getaffinity(0))
    decoded, arrays = source(Images(folder, size=16)), Split(torch.zeros(3, 1), torch.zeros(3))
    assert Machine().workers_for(arrays) == 0
    assert Machine().workers_for(decoded) == min(4, cores)
    assert Machine(jobs=cores + 1).workers_for(decoded) == 0
    assert Machine(workers=1).workers_for(arrays) == 1
    with pytest.raises(ValueError, match="workers=100000 is not within 0 to"):
        Machine(workers=100_000).workers_for(decoded)


def test_a_large_photograph_is_decoded_at_the_size_that_is_needed(tmp_path):
    (tmp_path / "cat").mkdir()
    ramp = torch.linspace(0, 255, 640).expand(480, 640).to(torch.uint8)
    PIL.fromarray(ramp.unsqueeze(2).expand(-1, -1, 3).contiguous().numpy()).save(tmp_path / "cat" / "1.jpg")
    scaled, _ = Images(tmp_path, size=60)[0]
    assert scaled.shape == (3, 60, 60)
    expected = torch.linspace(80, 560, 61)[:-1] / 640  # the central square, 480 of 640 columns
    torch.testing.assert_close(scaled[0, 30], expected, atol=0.02, rtol=0)
