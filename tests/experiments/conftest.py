import pytest

from relucid.experiments import Results
from relucid.experiments._catalog import find

# What a user would write. The log has who ran what, and when.
FILE = """
import os, signal, time
import numpy as np
from relucid.experiments import Column, Scale, Study

LOG, PAUSE, SIZE = {log!r}, {pause}, {size}

def note(word, x, seed):
    line = f"{{word}} {{x}} {{seed}} {{os.getpid()}}\\n"
    file = os.open(LOG, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(file, line.encode())
    os.close(file)

def run(x, seed):
    note("start", x, seed)
    time.sleep(PAUSE)
    {extra}
    note("end", x, seed)
    rng = np.random.default_rng([x, seed])
    return {{"value": x ** 2 + rng.random(), "arrays": {{"noise": rng.random(SIZE)}}}}

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
        return (
            [line.split() for line in path.read_text(encoding="utf-8").splitlines()] if path.exists() else []
        )

    return read


@pytest.fixture
def filled():
    """A function that makes results: `outcome(config)` gives each run's metrics, or a record's fields; None: no run."""

    def fill(study, outcome, scale=None):
        records = {}
        for run in study.runs(scale):
            made = outcome(run.config)
            if made is not None:
                fields = made if "metrics" in made else {"metrics": made}
                usual = {
                    "state": "finished",
                    "history": {},
                    "started": "2026-01-01T00:00:00+00:00",
                    "seconds": 1.0,
                }
                records[run.key] = run.begun() | usual | fields
        return Results(study, scale or study.default_scale, records)

    return fill
