from dataclasses import replace

from relucid.papers.gmp.table2 import STUDY as VGG6
from relucid.papers.gmp.table3 import UCI
from relucid.papers.highlights import highlights
from relucid.papers.structure.section7_2 import STUDY as DEEP
from relucid.papers.structure.table2 import STUDY as DEPTH
from relucid.papers.structure.table4 import CIFAR, DEEPER
from relucid.studies.compare import HOLDS, NONE

# Two findings are that a claim of structure holds, but not for its reason.
SUBJECT_TO_A_CAVEAT = (DEEP.claims[0], DEPTH.claims[0])


def test_the_findings_are_told_by_what_was_recorded(ledger):
    said = highlights(list(ledger.values()))
    caveats = sum(bool(entry.caveat) for entry in ledger.values() if entry.claim in SUBJECT_TO_A_CAVEAT)
    assert len(said) == 3 + caveats
    published = next(entry for entry in ledger.values() if entry.claim is UCI.claims[0])
    holding = sum(each.outcome == HOLDS for each in published.judged)
    assert f"{holding} of 18 comparisons" in said[0]


def test_momentum_is_said_to_help_only_against_both_resnets(ledger):
    entries = {entry.claim: entry for entry in ledger.values()}
    against_both = [entries[claim] for claim in DEEPER.claims[:2]]
    helps = all(each.outcome == HOLDS for entry in against_both for each in entry.judged)
    said = "".join(highlights(list(ledger.values())))
    assert ("which is due to momentum" in said) == helps
    if helps:
        gains = [-entry.judged[0].found.effect for entry in against_both]
        assert "{:.1f} points lower than ResNet's, and {:.1f} lower than".format(*gains) in said
    others = [entry for entry in ledger.values() if entry not in against_both]
    blank = [replace(against_both[0], judged=()), against_both[1]]
    assert "due to momentum" not in "".join(highlights(others + blank))


def test_nesterov_is_said_not_to_help_only_where_every_difference_would_have_been_found(ledger):
    dense = next(entry for entry in ledger.values() if entry.claim is CIFAR.claims[0])
    others = [entry for entry in ledger.values() if entry is not dense]
    (one,) = dense.judged

    def said(*outcomes):
        judged = [replace(one, outcome=outcome) for outcome in outcomes]
        return "AGD-Net minus DenseNet is" in "".join(highlights([*others, replace(dense, judged=judged)]))

    assert said(NONE)
    assert said(NONE, NONE)  # at full scale, where images are augmented, too
    assert not said(NONE, HOLDS)
    assert not said()


def test_on_images_gmp_is_said_to_be_ahead_of_standard_weights_only_where_it_is(ledger):
    images = next(entry for entry in ledger.values() if entry.claim is VGG6.claims[0])
    others = [entry for entry in ledger.values() if entry is not images]
    by_row = {row: [each for each in images.judged if each.expected.b.row == row] for row in ("SP", "BN")}

    def said(standard, batch_norm):
        judged = [replace(each, outcome=standard) for each in by_row["SP"]]
        judged += [replace(each, outcome=batch_norm) for each in by_row["BN"]]
        return "On images, GmP with input mean norm is ahead" in "".join(
            highlights([*others, replace(images, judged=judged)])
        )

    assert said(HOLDS, NONE)
    assert not said(HOLDS, HOLDS)
    assert not said(NONE, NONE)


def test_what_was_not_recorded_is_not_told(ledger):
    blank = [replace(entry, judged=(), caveat="", table=None) for entry in ledger.values()]
    assert len(highlights(blank)) == 1  # a theorem is false whether or not anything was run
