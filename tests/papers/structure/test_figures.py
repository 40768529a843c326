import pytest

from relucid.papers.ours.together import STUDY as TOGETHER
from relucid.papers.structure import STUDIES
from relucid.papers.structure.table2 import OTHER_READING, RULES
from relucid.report.curves import training
from relucid.studies import Outcome, Store, plan, table

NAMED = {study.name: study for study in (*STUDIES, TOGETHER)}


@pytest.fixture
def drawn(tmp_path, smoke_tested):
    def draw(name, row=None):
        study = NAMED[name]
        smoke_tested(study, tmp_path, only=row)
        found, store = table(study, "smoke", store=tmp_path), Store(tmp_path)
        figures = study.figures(found, store)
        store.close()
        return found, figures

    return draw


def test_depth_shows_every_rule_beside_least_squares_and_the_courses(tmp_path):
    study, store = NAMED["structure/depth"], Store(tmp_path)
    for each in plan(study, "smoke"):
        seed, depth = each.config["seed"], each.config["depth"]
        metrics = {"mse": 2 + seed + depth / 100, "mse_of_zero": 1.0 + seed, "mse_of_lstsq": 0.5 + seed}
        store.put(each, Outcome("finished", metrics, {"train_loss": [3.0, 2.0, 1.0]}))
    over_depth, courses = study.figures(table(study, "smoke", store=tmp_path), store)
    store.close()
    traces = {trace.name: trace for trace in over_depth.plot.data}
    assert list(traces) == [*RULES, "least squares", *OTHER_READING]
    for name, trace in traces.items():
        assert list(trace.x) == [10, 20, 30, 40]
        assert list(trace.y) == pytest.approx([-0.5] * 4 if name == "least squares" else [1.1, 1.2, 1.3, 1.4])
    assert [trace.name for trace in courses.plot.data] == list(study.rows)
    assert all((list(trace.x), list(trace.y)) == ([1, 2, 3], [3, 2, 1]) for trace in courses.plot.data)


def test_convergence_leaves_out_who_never_arrives(drawn):
    found, (counts,) = drawn("structure/convergence")
    missed = {each["config"]["rule"] for each in found.runs if not each["metrics"]["reached"]}
    assert "hb-1" in missed
    shown = [row for row, config in found.study.rows.items() if config["rule"] not in missed]
    assert [trace.name for trace in counts.plot.data] == shown
    assert list(counts.plot.data[0].y) == [
        found.cells[shown[0], column].mean for column in found.study.columns
    ]


def test_training_has_one_figure_a_setting_and_a_line_a_row_that_has_run(drawn):
    _, figures = drawn("structure/cifar", "ResNet")
    assert [figure.title for figure in figures] == [
        "Training curves, CIFAR-10",
        "Training curves, CIFAR-10 (+)",
    ]
    assert [[trace.name for trace in figure.plot.data] for figure in figures] == [["ResNet"]] * 2


def test_only_runs_at_the_chosen_rate_are_drawn(tmp_path, smoke_tested):
    row = next(iter(TOGETHER.rows))
    smoke_tested(TOGETHER, tmp_path, only=row)
    found, store = table(TOGETHER, "smoke", store=tmp_path), Store(tmp_path)
    (figure,) = training(found, store)
    assert figure.title == "Training curves"
    chosen = found.cells[row, "test error %"].chosen["lr"]
    courses = {
        each["config"]["seed"]: store.get(each["key"]).history
        for each in found.runs
        if each["config"]["lr"] == chosen
    }
    store.close()
    assert len(found.runs) == 4
    assert list(figure.plot.data[0].y) == [
        sum(errors) / 2
        for errors in zip(*(course["train_error"] for course in courses.values()), strict=True)
    ]
