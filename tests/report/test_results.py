from relucid.report.results import results_page
from relucid.studies import Claim, Column, Lower, Outcome, Scale, Store, Study, cells, table

STUDY = Study(
    "s",
    "How it compares",
    print,
    rows={"old": {"x": 1.0}, "new": {"x": 0.0}},
    columns={"error": Column("error")},
    scales={"full": Scale(), "small": Scale({"fewer": True})},
    source="a Table 1",
    protocol="Nothing is chosen.",
    claims=(Claim("Table 1", "New errs less.", (Lower("new", than="old", columns="error"),)),),
)


def found(place, scale, commit, missing=0):
    store = Store(place)
    environment = {"versions": {"torch": "2"}, "device": "a processor", "commit": commit}
    for runs in cells(STUDY, scale).values():
        for run in runs[missing:]:
            error = run.config["x"] + 0.01 * run.config["seed"]
            store.put(run, Outcome("finished", {"error": error}, environment=environment, seconds=60.0))
    store.close()
    return table(STUDY, scale, store=place)


def test_a_section_has_claim_comparisons_table_protocol_and_how_to_run_it_again(tmp_path):
    text = results_page([found(tmp_path, "full", "abc")])
    (comparison,) = found(tmp_path, "full", "abc").judged["Table 1"]
    parts = [
        "## s\n",
        "How it compares. Published: a Table 1.",
        "**Table 1.** New errs less. **Here: reproduced.**",
        f"- {comparison}",
        "| old | 1.01 ± 0.01 |",
        "Nothing is chosen.",
        "Scale full: 6 runs, 0:06:00 of computing, torch 2 on a processor. To repeat: `relucid run s --scale full`.",
    ]
    places = [text.index(part) for part in parts]
    assert places == sorted(places)
    assert "changed work tree" not in text


def test_scales_have_sections_of_their_own_and_missing_runs_and_changed_work_trees_are_told(tmp_path):
    tables = [found(tmp_path, "full", "abc-dirty", missing=1), found(tmp_path, "small", "abc")]
    text = results_page(tables)
    assert "## s, full scale" in text
    assert "## s, small scale" in text
    assert "4 of 6 runs so far" in text
    assert "4 of 10 runs were made from a changed work tree." in text
