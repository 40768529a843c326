"""What a reader should take away first: the claims and the findings of the front page."""

from collections.abc import Mapping, Sequence

from evidence.front import Headline
from relucid.studies.compare import HOLDS, NO_DIFFERENCE, REVERSED, UNDECIDED
from relucid.studies.expect import Place
from relucid.studies.ledger import Entry

HEADLINES = (
    Headline("crelu", "Table 1, CIFAR-10", "CReLU with half the filters errs less than ReLU", "points"),
    Headline(
        "crelu",
        "Table 1, CIFAR-10, whole batches",
        "The same, where both networks fit their images",
        "points",
    ),
    Headline("crelu", "Tables 2, 3, CIFAR-10", "CReLU after two layers of a VGG lowers its error", "points"),
    Headline(
        "crelu",
        "Fig. 2, aligned control",
        "Filters come in opposite pairs rather than aligned ones",
        "cosine",
    ),
    Headline(
        "gmp", "Table 3, as published", "GmP errs least on six tables, stopped by the test error", "RMSE"
    ),
    Headline("gmp", "Table 3, held out", "GmP errs least, stopped and tuned by validation data", "RMSE"),
    Headline(
        "gmp",
        "Table 2, against BN at 4B",
        "GmP+IMN is more accurate than batch norm, at the largest batch",
        "points",
    ),
    Headline("structure", "Table 4, CIFAR-10, HB-Net, n = 18", "HB-Net errs less than ResNet", "points"),
    Headline(
        "structure",
        "Table 4, momentum at equal rates",
        "HB-Net errs less than without momentum, at the same rate",
        "points",
    ),
    Headline("structure", "Table 4, CIFAR-10, AGD-Net, L = 40", "AGD-Net errs less than DenseNet", "points"),
    Headline(
        "structure",
        "Section 7.2, control",
        "With momentum, 110 layers begin to learn more often than without",
        "points",
    ),
    Headline(
        "structure",
        "Table 2, a task that can be learned",
        "Networks of faster algorithms fit a learnable task better",
        "MSE",
    ),
    Headline(
        "ours",
        "CReLU and ReLU, digits",
        "CReLU, half the units, learns late tasks better than ReLU",
        "points",
    ),
    Headline("ours", "mend", "to_crelu mends a network that stopped learning", "points"),
    Headline("ours", "each choice, and all three", "CReLU, GmP or heavy ball improve a ResNet", "points"),
)
NOTES = (
    "CIFAR-10 is a copy re-encoded as JPEG here, and no network has been trained at the papers' scale on images.",
    "The rule of judgement was set on 2026-11-17, after most of these runs.",
)
WORDS = 20  # at most, in a finding


def highlights(entries: Sequence[Entry]) -> list[str]:
    """At most five sentences; one that the recorded results do not support is left out."""
    known = {(entry.paper, entry.claim.where): entry for entry in entries}
    findings = (_validation, _norms, _half, _momentum, _pairs)
    return [sentence for finding in findings if (sentence := finding(known))]


Known = Mapping[tuple[str, str], Entry]
# How structure/momentum may end; written before any of it was known.
CAUSE: Mapping[str, str] = {
    HOLDS: "at equal rates, momentum lowers the error",
    REVERSED: "at equal rates, momentum raises the error",
    NO_DIFFERENCE: "at equal rates, momentum makes no clear difference",
    UNDECIDED: "momentum at equal rates helps {}, harms {} of {}",
}
OPEN = "whether momentum is the cause is open"


def _holding(entry: Entry) -> int:
    return sum(each.outcome == HOLDS for each in entry.judged)


def _validation(known: Known) -> str:
    published, held_out = known["gmp", "Table 3, as published"], known["gmp", "Table 3, held out"]
    if not published.judged or _holding(held_out) >= _holding(published):
        return ""
    return (
        f"GmP leads in {_holding(published)} of {len(published.judged)} UCI comparisons as published, in "
        f"{_holding(held_out)} once validation data choose rates and stop training."
    )


def _norms(known: Known) -> str:
    judged = known["gmp", "Table 2"].judged
    by_row = {
        row: [each for each in judged if isinstance(each.expected.b, Place) and each.expected.b.row == row]
        for row in ("SP", "BN")
    }
    if not by_row["SP"] or any(each.outcome != HOLDS for each in by_row["SP"]):
        return ""
    if any(each.outcome == HOLDS for each in by_row["BN"]):
        return ""
    lead = "On small images, GmP with input mean norm beats a network without norms"
    larger = known["gmp", "Table 2, against BN at 4B"].state == HOLDS
    return f"{lead}, {'batch norm only at the largest batch' if larger else 'but not batch norm'}."


def _half(known: Known) -> str:
    entry = known["crelu", "Table 1, CIFAR-10"]
    if entry.state != REVERSED or len(entry.judged) != 1 or entry.judged[0].found is None:
        return ""
    more = f"CReLU with half the filters errs {entry.judged[0].found.effect:.1f} points more than ReLU"
    fitted = known["crelu", "Table 1, CIFAR-10, whole batches"]
    if fitted.state not in (HOLDS, REVERSED) or fitted.judged[0].found is None:
        return f"{more}, in networks that underfit."
    effect = fitted.judged[0].found.effect
    return f"{more} where networks underfit, {abs(effect):.1f} {'less' if effect < 0 else 'more'} where both fit."


def _momentum(known: Known) -> str:
    entry, equal = (
        known["structure", f"Table 4, {where}"]
        for where in ("CIFAR-10, HB-Net, n = 18", "momentum at equal rates")
    )
    if entry.state != HOLDS or entry.judged[0].found is None:
        return ""
    helps, harms = (sum(each.outcome == which for each in equal.judged) for which in (HOLDS, REVERSED))
    known_cause = helps or harms or equal.state == NO_DIFFERENCE
    cause = CAUSE[equal.state].format(helps, harms, len(equal.judged)) if known_cause else OPEN
    return (
        f"HB-Net errs {-entry.judged[0].found.effect:.1f} points less than ResNet, with 20 layers; {cause}."
    )


def _pairs(known: Known) -> str:
    entry = known["crelu", "Fig. 2, aligned control"]
    if entry.state != REVERSED:
        return ""
    opposite = sum(each.outcome == REVERSED for each in entry.judged)
    return (
        f"In {opposite} of {len(entry.judged)} layers of a trained network, filters are nearer to aligned than to "
        "opposite ones."
    )
