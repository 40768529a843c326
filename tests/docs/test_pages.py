import json
import re
import runpy
from pathlib import Path

import pytest

from relucid.papers import find
from relucid.studies import plan
from relucid.studies.compare import HOLDS, REVERSED
from relucid.studies.expect import Place

ROOT = Path(__file__).parents[2]
FILES = sorted((ROOT / "results").glob("*.json"))


@pytest.fixture(scope="module")
def written():
    return runpy.run_path(str(ROOT / "docs" / "pages.py"))["pages"]()


def test_pages_and_figures_say_what_the_files_and_the_claims_say(written):
    assert {"claims.md", "results.md", "images/results.svg"} < written.keys()
    old = [name for name, text in written.items() if (ROOT / "docs" / name).read_text() != text]
    assert old == [], "run make pages"


def test_every_figure_of_the_results_is_on_their_page(written):
    figures = {f"images/{path.name}" for path in (ROOT / "docs" / "images").glob("results*.svg")}
    assert figures == set(re.findall(r"\]\((images/\S+)\)", written["results.md"]))


@pytest.mark.slow
def test_the_tutorial_has_what_the_studies_on_imagenet_would_take():
    pages = runpy.run_path(str(ROOT / "docs" / "pages.py"))
    text = (ROOT / "docs" / "tutorials" / "cluster.md").read_text()
    assert pages["cluster"](text) == text, "run make pages"
    gpus = pages["EIGHT_GPUS"]
    devices = f"--jobs {gpus.jobs} --gpus-per-run {gpus.gpus_per_run:g}"
    assert f"{devices} --tflops {gpus.tflops:g} --price-per-hour {gpus.price:g}" in text


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_file_has_runs_of_its_study_as_it_is_now_and_no_others(path):
    recorded = json.loads(path.read_text())
    planned = {run.key for run in plan(find(recorded["study"]), recorded["scale"])}
    found = {run["key"] for run in recorded["runs"]}
    assert found
    assert found <= planned


def sections(page):
    """The sections of the page of results, by study and scale."""
    named = {section.partition("\n")[0]: section for section in page.split("\n### ")[1:]}
    return {
        (name.partition(", ")[0], name.partition(", ")[2].removesuffix(" scale") or "full"): section
        for name, section in named.items()
    }


def test_page_ledger_table_and_verdict_agree_on_every_comparison(recorded_tables, ledger, written):
    pages = sections(written["results.md"])
    assert {name for name, _ in pages} == {table.study.name for table in recorded_tables}
    compared = 0
    for table in recorded_tables:
        page, cells = pages.get((table.study.name, table.scale)), table.to_dict()["comparisons"]
        for where, judged in table.judged.items():
            (entry,) = [
                each
                for each in ledger.values()
                if each.study and each.study.name == table.study.name and each.claim.where == where
            ]
            for each in judged:
                compared += 1
                assert str(each) in table.verdict
                assert {"claim": where, "compared": each.expected.label, "outcome": each.outcome,
                        "in words": str(each)} in cells  # fmt: skip
            if entry.table is table:
                assert list(entry.judged) == judged
                assert all(f"- {each}\n" in page for each in judged)
                assert f"Scale {table.scale}: " in page
                assert f"**Here: {entry.stands}.**" in page
                assert f"| **{entry.stands}** |" in written["claims.md"]
    assert compared > 200


def test_a_mark_says_what_the_comparison_with_the_baseline_says(recorded_tables):
    marked = 0
    for table in recorded_tables:
        for each in (each for found in table.judged.values() for each in found):
            a, b = each.expected.a, each.expected.b
            if not (isinstance(a, Place) and isinstance(b, Place)) or b.row != table.study.baseline:
                continue
            column = table.study.columns[a.column]
            if a.column != b.column or column.best is None or each.expected.relation == "not worse":
                continue
            better = None
            if each.outcome in (HOLDS, REVERSED):
                better = (each.found.effect < 0) == (column.best == "lowest")
            assert table.cells[a.row, a.column].better is better
            marked += 1
    assert marked > 10


def test_a_cell_is_marked_only_beyond_chance(recorded_tables):
    for table in recorded_tables:
        baseline = table.study.baseline
        for (row, column), cell in table.cells.items():
            if cell.better is not None and baseline is not None:
                other = table.cells[baseline, column]
                lower = cell.mean < other.mean
                assert row != baseline
                assert cell.better is (lower == (table.study.columns[column].best == "lowest"))
