import plotly.graph_objects as go
import pytest

from relucid.report import Figure
from relucid.report.study import (
    comparisons,
    grid,
    grid_of_environments,
    grid_of_runs,
    study_page,
    words,
)
from relucid.studies import Claim, Column, Higher

PLANTED = '<script>alert("planted")</script>'


def test_a_page_says_claim_and_how_it_stands_first(squares, done, without_library):
    claim = Claim(
        "Table 1",
        "Squares grow.",
        (Higher(PLANTED, than="one", columns="value"),),
        remark=lambda found: f"Up to {found.cells['one', 'value'].mean:.2f}.",
    )
    study = squares(claims=(claim,))
    page = without_library(study_page(*done(study, only="one"), "squares"))
    order = [page.index(text) for text in ("<table>", "Nothing is chosen.", "How to repeat it")]
    assert order == sorted(order)
    assert "Up to" not in page  # a verdict on half of the table would be none
    assert "The claims can be judged when all rows have been run." in page
    assert "<strong>4 more are missing:</strong>" in page
    assert "relucid run squares --scale full" in page
    found, store = done(study)
    page = without_library(study_page(found, store, "squares"))
    sentence = "Squares grow. <strong>Here: holds.</strong> Up to 1.15."
    assert page.index(sentence) < page.index("1 comparison, with intervals") < page.index("<table>")
    (judged,) = found.judged["Table 1"]
    assert str(judged).partition("&gt;")[0][-9:] in page
    assert "8 runs, 1 of them failed; they took 0:00:00 in all." in page
    assert "more are missing" not in page


def test_the_page_of_a_study_without_a_claim_says_what_the_table_shows(squares, done):
    assert words(done(squares())[0]) == [
        f"value: lowest for one, 1.15 ± 0.06. Worse than one beyond chance: {PLANTED}."
    ]


def test_published_figures_stand_beside_ours_and_both_can_be_sorted(squares, done):
    found = grid(done(squares())[0])
    assert found.head == [("", ""), ("value", "ours"), ("value", "published"), ("size", "")]
    ours, theirs = found.rows[0][1:3]
    assert (ours.text, ours.sort) == ("1.15 ± 0.06", pytest.approx(1.15))
    assert (theirs.text, theirs.sort) == ("1.20 ± 0.10", 1.2)
    assert [row[1].style for row in found.rows] == ["", "bad"]


def test_what_a_user_wrote_is_escaped(squares, done, without_library):
    def figures(_table, _store):
        return [Figure(PLANTED, PLANTED, go.Figure(go.Scatter(y=[1], name=PLANTED)))]

    everywhere = dict.fromkeys(("protocol", "source"), PLANTED) | {"claims": (Claim(PLANTED, PLANTED),)}
    study = squares(columns={PLANTED: Column("value")}, published={}, figures=figures, **everywhere)
    page = without_library(study_page(*done(study), PLANTED))
    assert page.count("&lt;script&gt;alert(&#34;planted&#34;)") > 10
    assert PLANTED not in page


def test_columns_are_drawn_with_errors_and_published_figures(squares, done):
    (figure,) = comparisons(done(squares())[0])
    assert figure.title == "value (lowest is best)"
    assert figure.alt == f"Means with standard errors, ours: one 1.15, {PLANTED} 4.13; published: one 1.20."
    ours, theirs = figure.plot.data
    assert ours.x == pytest.approx((1.15, 4.1333), abs=1e-4)
    assert ours.y[1].startswith("&lt;script&gt;")  # Plotly reads some HTML
    assert theirs.error_x.array == (0.1,)


def test_runs_are_listed_by_what_they_differ_in(squares, done):
    found = grid_of_runs(done(squares())[0])
    assert [label for label, _ in found.head] == ["run", "seed", "x", "state", "seconds", "value", "size"]
    assert [row[3].text for row in found.rows].count("failed") == 1


def test_the_page_has_what_the_runs_ran_on(squares, done):
    found = grid_of_environments(done(squares())[0])
    assert found.head == [("", ""), ("8 runs", "")]
    assert {"python", "torch", "device"} <= {name.text for name, _ in found.rows}


def test_the_figures_of_a_study_are_drawn_once_a_run_has_finished(squares, done, without_library, tmp_path):
    def figures(found, store):
        return [Figure("Mine", f"{len(store.get(found.runs[0]['key']).history['loss'])} epochs", go.Figure())]

    page = without_library(study_page(*done(squares(figures=figures)), "squares"))
    assert 'aria-label="5 epochs"' in page
    assert "during training" not in page


def test_a_page_of_nothing_done_yet_says_so(squares, tmp_path, without_library):
    from relucid.studies import Store, table

    study = squares(figures=lambda found, store: pytest.fail("there is nothing to draw"))
    page = without_library(study_page(table(study, store=tmp_path), Store(tmp_path), "squares"))
    assert "8 more are missing" in page
    assert "<figure" not in page
