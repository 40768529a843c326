"""What benchmarks/conversions.json says of networks by others is what the conversions do."""

import json
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
ROWS = json.loads((BENCHMARKS / "conversions.json").read_text(encoding="utf-8"))


@pytest.fixture
def generator(monkeypatch):
    """The script that measures."""
    monkeypatch.setattr(sys, "path", [str(BENCHMARKS), *sys.path])
    import conversions_table

    return conversions_table


def test_every_network_has_been_measured(generator):
    assert ROWS.keys() == generator.NETWORKS.keys()
    assert len(ROWS) >= 40


def test_every_conversion_is_exact_or_refused_with_a_reason(generator):
    for name, row in ROWS.items():
        for conversion in generator.CONVERSIONS:
            found = row[conversion]
            if "refused" in found:
                assert len(found["refused"]) > 20
                continue
            assert found["outputs"] <= 1e-10, (name, conversion)
            assert found["gradients"] <= 1e-8, (name, conversion)


@pytest.mark.parametrize("name", ["stand-in: GoogLeNet", "stand-in: segmentation"])
def test_a_row_measured_again_is_the_same(name, generator):
    made = generator.row(name)
    for conversion in generator.CONVERSIONS:
        for key in ("changed", "there", "refused"):
            assert made[conversion].get(key) == ROWS[name][conversion].get(key)
