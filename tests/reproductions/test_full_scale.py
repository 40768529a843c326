"""Every row of every study, at full scale, does on a few images what a run does: it trains, and is measured.

Networks have their full width and images their full size; only epochs, images and frames of games are few. Runs that
are recorded have shown it already. The time of each row:

    pytest -n 0 -p no:randomly -v --durations=0 tests/reproductions/test_full_scale.py
"""

from collections import defaultdict
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from relucid.data import images
from relucid.data.tables import UCI
from relucid.experiments import Run, read
from relucid.experiments._catalog import built_in
from relucid.experiments._execute import execute
from relucid.train import Machine

TRAIN, TEST = 20, 12  # stand-in images: ten folds, and as many to test on
PHOTOS = 6  # of as many classes, to train and as many to test on: a fifth best one must not be the last
PLAYED = {"frames": 60, "memory": 60, "warmup": 40}  # of a game
RESULTS = Path(__file__).parents[2] / "results"


def rows():
    """Study, run and the metrics that studies show of it, for each row without a record; one run per protocol.

    The longest are last: photographs, filters that are merged, and photographs that are reconstructed.
    """
    recorded, first, metrics = read(RESULTS), {}, defaultdict(set)
    for study in built_in().values():
        for planned in study.plan("full") if "full" in study.scales else ():
            place = study.name, planned.row, planned.run.config.get("protocol")
            first.setdefault(place, (study, planned.run))
            column = study.columns[planned.column]
            metrics[planned.run.key] |= set() if column.vote else {column.metric}
    runs = {
        run.key: (*place, study, run)
        for place, (study, run) in reversed(first.items())
        if run.key not in recorded
    }

    def longest_last(row):
        name, label, _, _, run = row
        return (
            name == "crelu/imagenet" and "CReLU" in label,
            name == "merge",
            "imagenet" in str(run.config.get("data")),
        )

    ordered = sorted(runs.values(), key=longest_last)
    needed = {"games": [pytest.mark.needs("minatar")]}
    return [
        pytest.param(
            *(study, run, metrics[run.key]),
            id=f"{name}-{row}-{protocol or 'run'}",
            marks=needed.get(name, []),
        )
        for name, row, protocol, study, run in ordered
    ]


@pytest.fixture(scope="module")
def stand_ins(tmp_path_factory):
    """A directory with every data set that a study reads, of noise."""
    place, rng = tmp_path_factory.mktemp("data"), np.random.default_rng(0)

    def noise(count, height, width):
        return rng.integers(0, 256, (count, height, width, 3), dtype=np.uint8)

    for name in ("cifar10", "cifar100"):
        source = images.SOURCES[name]
        (place / name).mkdir()
        for part, count in (("train", TRAIN), (source.test, TEST)):
            encoded = [{"bytes": png(pixels)} for pixels in noise(count, 32, 32)]
            labels = (np.arange(count) % 2).tolist()  # ten of each, for ten folds
            pq.write_table(pa.table({"img": encoded, source.label: labels}), place / name / f"{part}.parquet")
    (place / "imagenet32").mkdir()
    for file, count in (("train_data_batch_1", TRAIN), ("val_data", TEST)):
        pixels, labels = noise(count, 32, 32).reshape(count, -1), np.arange(count) + 1
        np.savez(place / "imagenet32" / f"{file}.npz", data=pixels, labels=labels)
    for part in ("train", "validation"):
        for number, pixels in enumerate(noise(PHOTOS, 260, 300)):
            folder = place / "imagenet" / part / f"class{number}"
            folder.mkdir(parents=True, exist_ok=True)
            Image.fromarray(pixels).save(folder / f"{number}.jpg")
    (place / "uci").mkdir()
    for name, (count, columns, _) in UCI.items():
        np.savetxt(place / "uci" / f"{name}.txt", rng.normal(size=(count, columns)))
    return place


def png(pixels):
    from io import BytesIO

    file = BytesIO()
    Image.fromarray(pixels).save(file, "png")
    return file.getvalue()


def brief(config):
    """The configuration with one epoch, of whatever is trained."""
    if isinstance(config, dict):
        return {name: 1 if name == "epochs" else brief(value) for name, value in config.items()}
    return config


@pytest.mark.slow
@pytest.mark.parametrize("study, run, metrics", rows())
def test_every_row_trains_and_is_measured_at_full_scale(
    stand_ins, tmp_path, monkeypatch, study, run, metrics
):
    monkeypatch.setenv("RELUCID_DATA", str(stand_ins))
    for name, source in images.SOURCES.items():
        monkeypatch.setitem(images.SOURCES, name, replace(source, rows=(TRAIN, TEST)))
    config = brief(run.config)
    if "frames" in config:
        config |= PLAYED
    if config.get("train") or config.get("images"):  # no more than there are
        config |= {name: None for name in ("train", "images") if name in config}
    record = execute(study.runner, Run(run.runner, config), Machine(tmp_path))
    assert record["state"] == "finished", record["error"]
    assert metrics <= record["metrics"].keys() | {"finished"}
    if config.get("protocol") == "folds" and not config.get("held_out_only"):
        assert {"outputs", "targets"} <= record["arrays"].keys()
