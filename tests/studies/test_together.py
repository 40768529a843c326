import pytest
from relucid.studies.structure.images import parameters
from relucid.studies.together import ALL, ERROR, NONE, STUDY

from relucid.models import create
from relucid.studies import Cell, Table, cells, run, table


@pytest.mark.parametrize("row", [NONE, ALL])
def test_the_smoke_scale_runs(row, tmp_path):
    run(STUDY, "smoke", only=row, seeds=1, store=tmp_path, jobs=1)
    found = table(STUDY, "smoke", only=row, seeds=1, store=tmp_path)
    assert [record["error"] for record in found.runs if record["state"] != "finished"] == []
    tried = {record["config"]["lr"]: record["metrics"]["val_error"] for record in found.runs}
    assert found.cells[row, ERROR].chosen == {"lr": min(tried, key=tried.get)}


@pytest.mark.parametrize("scale", ["full", "small"])
def test_all_rows_have_about_as_many_parameters(scale):
    counts = {}
    for row in STUDY.rows:
        config = cells(STUDY, scale)[row, ERROR][0].config
        backbone = config["residual"] | {"width": config["residual"]["width"] * config["channels"]}
        counts[row] = parameters(create(**backbone, **config["design"], num_classes=10))
    assert all(abs(count / counts[NONE] - 1) < 0.05 for count in counts.values()), counts


def test_all_three_choices_are_those_of_the_single_rows():
    *single, together = [config["design"] for row, config in STUDY.rows.items() if row != NONE]
    assert together == {name: value for design in single for name, value in design.items()}


def filled(gains, joint, noise=0.1, runs=3):
    errors = dict(zip(STUDY.rows, (50.0, *(50.0 - gain for gain in gains), 50.0 - joint), strict=True))
    found = {
        (row, column): Cell(tuple(error + noise * k for k in range(runs)), runs, {"finished": runs})
        for row, error in errors.items()
        for column in STUDY.columns
    }
    return Table(STUDY, "small", found, [])


@pytest.mark.parametrize(
    "joint, said",
    [
        (
            6.0,
            "differs from that by +0.00 ± 0.16 (p = 1), no more than noise: nothing speaks against their adding up.",
        ),
        (2.0, "differs from that by -4.00 ± 0.16 (p = 0.0017), more than noise: they do not add up."),
        (
            6.3,
            "differs from that by +0.30 ± 0.16 (p = 0.21), no more than noise: nothing speaks against their adding up.",
        ),
    ],
)
def test_the_joint_gain_is_compared_with_the_sum(joint, said):
    verdict = filled((1.0, 2.0, 3.0), joint).verdict
    assert "CReLU +1.00 ± 0.08 (p = 0.00" in verdict
    assert "heavy ball +3.00 ± 0.08" in verdict
    assert "The single gains add up to +6.00; " in verdict
    assert verdict.endswith(said)


def test_single_runs_say_nothing_of_chance():
    verdict = filled((1.0, 1.0, 1.0), 4.0, runs=1).verdict
    assert verdict.endswith("+1.00 (one value each), which one run each cannot tell from noise.")
