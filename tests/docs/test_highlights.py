"""What the front page says, and only while the recorded results say it."""

from dataclasses import replace

import pytest
from evidence.highlights import HEADLINES, NOTES, WORDS, highlights

from relucid.studies.compare import HOLDS, NO_DIFFERENCE, NO_EFFECT, REVERSED, UNDECIDED, compare
from relucid.studies.judge import Judged
from relucid.studies.ledger import state


@pytest.fixture(scope="module")
def entries(ledger):
    return list(ledger.values())


def sentences_with(ledger, name, outcomes, row=None):
    """The findings if the comparisons of a claim had other outcomes."""
    entry = ledger[name]
    judged = [
        replace(each, outcome=outcomes(each) or each.outcome)
        if row is None or each.expected.b.row == row
        else each
        for each in entry.judged
    ]
    changed = replace(entry, judged=judged, state=judged[0].outcome)
    return " ".join(highlights([changed if each is entry else each for each in ledger.values()]))


def test_there_are_at_most_five_findings_of_at_most_twenty_words(entries):
    found = highlights(entries)
    assert 3 <= len(found) <= 5
    assert max(len(sentence.split()) for sentence in found) <= WORDS


def test_the_main_claims_have_a_headline_and_all_of_them_are_experiments(ledger):
    assert 11 <= len(HEADLINES) <= 15
    assert all(f"{each.paper} {each.where}" in ledger for each in HEADLINES)
    assert {ledger[f"{each.paper} {each.where}"].kind for each in HEADLINES} == {"experiment"}


def test_the_copy_of_cifar_10_and_the_date_of_the_rule_are_on_the_front_page():
    assert "JPEG" in NOTES[0]
    assert "The rule of judgement was set on 2026-11-17, after most of these runs." in NOTES


def test_the_lead_on_tables_is_counted(ledger, entries):
    published, held_out = (
        sum(each.outcome == HOLDS for each in ledger[f"gmp Table 3, {protocol}"].judged)
        for protocol in ("as published", "held out")
    )
    assert f"in {published} of 18 UCI comparisons as published, in {held_out} once" in highlights(entries)[0]


@pytest.mark.parametrize(
    "row, outcome, expected", [("BN", HOLDS, False), ("SP", NO_EFFECT, False), ("BN", REVERSED, True)]
)
def test_gmp_is_ahead_of_no_norm_and_not_of_batch_norm_only_where_results_show_it(
    ledger, row, outcome, expected
):
    text = sentences_with(ledger, "gmp Table 2", lambda each: outcome, row)
    assert ("beats a network without norms, but not batch norm" in text) == expected


def test_at_the_largest_batch_gmp_is_ahead_of_batch_norm_only_where_new_seeds_show_it(ledger, entries):
    name = "gmp Table 2, against BN at 4B"
    changed = replace(ledger[name], state=HOLDS)
    found = " ".join(highlights([changed if each is ledger[name] else each for each in entries]))
    assert "beats a network without norms, batch norm only at the largest batch." in found


@pytest.mark.parametrize(
    "name, words",
    [
        ("crelu Table 1, CIFAR-10", "CReLU with half the filters errs"),
        ("structure Table 4, CIFAR-10, HB-Net, n = 18", "HB-Net-20 errs"),
        ("crelu Fig. 2, aligned control", "still more aligned"),
    ],
)
def test_a_finding_goes_when_its_claim_is_undecided(ledger, entries, name, words):
    assert words in " ".join(highlights(entries))
    assert words not in sentences_with(ledger, name, lambda each: UNDECIDED)


@pytest.mark.parametrize(
    "outcomes, words",
    [
        ((HOLDS, HOLDS), "momentum lowers the error"),
        ((REVERSED, REVERSED), "momentum raises the error"),
        ((NO_DIFFERENCE, UNDECIDED), "whether momentum is the cause is open"),
        ((), "whether momentum is the cause is open"),
    ],
)
def test_whether_momentum_is_the_cause_is_what_equal_rates_show(ledger, outcomes, words):
    entry = ledger["structure Table 4, momentum at equal rates"]
    compared = entry.claim.comparisons()[: len(outcomes)]
    judged = [Judged(each, None, outcome) for each, outcome in zip(compared, outcomes, strict=True)]
    changed = replace(entry, judged=judged, state=state(judged))
    (found,) = (
        sentence
        for sentence in highlights([changed if each is entry else each for each in ledger.values()])
        if "HB-Net" in sentence
    )
    assert found.endswith(f"{words}.")
    assert len(found.split()) <= WORDS


@pytest.mark.parametrize(
    "effect, words",
    [
        (-3.14, "points more than ReLU where networks underfit, 3.1 less where both fit."),
        (2.5, "points more than ReLU where networks underfit, 2.5 more where both fit."),
        (None, "points more than ReLU, in networks that underfit."),
    ],
)
def test_what_crelu_does_in_networks_that_fit_is_what_whole_batches_show(ledger, effect, words):
    entry = ledger["crelu Table 1, CIFAR-10, whole batches"]
    found = None if effect is None else compare([effect - 0.1, effect, effect + 0.1], 0.0)
    judged = [Judged(each, found, UNDECIDED).at(0.05) for each in entry.claim.comparisons()]
    changed = replace(entry, judged=judged, state=state(judged))
    (sentence,) = (
        sentence
        for sentence in highlights([changed if each is entry else each for each in ledger.values()])
        if "half the filters" in sentence
    )
    assert sentence.endswith(words)
    assert len(sentence.split()) <= WORDS


def test_what_was_not_recorded_is_not_a_finding(entries):
    assert highlights([replace(entry, judged=(), table=None, state="not run") for entry in entries]) == []
