import pytest

from relucid.models import count_parameters, create
from relucid.papers.ours.together import ALL, ERROR, FIVE, NONE, PAIRS, SINGLE, STUDY, interaction
from relucid.studies import cells

SMALL = STUDY.at("small")


@pytest.mark.parametrize("row", [NONE, ALL])
def test_the_smoke_scale_runs(row, tmp_path, smoke_tested):
    found = smoke_tested(STUDY, tmp_path, only=row, seeds=1)
    tried = {record["config"]["lr"]: record["metrics"]["val_error"] for record in found.runs}
    assert found.cells[row, ERROR].chosen == {"lr": min(tried, key=tried.get)}


@pytest.mark.parametrize("scale", ["full", "small"])
def test_all_rows_have_about_as_many_parameters(scale):
    counts = {}
    for row in STUDY.at(scale).rows:
        config = cells(STUDY, scale)[row, ERROR][0].config
        backbone = config["residual"] | {"width": config["residual"]["width"] * config["channels"]}
        counts[row] = count_parameters(create(**backbone, **config["design"], num_classes=10))
    assert all(abs(count / counts[NONE] - 1) < 0.05 for count in counts.values()), counts


def test_all_three_choices_are_those_of_the_single_rows():
    single = [STUDY.rows[row]["design"] for row in SINGLE]
    assert STUDY.rows[ALL]["design"] == {name: value for design in single for name, value in design.items()}
    for row, both in PAIRS.items():
        assert STUDY.rows[row]["design"] == {
            name: value for each in both for name, value in STUDY.rows[each]["design"].items()
        }


def errors(gains, joint):
    """Errors from which each choice alone takes so much, and all three so much."""
    taken = dict(zip(FIVE, (0.0, *gains, joint), strict=True))
    return lambda row, column: [50.0 - taken[row] + k + 0.01 * (k * taken[row] % 0.7) for k in range(3)]


@pytest.mark.parametrize(
    "joint, outcome",
    [
        (6.0, "holds"),
        (5.5, "holds"),  # half a point short
        (2.0, "the opposite holds"),
        (8.0, "holds"),  # more than the sum is no shortfall
    ],
)
def test_the_joint_gain_may_fall_short_of_the_sum_by_a_point(filled, standing, joint, outcome):
    (judged,) = standing(filled(SMALL, errors((1.0, 2.0, 3.0), joint)), "gains add up").judged
    assert judged.found.effect == pytest.approx(6.0 - joint, abs=0.05)
    assert judged.outcome == outcome


def test_every_choice_and_all_three_are_compared_with_none_seed_by_seed(filled, standing):
    found = standing(filled(SMALL, errors((1.0, 2.0, 3.0), 4.0)), "each choice, and all three")
    assert found.outcome == "holds (4 of 4 hold) at small scale"
    assert {each.expected.a.row: round(each.found.effect, 1) for each in found.judged} == {
        **dict(zip(SINGLE, (-1.0, -2.0, -3.0), strict=True)),
        ALL: -4.0,
    }


def test_held_out_and_test_errors_of_every_rate_are_listed(filled, standing):
    runs = [
        {
            "config": {**config, "lr": lr},
            "metrics": {"val_error": 100 * lr, "error": 50.0},
            "state": "finished",
        }
        for config in SMALL.rows.values()
        for lr in (0.1, 0.03)
    ]
    found = standing(filled(SMALL, errors((1.0, 2.0, 3.0), 4.0), runs=runs), "each choice, and all three")
    assert f"{ALL} (0.03: 3.00 / 50.00, 0.1: 10.00 / 50.00)" in found.remark


def test_single_runs_say_nothing_of_chance(filled, standing):
    found = filled(STUDY, lambda row, column: [50.0])
    assert standing(found, "gains add up").state == "undecided"
    assert "too few values to compare, or a run that only one side has" in found.verdict


def test_an_interaction_is_the_gain_that_two_choices_share_averaged_over_the_third(filled):
    crelu, geometric, heavy_ball = SINGLE
    both = next(row for row, pair in PAIRS.items() if pair == (crelu, geometric))
    gain = {
        row: sum(value for name, value in zip(SINGLE, (1.0, 2.0, 4.0), strict=True) if name in chosen)
        for row, chosen in {
            NONE: (),
            ALL: tuple(SINGLE),
            **{row: (row,) for row in SINGLE},
            **PAIRS,
        }.items()
    }
    gain[both] -= 0.5  # shared without heavy ball
    gain[ALL] -= 1.5  # and with it
    found = filled(STUDY, lambda row, column: [50.0 - gain[row] + seed for seed in range(4)], scale="cpu")
    assert [*interaction(both).sample(found).values()] == pytest.approx([1.0] * 4)
    other = next(row for row, pair in PAIRS.items() if pair == (crelu, heavy_ball))
    # half of the last shortfall
    assert [*interaction(other).sample(found).values()] == pytest.approx([0.5] * 4)


def test_no_interaction_is_claimed_at_a_scale_without_pairs_of_choices():
    assert "interactions" in [claim.where for claim in STUDY.at("cpu").claims]
    assert "interactions" not in [claim.where for claim in SMALL.claims]
