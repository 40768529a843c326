"""The findings that matter, in sentences made from the ledger: what a reader should take away first."""

from collections.abc import Callable, Sequence

from relucid.papers.crelu.fig1 import STUDIES as PUBLISHED_WEIGHTS
from relucid.papers.crelu.statements import STATEMENTS as CRELU
from relucid.papers.gmp.table3 import UCI
from relucid.papers.structure.section7_2 import STUDY as DEEP
from relucid.papers.structure.table2 import STUDY as DEPTH
from relucid.papers.structure.table4 import CIFAR, DEEPER
from relucid.studies.compare import HOLDS, UNTOLD
from relucid.studies.expect import Claim
from relucid.studies.ledger import Entry

Find = Callable[[Claim], Entry]


def highlights(entries: Sequence[Entry]) -> list[str]:
    """At most five sentences; one whose results are not recorded is left out."""
    by_claim = {id(entry.claim): entry for entry in entries}

    def find(claim: Claim) -> Entry:
        return by_claim[id(claim)]

    said = (
        _chosen_on_test_data(find),
        _pairs(find),
        _missing_relu(find),
        _constant(find),
        _false_theorem(find),
    )
    return [sentence for sentence in said if sentence]


def _holding(entry: Entry) -> str:
    return f"{sum(each.outcome == HOLDS for each in entry.judged)} of {len(entry.judged)}"


def _chosen_on_test_data(find: Find) -> str:
    published, held_out = (find(claim) for claim in UCI.claims)
    if not published.judged or not held_out.judged:
        return ""
    return (
        "GmP's lead on the UCI sets is mostly that of weights and rates chosen on test data: as published it is ahead "
        f"beyond chance in {_holding(published)} comparisons, with validation data in {_holding(held_out)}."
    )


def _pairs(find: Find) -> str:
    entry = find(PUBLISHED_WEIGHTS[0].claims[0])
    if not entry.judged:
        return ""
    return (
        "Filters of trained ReLU networks do come in opposite pairs: in published weights they are more opposite than "
        f"random filters in {_holding(entry)} layers."
    )


def _missing_relu(find: Find) -> str:
    entry = find(DEEP.claims[0])
    if not entry.caveat:
        return ""
    return (
        "Very deep HB-Nets train where ResNets do not, but momentum is not the cause: ResNets without ReLU after the "
        f"sum train as well.{_momentum_helps(find)}"
    )


def _momentum_helps(find: Find) -> str:
    """A sentence on HB-Net at a depth at which all networks train, if it errs less than both of the others."""
    residual, control, _ = (find(claim).judged for claim in DEEPER.claims)
    gains = [-each.found.effect for each in (*residual, *control) if each.found and each.outcome == HOLDS]
    if len(gains) != 2:
        return ""
    return (
        f" Where all of them train, momentum does lower the error: by {gains[0]:.1f} points against ResNet, and by "
        f"{gains[1]:.1f} against ResNet without that ReLU.{_nesterov_does_not(find)}"
    )


def _nesterov_does_not(find: Find) -> str:
    """A sentence on AGD-Net, if a difference of the published size from DenseNet would have been found and was not."""
    judged = find(CIFAR.claims[0]).judged
    apart = [abs(each.found.effect) for each in judged if each.found and each.outcome == UNTOLD]
    if not apart or len(apart) < len(judged):
        return ""
    return f" Nesterov's method does not: AGD-Net and DenseNet differ by {max(apart):.1f} points."


def _constant(find: Find) -> str:
    entry = find(DEPTH.claims[0])
    if not entry.caveat:
        return ""
    return (
        "The order of algorithms in Table 2 of structure, at the depths it is claimed for, is one of networks that "
        "have learned a constant and nothing else."
    )


def _false_theorem(find: Find) -> str:
    entry = find(next(claim for claim in CRELU if "4.1" in claim.where))
    return (
        ""
        if entry.claim.holds
        else "Theorem 4.1 of crelu is false as stated: two inputs and one weight refute it."
    )
