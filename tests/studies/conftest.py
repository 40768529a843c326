import pytest

from relucid.papers import find
from relucid.studies import Outcome, Store, cells

# What a user would write. The log has who ran what, and when.
FILE = """
import os, signal, time
import numpy as np
from relucid.studies import Column, Result, Scale, Study

LOG, PAUSE, SIZE = {log!r}, {pause}, {size}

def note(word, config):
    line = f"{{word}} {{config['x']}} {{config['seed']}} {{os.getpid()}}\\n"
    file = os.open(LOG, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(file, line.encode())
    os.close(file)

def run(config):
    note("start", config)
    time.sleep(PAUSE)
    {extra}
    note("end", config)
    rng = np.random.default_rng([config["x"], config["seed"]])
    return Result({{"value": config["x"] ** 2 + rng.random()}}, arrays={{"noise": rng.random(SIZE)}})

study = Study(
    "squares",
    "How large squares are",
    run,
    rows={{str(x): {{"x": x}} for x in range(1, {rows} + 1)}},
    columns={{"value": Column("value")}},
    repeat={{"seed": range({seeds})}},
)
"""


@pytest.fixture
def write_study(tmp_path):
    """A function that writes a file with a study, for `find` or the command line."""

    def write(rows=3, seeds=2, pause=0.0, size=1, extra="pass"):
        path = tmp_path / "squares.py"
        log = str(tmp_path / "log")
        values = {"log": log, "pause": pause, "size": size, "rows": rows, "seeds": seeds, "extra": extra}
        path.write_text(FILE.format(**values))
        return path

    return write


@pytest.fixture
def load_study(write_study):
    def load(**changes):
        return find(str(write_study(**changes)))

    return load


@pytest.fixture
def log(tmp_path):
    """A function that reads what was run: lists of word, x, seed, process."""

    def read():
        path = tmp_path / "log"
        return [line.split() for line in path.read_text().splitlines()] if path.exists() else []

    return read


@pytest.fixture
def fill():
    """A function that puts `outcome(config)` into a store for every run of a study, unless it is None."""

    def fill(study, place, outcome, scale=None):
        with Store(place) as store:
            for run in (run for runs in cells(study, scale).values() for run in runs):
                found = outcome(run.config)
                if found is not None:
                    store.put(run, found if isinstance(found, Outcome) else Outcome("finished", found))

    return fill
