import json
import re
import runpy
from dataclasses import replace
from pathlib import Path

from evidence.front import Headline, brief, front, is_dirty

from relucid.studies import Claim, Column, Lower, Outcome, Scale, Store, Study, cells, table
from relucid.studies.compare import UNDECIDED
from relucid.studies.judge import Judged
from relucid.studies.ledger import entries

PAGES = runpy.run_path(str(Path(__file__).parents[2] / "docs" / "pages.py"))
RESULTS = Path(__file__).parents[2] / "results"
PAPER = {"p": "A paper"}
STUDY = Study(
    "p/s",
    "How it compares",
    print,
    rows={"old": {"x": 1.0}, "new": {"x": 0.5}},
    columns={"error": Column("error")},
    scales={"full": Scale(), "cpu": Scale({"some": True}), "small": Scale({"fewer": True}), "smoke": Scale()},
    choose={"lr": [0.1, 0.2]},
    by="error",
    published={"old": {"error": 1.0}, "new": {"error": 0.5}},
    source="a Table 1",
    protocol="Nothing is hidden.",
    claims=(
        Claim("Table 1", "New errs less.", (Lower("new", than="old", columns="error"),), stated="2020-02-02"),
        Claim("by name", "It is so.", (Lower("new", than="old", columns="error"),), kind="construction"),
    ),
)
WAITING = Study(
    "later",
    "What waits",
    print,
    rows={"a": {}},
    columns={"error": Column("error")},
    scales={"full": Scale(seconds=2400)},
    claims=(Claim("Table 2", "It would hold."),),
)


def recorded(place, scale, commit, missing=0):
    store = Store(place)
    environment = {
        "versions": {"torch": "2"}, "device": "a processor", "commit": commit, "trained": ["channels-last"]
    }  # fmt: skip
    for runs in cells(STUDY, scale).values():
        for run in runs[missing:]:
            error = run.config["x"] + 0.01 * run.config["seed"] + run.config["lr"]
            store.put(run, Outcome("finished", {"error": error}, environment=environment, seconds=60.0))
    store.close()
    return table(STUDY, scale, store=place)


def written(*tables):
    found = entries({"p": (STUDY, WAITING)}, {}, tables)
    first = front(
        found, tables, [Headline("p", "Table 1", "New is better", "points")], ["This was found."], ["Beware."]
    )
    return PAGES["results_pages"](found, tables, first, PAPER)


def in_order(text, parts):
    place = 0
    for part in parts:
        place = text.index(part, place)


def test_there_is_a_front_page_and_behind_it_a_page_per_paper_and_per_study(tmp_path):
    files = written(recorded(tmp_path, "full", "abc"))
    assert files.keys() == {
        "results.md", "images/results.svg", "results/p.md", "images/results-p.svg", "results/p-s.md"
    }  # fmt: skip


def test_the_front_page_has_counts_headlines_findings_the_figure_and_the_doubts(tmp_path):
    found = recorded(tmp_path, "full", "abc-dirty")
    (judged,) = found.judged["Table 1"]
    low, high = brief(-judged.found.high), brief(-judged.found.low)
    parts = [
        "1 claim tested by experiment: 1 holds; 1 more to be run; 1 holds by construction.",
        "[p](results/p.md)",
        f"| [New is better](results/p-s.md) | holds | 0.5\u00a0[{low},\u00a0{high}] points | 0.5 | full |",
        "1. This was found.",
        "](images/results.svg)",
        "Beware. Of 12 runs, 12 were made with uncommitted changes and 0 without a commit.",
        "1 claim (*post hoc*) was stated on 2020-02-02, with data in view.",
    ]
    in_order(written(found)["results.md"], parts)


def test_a_headline_with_nothing_to_compare_yet_is_left_out():
    (entry, *_) = entries({"p": [STUDY]}, {}, [])
    begun = replace(entry, judged=[Judged(each, None, UNDECIDED) for each in entry.claim.comparisons()])
    assert front([begun], [], [Headline("p", "Table 1", "New errs less")], [], []).lines == []


def test_the_page_of_a_paper_lists_claims_by_kind_with_links_to_their_studies(tmp_path):
    parts = [
        "# p\n",
        "A paper. 1 claim tested by experiment",
        "## Experiments",
        "| [Table 1](p-s.md): New errs less. | holds | rate at edge, rate by chance, post hoc |",
        "](../images/results-p.svg)",
        "## By construction",
        "| [by name](p-s.md): It is so. | true |",
        "- [p/s](p-s.md): How it compares.",
        "- `relucid run later --scale full`: 3 runs, about 2 hours of one core. Table 2.",
    ]
    in_order(written(recorded(tmp_path, "full", "abc"))["results/p.md"], parts)


def test_the_page_of_a_study_has_its_table_comparisons_caveats_protocol_and_command(tmp_path):
    found = recorded(tmp_path, "full", "abc")
    (comparison,) = found.judged["Table 1"]
    parts = [
        "# p/s\n",
        "How it compares. Published: a Table 1.",
        "## At full scale",
        "| old | 1.11 ± 0.01 ! [1.00] |",
        "**Table 1.** New errs less. **Holds.** Rates at the edge of their grid: 0.1 for new, 0.1 for old.",
        "Stated on 2020-02-02, after its data.",
        f"- {comparison}",
        "chosen: lr 0.1 for all",
        "12 runs, 0:12:00 of computing, torch 2 on a processor; channels-last. "
        "To repeat: `relucid run p/s --scale full`.",
        "## Protocol",
        "Nothing is hidden.",
    ]
    in_order(written(found)["results/p-s.md"], parts)


def test_every_scale_of_a_study_is_on_its_page_and_a_larger_complete_one_supersedes_a_smaller_one(tmp_path):
    tables = [
        recorded(tmp_path, "full", "abc", missing=1),
        recorded(tmp_path, "cpu", "abc-dirty"),
        recorded(tmp_path, "small", None),
    ]
    files = written(*tables)
    text = files["results/p-s.md"]
    headings = [line for line in text.splitlines() if line.startswith("## ")]
    scales = ["## At full scale", "## At cpu scale", "## At small scale, superseded by cpu"]
    assert headings == [*scales, "## Protocol"]
    assert "10 of 12 runs so far" in text
    assert "12 with uncommitted changes" in text
    assert "12 without a commit" in text
    assert "| old | 1.11 ± 0.01 |" in text  # no published figure below the paper's scale
    assert "here) | cpu |" in files["results.md"]
    assert "12 were made with uncommitted changes and 12 without a commit." in files["results.md"]


def test_a_run_whose_process_died_is_counted_and_has_no_environment(tmp_path):
    store = Store(tmp_path)
    store.put(cells(STUDY, "full")["old", "error"][0], Outcome("failed", error="its process died"))
    store.close()
    text = written(recorded(tmp_path, "full", "abc", missing=1))["results/p-s.md"]
    assert "11 of 12 runs so far, 1 failed, 0:10:00 of computing, torch 2 on a processor" in text


def test_the_figure_of_the_calibration_shows_both_rules_for_every_setting_within_its_frame(recorded_tables):
    (found,) = [each for each in recorded_tables if each.study.name == "calibration"]
    drawn = PAGES["calibrated"](found)
    assert drawn.count('<circle class="now"') == drawn.count('<circle class="before"') == 1 + 5 + 4 + 1
    assert max(float(x) for x in re.findall(r' x2?="([\d.]+)"', drawn)) < 520


def test_the_runs_of_a_table_show_whether_their_work_tree_was_changed(recorded_tables):
    files = [json.loads(file.read_text()) for file in RESULTS.glob("*.json")]
    marked = [
        run
        for each in files
        for run in each.get("runs", ())
        if "-dirty" in str(run["environment"].get("commit"))
    ]
    assert sum(is_dirty(run) for found in recorded_tables for run in found.runs) == len(marked) > 0
