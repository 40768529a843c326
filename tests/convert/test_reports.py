"""What conversions do to every layer of many networks stays the same, however they do it."""

import json
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
NAMES = list(json.loads((Path(__file__).parent / "reports.json").read_text(encoding="utf-8")))
QUICK = [name for name in NAMES if name.startswith(("small/", "others/stand-in", "others/torch "))]


@pytest.fixture
def generator(monkeypatch):
    """The script that writes the reports."""
    monkeypatch.setattr(sys, "path", [str(ROOT / "benchmarks"), *sys.path])
    import conversion_reports

    return conversion_reports


def compare(generator, name):
    try:
        now = generator.reports(name)
    except ImportError as error:
        pytest.skip(f"see docs/conversions.md: {error}")
    before = generator.load()[name]
    for conversion, found in now.items():
        assert generator.statuses(found) == generator.statuses(before[conversion]), (name, conversion)


@pytest.mark.parametrize("name", QUICK)
def test_statuses_of_small_networks(generator, name):
    compare(generator, name)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:Initializing zero-element")
@pytest.mark.parametrize("name", [name for name in NAMES if name not in QUICK])
def test_statuses_of_odd_networks_and_of_those_by_others(generator, name):
    compare(generator, name)


def test_every_network_is_there(generator):
    assert set(NAMES) == set(generator.builders())
