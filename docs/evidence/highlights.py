"""What a reader should take away first: the claims and the findings of the front page."""

from collections.abc import Mapping, Sequence

from evidence.front import Headline
from relucid.studies.compare import HOLDS, REVERSED
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
        "Filters of DeepSea come in opposite pairs rather than aligned ones",
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
    entry, again, equal = (
        known["structure", f"Table 4, {where}"]
        for where in ("CIFAR-10, HB-Net, n = 18", "HB-Net on new seeds", "momentum at equal rates")
    )
    if entry.state != HOLDS or again.state != HOLDS:
        return ""
    first, second = (-each.judged[0].found.effect for each in (entry, again) if each.judged[0].found)
    verbs = {HOLDS: "lowers", REVERSED: "raises"}
    cause = f"at equal rates, momentum {verbs[equal.state]} the error" if equal.state in verbs else OPEN
    return f"HB-Net-20 errs {first:.1f} points less than ResNet-20 ({second:.1f} on new seeds); {cause}."


def _pairs(known: Known) -> str:
    entry, random = (known["crelu", f"Fig. 2, {which}"] for which in ("aligned control", "published weights"))
    if {each.outcome for each in entry.judged} != {REVERSED} or random.state != HOLDS:
        return ""
    return (
        f"Published filters are more opposite than random in {_holding(random)} of {len(random.judged)} layers; in "
        f"DeepSea's {len(entry.judged)}, still more aligned than opposite."
    )
