from relucid.report.results import results_page
from relucid.studies import Claim, Column, Lower, Outcome, Scale, Store, Study, cells, table
from relucid.studies.ledger import entries

PAPER = {"p": "A paper"}
STUDY = Study(
    "s",
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
    claims=(Claim("Table 1", "New errs less.", (Lower("new", than="old", columns="error"),)),),
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
    return results_page(entries({"p": (STUDY, WAITING)}, {}, tables), ["This was found."], PAPER)


def test_the_page_has_findings_figures_claims_and_tables_and_folds_the_rest_away(tmp_path):
    found = recorded(tmp_path, "full", "abc")
    (comparison,) = found.judged["Table 1"]
    files = written(found)
    assert files.keys() == {"results.md", "images/results.svg", "images/results-p.svg"}
    parts = [
        "1. This was found.",
        "](images/results.svg)",
        "## p\n",
        "](images/results-p.svg)",
        "- **Table 1: holds**. New errs less.",
        "| Table 1 | 1.11 (error) | 3 | 45 [",
        "### s\n",
        "How it compares. Published: a Table 1.",
        "| old | 1.11 ± 0.01 ! [1.00] |",
        '<details markdown="1">\n<summary>Comparisons, protocol, 12 runs</summary>\n\n',
        f"- {comparison}",
        "chosen: lr 0.1 for all",
        "Nothing is hidden.",
        "Scale full: 12 runs, 0:12:00 of computing, torch 2 on a processor; channels-last. "
        "To repeat: `relucid run s --scale full`.",
        "</details>",
        "- `relucid run later --scale full`: 3 runs, about 2 hours of one core. Table 2.",
    ]
    place, text = 0, files["results.md"]
    for part in parts:
        place = text.index(part, place)
    assert "changed work tree" not in text


def test_only_the_largest_complete_scale_of_a_study_is_shown_without_published_figures_below_the_papers(
    tmp_path,
):
    tables = [recorded(tmp_path, "full", "abc", missing=1), recorded(tmp_path, "cpu", "abc-dirty")]
    text = written(*tables, recorded(tmp_path, "small", "abc"))["results.md"]
    assert "Scale cpu: 12 runs" in text
    assert text.count("### s, cpu scale\n") == text.count("### s") == 1
    assert "| old | 1.11 ± 0.01 |" in text
    assert "holds at cpu scale" in text
    assert "12 of 12 runs were made with uncommitted changes in the working tree." in text


def test_a_run_whose_process_died_is_counted_and_has_no_environment(tmp_path):
    store = Store(tmp_path)
    store.put(cells(STUDY, "full")["old", "error"][0], Outcome("failed", error="its process died"))
    store.close()
    text = written(recorded(tmp_path, "full", "abc", missing=1))["results.md"]
    assert "11 of 12 runs so far, 1 failed, 0:10:00 of computing, torch 2 on a processor" in text


def test_runs_that_are_missing_are_told(tmp_path):
    assert "10 of 12 runs so far" in written(recorded(tmp_path, "full", "abc", missing=1))["results.md"]
