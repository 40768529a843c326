"""Numbers that the documentation takes from results or from code."""

import re
from pathlib import Path

import pytest

from relucid.papers import find
from relucid.papers.cifar import REENCODED
from relucid.papers.crelu import theorem_c1
from relucid.papers.gmp.evolution import ADAM

DOCS = Path(__file__).parents[2] / "docs"


def quoted(page, pattern):
    """The number that a page states."""
    (found,) = re.findall(pattern, (DOCS / page).read_text())
    return found


@pytest.fixture(scope="module")
def by_study(recorded_tables):
    return {table.study.name: table for table in recorded_tables}


@pytest.mark.parametrize(
    "column, pattern",
    [
        (theorem_c1.POOLED, r"one pooling region loses (0\.\d+) of its input"),
        (theorem_c1.PRINTED, r"the printed D gives (0\.\d+)"),
        (theorem_c1.TRUE, r"\| (0\.\d+) for random filters \|"),
    ],
)
@pytest.mark.parametrize("layer", theorem_c1.LAYERS)
def test_what_random_filters_lose_is_what_the_study_found(by_study, column, pattern, layer):
    text = quoted("how/crelu.md", pattern)
    mean = by_study["crelu/random"].cells[layer, column].mean
    assert float(text) == pytest.approx(mean, abs=0.6 * 10.0 ** -len(text.partition(".")[2]))


def test_the_weights_of_convpool_are_those_counted(by_study):
    cells = by_study["crelu/parameters"].cells
    assert (
        quoted("how/crelu.md", r"\| ([\d,]+) as printed in Table S2")
        == f"{cells['ConvPool, baseline', 'weights'].mean:,.0f}"
    )
    millions = cells["All-CNN-B, CReLU (all)", "millions of weights"].mean
    assert quoted("how/crelu.md", r"the published (\d\.\d)M weights") == f"{millions:.1f}"


def test_the_bound_on_steps_of_adam_is_that_of_the_code():
    assert quoted("how/gmp.md", r"never exceed (\d\.\d+) learning rates") == f"{ADAM:.2f}"


def test_the_erratum_of_table_s1_has_the_simulated_figure(by_study):
    (claim,) = [claim for claim in find("crelu/reconstruction").claims if claim.erratum]
    (lost,) = re.findall(r"one region loses (0\.\d+) of its input", claim.erratum)
    for layer in theorem_c1.LAYERS:
        assert float(lost) == round(by_study["crelu/random"].cells[layer, theorem_c1.POOLED].mean, 2)


def test_the_memory_against_checkpointing_in_segments_is_that_of_the_benchmark():
    table = (DOCS / "benchmarks.md").read_text()
    (ratio,) = re.findall(r"\| 16 channels, 16x16 \| 200 \|.*, ([\d.]+) \|\n", table)
    readme = (DOCS.parent / "README.md").read_text()
    assert f"200 reversible layers take {ratio} of the memory" in readme
    assert "keeps about four times as much at 200 layers" in (DOCS / "choose.md").read_text()
    assert round(1 / float(ratio)) == 4


def test_wherever_cifar_10_was_used_its_encoding_is_told(recorded_tables):
    used = {
        table.study.name: table.study.protocol
        for table in recorded_tables
        if any(run["config"].get("data") == "cifar10" for run in table.runs)
    }
    assert len(used) > 5
    assert [name for name, protocol in used.items() if REENCODED not in protocol] == []
