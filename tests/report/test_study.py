import plotly.graph_objects as go
import pytest

from relucid.experiments import Claim, Column, Results, Store, higher
from relucid.experiments._page import findings
from relucid.report import Figure
from relucid.report.study import grid, grid_of_environments, grid_of_runs, study_page

PLANTED = '<script>alert("planted")</script>'


def test_a_page_says_claim_and_outcome_first(squares, done, without_library):
    claim = Claim("Table 1", "Squares grow.", higher(PLANTED, "one", "value", paired=False))
    study = squares(claims=[claim])
    page = without_library(study_page(done(study, only="one"), "squares", only="one"))
    order = [page.index(text) for text in ("<table>", "How to repeat it")]
    assert order == sorted(order)
    assert "Squares grow." not in page  # half of the table decides nothing
    assert "The claims can be judged when the cells behind them have been run." in page
    assert "relucid run squares --scale full --only one" in page
    results = done(study)
    page = without_library(study_page(results, "squares"))
    sentence = "Squares grow. <strong>Confirmed.</strong>"
    assert page.index(sentence) < page.index("1 comparison, with intervals") < page.index("<table>")
    ((verdict,),) = (finding.verdicts for finding in findings(results))
    assert str(verdict).partition("&gt;")[0][-9:] in page
    assert "8 runs, 1 of them failed; they took 0:00:00 in all." in page
    assert "more are missing" not in page


def test_published_figures_stand_beside_ours(squares, done, without_library):
    results = done(squares())
    shown = grid(results, results.shown())
    assert shown.head == ["", "value", "size"]
    assert shown.rows[0] == ["one", "1.15±0.06 [1.20±0.10]", "1"]
    assert shown.rows[1][1] == "4.13±0.09 (1 failed)"
    page = without_library(study_page(results, "squares"))
    assert '<td data-sort="1.15">1.15±0.06 [1.20±0.10]</td>' in page  # sorted by ours


def test_what_a_user_wrote_is_escaped(squares, done, without_library):
    def figures(_results):
        return [Figure(PLANTED, PLANTED, go.Figure(go.Scatter(y=[1], name=PLANTED)))]

    claim = Claim(PLANTED, PLANTED, higher(PLANTED, "one", PLANTED, paired=False))
    study = squares(columns={PLANTED: Column("value")}, published={}, figures=[figures], claims=[claim])
    page = without_library(study_page(done(study), PLANTED))
    assert page.count("&lt;script&gt;alert(&#34;planted&#34;)") > 10
    assert PLANTED not in page


def test_runs_are_listed_by_what_they_differ_in(squares, done):
    listed = grid_of_runs(done(squares()))
    assert listed.head == ["run", "x", "seed", "state", "seconds", "value", "size"]
    assert [row[3] for row in listed.rows].count("failed") == 1


def test_the_page_has_what_the_runs_ran_on(squares, done):
    listed = grid_of_environments(done(squares()))
    assert listed.head == ["", "8 runs"]
    assert {"python", "torch", "device"} <= {name for name, _ in listed.rows}


def test_the_figures_of_a_study_are_drawn_once_a_run_has_finished(squares, done, without_library):
    def figures(results):
        return [Figure("Mine", f"{len(results['one', 'value', 'loss', True].iloc[0])} epochs", go.Figure())]

    page = without_library(study_page(done(squares(figures=[figures])), "squares"))
    assert 'aria-label="5 epochs"' in page
    assert "during training" not in page


def test_a_page_of_nothing_done_yet_says_so(squares, tmp_path, without_library):
    study = squares(figures=[lambda results: pytest.fail("there is nothing to draw")])
    with Store(tmp_path) as store:
        page = without_library(study_page(Results(study, "full", store), "squares"))
    assert "8 more are missing" in page
    assert "<figure" not in page


def test_a_study_may_have_a_page_of_its_own(squares, done):
    assert (
        study_page(done(squares(page=lambda results: f"my {results.study.name}")), "squares") == "my squares"
    )
