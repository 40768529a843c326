"""How the claims stand on the recorded results, where an earlier ledger had them wrong."""

import json
from types import SimpleNamespace

import pytest

from relucid.papers import find
from relucid.papers.crelu import theorem_c1
from relucid.papers.ours import together
from relucid.studies import Table
from relucid.studies.compare import HOLDS, NO_DIFFERENCE, REVERSED, UNDECIDED
from relucid.studies.expect import Place


def test_together_gains_add_up_where_the_whole_interval_is_within_the_margin(ledger):
    entry = ledger["ours gains add up"]
    (judged,) = entry.judged
    assert (entry.state == HOLDS) == (judged.found.high < judged.expected.margin)
    cells = entry.table.cells
    none, *singles, joint = (
        cells[row, together.ERROR].mean for row in (together.NONE, *together.SINGLE, together.ALL)
    )
    total = sum(none - error for error in singles)
    assert (
        entry.remark == f"The joint gain is {none - joint:.2f} points, the single ones add up to {total:.2f}."
    )


class Tried:
    """A table of one row."""

    study = SimpleNamespace(rows={"a": {}})

    def __init__(self, *runs):
        self.runs = [
            {"config": {"lr": lr}, "metrics": {"val_error": held, "error": test}} for lr, held, test in runs
        ]

    def finished(self):
        return self.runs


def test_together_lists_the_errors_at_every_rate_if_there_were_several():
    tried = Tried((0.1, 20, 21), (0.03, 30, 31), (0.1, 22, 25))
    assert together.rates(tried) == (
        "Held-out and test error at each rate: a (0.03: 30.00 / 31.00, 0.1: 21.00 / 23.00)."
    )
    assert together.rates(Tried((0.1, 20, 21), (0.1, 22, 25))) == ""


def test_what_the_readme_claims_about_cifar_10(ledger):
    residual = ledger["structure Table 4, CIFAR-10, HB-Net, n = 18"]
    assert residual.state == HOLDS
    assert "20 layers instead of 110" in " ".join(each.text for each in residual.caveats)
    standard = [each for each in ledger["gmp Table 2"].judged if each.expected.b.row == "SP"]
    assert {each.outcome for each in standard} == {HOLDS}
    assert ledger["crelu Table 1, CIFAR-10, half the parameters"].state == REVERSED
    each_choice = ledger["ours each choice, and all three"].judged
    assert len(each_choice) == 4
    assert HOLDS not in {each.outcome for each in each_choice}


def test_theorem_c1_is_judged_on_random_projections(ledger):
    entry = ledger["crelu Theorem C.1"]
    assert {each.expected.a.column for each in entry.judged} == {theorem_c1.PROJECTED}
    assert all(each.found.error > 0 for each in entry.judged)  # a closed form against itself has no error
    assert (entry.state, entry.kind) == ("true", "mathematics")


def test_table_6_compares_phases_of_the_same_unit_with_those_of_different_ones(ledger):
    entry = ledger["crelu Table 6"]
    assert len(entry.judged) == 7 * len(entry.table.study.rows)
    assert {each.expected.b for each in entry.judged} == {0.0}
    assert "Almost any weights would pass." in ledger["crelu Table 6, below 1"].claim.note


def test_table_5_is_two_claims_of_which_the_errors_were_never_run(ledger):
    assert ledger["crelu Table 5"].outcome == "true (3 of 3 hold)"  # the fourth count is the reading's own
    assert ledger["crelu Table 5, errors"].state == "needs a GPU"


def test_no_count_of_table_1_is_ours(ledger):
    assert ledger["crelu Table 1, parameters"].outcome == "false as stated (5 of 5 the opposite)"


def interval(entry, place=0):
    found = entry.judged[place].found
    return [round(value, 3) for value in (found.effect, found.low, found.high)]


@pytest.mark.parametrize(
    "where, state, effects",
    [
        ("crelu Fig. 3", HOLDS, [[-0.171, -0.211, -0.132], [-0.132, -0.235, -0.029]]),
        ("crelu Table 1, CIFAR-10, gap", UNDECIDED, [[1.029, 0.470, 1.588], [-0.781, -1.645, 0.082]]),
        ("crelu Table 1, CIFAR-10, double", REVERSED, [[1.412, 0.852, 1.972]]),
    ],
)
def test_four_networks_are_compared_at_the_scale_that_has_them(ledger, where, state, effects):
    entry = ledger[where]
    assert (entry.state, entry.table.scale) == (state, "cpu-four")
    assert [interval(entry, place) for place in range(len(entry.judged))] == effects


def test_what_is_missing_from_the_papers_tables_is_a_claim_now_and_says_when_it_was_stated(ledger):
    added = {name: entry for name, entry in ledger.items() if entry.claim.stated}
    later = {name for name, entry in added.items() if entry.claim.stated != "2026-11-17"}
    assert later == {
        f"structure Table 4, {what}" for what in ("divergence without momentum", "HB-Net on new seeds")
    }
    assert {
        "crelu Table 1, CIFAR-10, double", "crelu Table 1, CIFAR-10, AVR", "crelu Table 4, single crop",
        "crelu Table 4, ten crops", "crelu Fig. 4, pooling", "crelu Fig. 4, not monotone",
        "crelu Fig. 4, ImageNet, peaks", "crelu Section 2.1, over depth", "crelu Fig. 3, like random filters",
        "crelu Fig. 2, aligned control", "gmp Table 2, batch sizes", "gmp Table 2, top-5",
        "gmp Fig. 4, within 25 epochs", "structure Table 2, depth", "structure Table 4, HB-Net, n = 9 and 18",
    } <= added.keys()  # fmt: skip
    new_runs = "crelu Table 1, CIFAR-10, double"  # at a scale that was run later
    for name, entry in added.items():
        if entry.judged:
            assert ("post hoc" in [each.word for each in entry.caveats]) == (name != new_runs)


def test_the_gain_of_gmp_grows_with_the_batch_size_against_sp_only(ledger):
    standard, batch_norm = ledger["gmp Table 2, batch sizes"].judged
    assert (standard.outcome, batch_norm.outcome) == (HOLDS, NO_DIFFERENCE)
    assert standard.found.effect == pytest.approx(5.57, abs=0.005)


def test_agd2_fits_worse_with_more_layers(ledger):
    entry = ledger["structure Table 2, depth"]
    assert entry.state == REVERSED


def test_in_every_layer_of_deepsea_the_most_aligned_filter_is_nearer_than_the_most_opposite_one(ledger):
    assert ledger["crelu Fig. 2, aligned control"].outcome == "the opposite holds (10 of 10 the opposite)"


def test_the_paper_s_own_figures_have_the_sign_of_every_claim(ledger):
    for name, entry in ledger.items():
        if entry.study is None:
            continue
        for each in entry.claim.comparisons():
            if (
                isinstance(each.a, Place)
                and isinstance(each.b, Place)
                and each.relation in ("lower", "higher")
            ):
                a, b = (
                    figure[0] if isinstance(figure, tuple) else figure
                    for place in (each.a, each.b)
                    for figure in [entry.study.published.get(place.row, {}).get(place.column)]
                )
                if a is not None and b is not None:
                    assert (a > b) == (each.relation == "higher"), (name, each.label)


@pytest.mark.parametrize("where", ["Tables 2, 3, CIFAR-10", "Fig. 4"])
def test_vgg_and_invariance_hold_or_not_beyond_chance_only_and_at_a_scale_that_is_named(ledger, where):
    entry = ledger[f"crelu {where}"]
    assert entry.outcome.endswith(f"{entry.table.scale} scale")
    for each in entry.judged:
        assert (each.outcome in (HOLDS, REVERSED)) == (not each.found.low <= 0 <= each.found.high)


def test_the_note_on_table_3_states_that_it_adds_no_experiment(ledger):
    assert "it adds no experiment" in ledger["crelu Tables 2, 3, CIFAR-10"].claim.note


def test_corollary_b3_is_refuted_by_a_test(ledger):
    entry = ledger["crelu Lemma B.1, Proposition B.2, Corollary B.3"]
    assert entry.state == "false as stated"
    assert "R(ReLU o F) = 7/6" in entry.claim.erratum


@pytest.fixture(scope="module")
def first_ten(request):
    """gmp/uci with the ten splits of the paper only."""
    path = request.config.rootpath / "results" / "gmp-uci-full.json"
    recorded = json.loads(path.read_text())
    runs = [run for run in recorded["runs"] if run["config"]["first"] == 0]
    return Table.from_dict(find("gmp/uci"), {**recorded, "runs": runs})


@pytest.mark.parametrize("protocol, single, adjusted", [("as published", 11, 7), ("held out", 4, 1)])
def test_gmp_table_3_is_compared_split_by_split_and_either_protocol_is_a_claim(
    first_ten, protocol, single, adjusted
):
    judged = first_ten.judged[f"Table 3, {protocol}"]
    assert len(judged) == 18
    assert {each.found.n for each in judged} == {10}  # pairs
    assert sum(each.found.p < 0.05 and each.found.effect < 0 for each in judged) == single
    assert sum(each.outcome == HOLDS for each in judged) == adjusted


def test_gmp_table_2_does_not_hide_that_batch_norm_is_ahead(ledger):
    entry = ledger["gmp Table 2"]
    against = [each.found.effect for each in entry.judged if each.expected.b.row == "BN"]
    assert len(against) == 2  # batch sizes at cpu scale
    assert max(against) < 0
    assert entry.state != HOLDS


def test_gmp_fig_4_is_judged_by_the_course_of_training_at_equal_epochs(ledger):
    judged = ledger["gmp Fig. 4"].judged
    assert [each.expected.a.label for each in judged] == [
        f"GmP+IMN minus {row}, mean top-5 accuracy over equal epochs" for row in ("SP", "BN")
    ]


@pytest.mark.parametrize("figure, equal", [("Fig. 2", HOLDS), ("Fig. 3", NO_DIFFERENCE)])
def test_steps_follow_by_construction_and_generalisation_is_judged_by_fifty_repetitions(
    ledger, figure, equal
):
    assert (ledger[f"gmp {figure}"].state, ledger[f"gmp {figure}"].kind) == ("true", "construction")
    entry = ledger[f"gmp {figure}, generalisation"]
    assert entry.outcome == "holds (3 of 3 hold)"
    assert {each.found.n for each in entry.judged} == {50}
    assert ledger[f"gmp {figure}, generalisation at equal rates"].state == equal


def test_bad_scales_cost_gmp_more_than_batch_norm_in_deep_networks(ledger):
    entry = ledger["gmp Section 4.3, badly scaled"]
    against = {each.expected.a.label: each for each in entry.judged if each.expected.b.label.startswith("BN")}
    deep = [against[f"GmP, cost of bad scale, depth {depth}"] for depth in (3, 4, 5)]
    assert {each.outcome for each in deep} == {REVERSED}


def test_the_range_of_good_rates_has_an_interval(ledger):
    entry = ledger["gmp Abstract, range of learning rates"]
    assert all(each.found.low < each.found.effect < each.found.high for each in entry.judged)
    assert entry.state == NO_DIFFERENCE  # if anything, GmP's range is narrower than SP's


def test_nothing_is_expected_of_hb_net_where_the_paper_s_own_figures_are_the_other_way_round(ledger):
    assert "structure Table 4, CIFAR-10, HB-Net, n = 9" not in ledger
    assert "structure Table 4, CIFAR-10, HB-Net, n = 18" in ledger


def test_section_7_2_counts_the_control_without_momentum_too(ledger):
    entry = ledger["structure Section 7.2"]
    assert entry.state == HOLDS
    assert "ResNet-110 without ReLU after the sum" in entry.remark


def test_section_5_1_is_judged_by_slopes(ledger):
    entry = ledger["structure Section 5.1"]
    assert entry.outcome == "false as stated (3 of 4 hold, 1 the opposite)"
    slopes = {each.expected.a.label: each for each in entry.judged}
    theta = slopes["AGD (12), theta_k: power of kappa"]
    assert theta.outcome == REVERSED
    assert theta.found.effect + theta.expected.b == pytest.approx(0.82, abs=0.005)


def test_structure_table_2_says_that_deep_networks_fit_a_constant(ledger):
    entry = ledger["structure Eq. 15, Table 2"]
    assert entry.remark.startswith("At depth 20, 30, 40 no network has learned more than a constant.")


def test_a_converted_network_is_not_always_better_than_a_new_one_of_its_size(ledger):
    small, large = (each.outcome for each in ledger["ours mend: against a new CReLU network"].judged)
    assert (small, large) == (HOLDS, REVERSED)


def test_all_three_interactions_are_within_the_margin_which_needs_no_correction(ledger):
    entry = ledger["ours interactions"]
    assert entry.state == HOLDS
    assert {each.found.level for each in entry.judged} == {0.05}
    assert max(each.found.high for each in entry.judged) < together.MARGIN


def test_merging_is_compared_with_pruning_of_the_same_kind(ledger):
    entry = ledger["ours merging opposite filters"]
    assert len(entry.judged) == 4
    assert {each.found.level for each in entry.judged} == {0.05 / 4}  # four comparisons are four chances
    kinds = {(each.expected.a.row, each.expected.b.row) for each in entry.judged}
    assert kinds == {("merge", "pruning"), ("merge, refitted", "pruning, refitted")}


def test_momentum_makes_more_networks_of_110_layers_begin_to_learn_and_sooner(ledger):
    for where, effect in (("", [27.5, 13.1, 42.8]), (", steps", [-98.5, -148.0, -49.0])):
        entry = ledger[f"structure Section 7.2, control{where}"]
        assert (entry.state, entry.table.scale) == (HOLDS, "small-40")
        found = entry.judged[0].found
        assert [found.effect, found.low, found.high] == pytest.approx(effect, abs=0.5)


def test_agd_overfits_a_task_that_can_be_learned(ledger):
    fits, new = (
        ledger[f"structure Table 2, a task that can be learned{rest}"] for rest in ("", ", new data")
    )
    assert REVERSED not in {each.outcome for each in fits.judged}
    against = {each.expected.label: each.outcome for each in new.judged}
    assert against["AGD (12) minus HB (11), depth 30, new data"] == REVERSED
