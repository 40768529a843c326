import pytest

from relucid.models import count_parameters, create
from relucid_reproductions.ours.together import (
    ALL,
    ERROR,
    FIVE,
    NONE,
    PAIRS,
    ROWS,
    SINGLE,
    TOGETHER,
    by_rate,
    gains,
    interaction,
)


@pytest.mark.parametrize("row", [NONE, ALL])
def test_the_smoke_scale_runs_and_chooses_a_rate_on_held_out_images(row, tmp_path, smoked):
    results = smoked(TOGETHER, tmp_path, only=row, seeds=1)
    tried = {rate: held_out for rate, (held_out, _) in by_rate(results, row).items()}
    (chosen,) = results.cells[row, ERROR]
    assert tried[f"{chosen.run.config['lr']:g}"] == min(tried.values())


@pytest.mark.parametrize("scale", ["full", "small"])
def test_all_rows_have_about_as_many_parameters(scale):
    counts = {}
    for planned in TOGETHER.plan(scale):
        config = planned.run.config
        backbone = config["residual"] | {"width": config["residual"]["width"] * config["channels"]}
        network = create(**backbone, **config["design"], num_classes=10)
        counts.setdefault(planned.row, count_parameters(network))
    assert all(abs(count / counts[NONE] - 1) < 0.05 for count in counts.values()), counts


def test_all_three_choices_are_those_of_the_single_rows():
    for row, rows in {**PAIRS, ALL: tuple(SINGLE)}.items():
        designs = [ROWS[one]["design"] for one in rows]
        assert ROWS[row]["design"] == {name: value for design in designs for name, value in design.items()}


def errors(gain):
    """Errors from which each row takes so much, over repetitions that differ a little."""
    return lambda row, column, place: 50.0 - gain[row] + place + 0.01 * (place * gain[row] % 0.7)


@pytest.mark.parametrize(
    "joint, outcome",
    [
        (6.0, "confirmed"),
        (5.5, "confirmed"),  # half a point short
        (2.0, "reversed"),
        (8.0, "confirmed"),  # more than the sum is no shortfall
    ],
)
def test_the_joint_gain_may_fall_short_of_the_sum_by_a_point(filled, found, joint, outcome):
    gain = dict(zip(FIVE, (0.0, 1.0, 2.0, 3.0, joint), strict=True))
    results = filled(TOGETHER, errors(gain), "small")
    (verdict,) = found(results, "gains add up").verdicts
    assert verdict.comparison.effect == pytest.approx(6.0 - joint, abs=0.05)
    assert verdict.outcome == outcome
    assert gains(results) == pytest.approx((joint, 6.0), abs=0.05)


def test_every_choice_and_all_three_are_compared_with_none_seed_by_seed(filled, found):
    gain = dict(zip(FIVE, (0.0, 1.0, 2.0, 3.0, 4.0), strict=True))
    finding = found(filled(TOGETHER, errors(gain), "small"), "each choice, and all three")
    effects = {verdict.contrast.a.row: round(verdict.comparison.effect, 1) for verdict in finding.verdicts}
    assert effects == {**dict(zip(SINGLE, (-1.0, -2.0, -3.0), strict=True)), ALL: -4.0}
    assert finding.outcome == "confirmed"


def test_an_interaction_is_the_gain_that_two_choices_share_averaged_over_the_third(filled):
    crelu, geometric, heavy_ball = SINGLE
    single = dict(zip(SINGLE, (1.0, 2.0, 4.0), strict=True))
    together = {NONE: (), ALL: tuple(SINGLE), **{row: (row,) for row in SINGLE}, **PAIRS}
    gain = {row: sum(single[name] for name in rows) for row, rows in together.items()}
    both, other = (
        next(row for row, pair in PAIRS.items() if pair == (crelu, third))
        for third in (geometric, heavy_ball)
    )
    gain[both] -= 0.5  # shared without heavy ball
    gain[ALL] -= 1.5  # and with it
    results = filled(TOGETHER, lambda row, column, place: 50.0 - gain[row] + place, "cpu")
    for pair, expected in ((both, 1.0), (other, 0.5)):  # of the other pair, half of the last shortfall
        quantity = interaction(pair)
        shared = quantity.function(*(results[cell] for cell in quantity.cells))
        assert list(shared) == pytest.approx([expected] * 4)


def test_no_interaction_is_claimed_at_a_scale_without_pairs_of_choices():
    (claim,) = [claim for claim in TOGETHER.claims if claim.where == "interactions"]
    for scale, answered in (("cpu", True), ("small", False)):
        cells = {(planned.row, planned.column) for planned in TOGETHER.plan(scale)}
        assert bool(claim.within(cells).contrasts) == answered
