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


def test_every_figure_of_the_results_is_on_a_page_and_no_other_page_is_left_over(written):
    figures = {f"images/{path.name}" for path in (ROOT / "docs" / "images").glob("results*.svg")}
    shown = {
        name.removeprefix("../")
        for page, text in written.items()
        if page.startswith("results")
        for name in re.findall(r"\]\(((?:\.\./)?images/\S+)\)", text)
    }
    assert figures == shown
    pages = {f"results/{path.name}" for path in (ROOT / "docs" / "results").glob("*.md")}
    assert pages == {name for name in written if name.startswith("results/")}


def test_the_front_page_can_be_read_in_a_minute_or_two(written):
    assert len(written["results.md"].split()) <= 900
    findings = re.findall(r"^\d\. (.+)$", written["results.md"], flags=re.MULTILINE)
    assert len(findings) <= 5
    assert max(len(finding.split()) for finding in findings) <= 20


def test_pages_use_one_vocabulary(written):
    old = re.compile(r"\b(untold|told apart|cannot be told|reproduced|contradicted|other way round)\b")
    assert {name: old.findall(text) for name, text in written.items() if old.search(text)} == {}


def test_each_study_page_has_every_scale_that_was_recorded(written, recorded_tables):
    for table in recorded_tables:
        page = written[f"results/{table.study.name.replace('/', '-')}.md"]
        assert f"\n## At {table.scale} scale" in page
        assert f"relucid run {table.study.name} --scale {table.scale}`" in page


@pytest.mark.slow
def test_the_tutorial_has_what_the_studies_on_imagenet_would_take():
    pages = runpy.run_path(str(ROOT / "docs" / "pages.py"))
    text = (ROOT / "docs" / "tutorials" / "cluster.md").read_text()
    assert pages["cluster"](text) == text, "run make pages"
    gpus = pages["EIGHT_GPUS"]
    assert f"--jobs {gpus.jobs} --tflops {gpus.tflops:g}" in text


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_file_has_runs_of_its_study_as_it_is_now_and_no_others(path):
    recorded = json.loads(path.read_text())
    planned = {run.key for run in plan(find(recorded["study"]), recorded["scale"])}
    found = {run["key"] for run in recorded["runs"]}
    assert found
    assert found <= planned


def part(written, table):
    """What the page of a study says of a scale."""
    page = written[f"results/{table.study.name.replace('/', '-')}.md"]
    return page.partition(f"\n## At {table.scale} scale")[2].partition("\n## At ")[0]


def test_page_ledger_table_and_verdict_agree_on_every_comparison(recorded_tables, ledger, written):
    compared = 0
    for table in recorded_tables:
        page, cells = part(written, table), table.to_dict()["comparisons"]
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
                assert f"- {each}\n" in page
            if entry.table is table:
                assert list(entry.judged) == judged
                assert f"**{entry.outcome[0].upper()}{entry.outcome[1:]}.**" in page
                assert f"| **{entry.stands}** |" in written["claims.md"]
                assert all(each.text[1:] in page for each in entry.caveats)
    assert compared > 200


def test_a_mark_agrees_with_the_comparison_with_the_baseline(recorded_tables):
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
