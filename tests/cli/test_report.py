from pathlib import Path


def test_report_writes_the_page_of_a_study(relucid, study):
    relucid("run", study, "--jobs", "1", "--store", "there")
    status, _, err = relucid("report", study, "--store", "there", "-o", "a page.html")
    assert (status, err) == (0, "Written to a page.html: 6 runs\n")
    page = Path("a page.html").read_text(encoding="utf-8")
    assert "How large squares are" in page
    assert "relucid run squares.py --scale small" in page


def test_an_existing_page_is_kept_unless_forced(relucid, study):
    relucid("run", study, "--jobs", "1", "-q")
    Path("page.html").write_text("mine")
    status, _, err = relucid("report", study)
    assert (status, "--force" in err) == (1, True)
    assert Path("page.html").read_text(encoding="utf-8") == "mine"
    assert relucid("report", study, "--force")[0] == 0
    assert "How large squares are" in Path("page.html").read_text(encoding="utf-8")


def test_a_page_without_runs_is_not_written(relucid, study):
    status, _, err = relucid("report", study)
    assert (status, "nothing has been run yet" in err) == (1, True)
    assert not Path("page.html").exists()


def test_the_page_of_a_part_of_a_study_is_that_of_its_runs(relucid, study):
    assert relucid("run", study, "--seeds", "4", "--jobs", "1", "-q")[0] == 0
    for options, runs in ((), 6), (("--seeds", "4"), 8), (("--only", "one", "--seeds", "4"), 4):
        status, _, err = relucid("report", study, *options, "--force")
        assert (status, f"{runs} runs" in err) == (0, True)
        page = Path("page.html").read_text(encoding="utf-8")
        assert "more are missing" not in page
        assert " ".join(["relucid run", study, "--scale small", *options]) in page
