"""The findings that matter, in sentences made from the ledger: what a reader should take away first."""

from collections.abc import Callable, Sequence

from relucid.papers.crelu.fig1 import STUDIES as PUBLISHED_WEIGHTS
from relucid.papers.crelu.statements import STATEMENTS as CRELU
from relucid.papers.gmp.rates import STUDY as RATES
from relucid.papers.gmp.table2 import STUDY as VGG6
from relucid.papers.gmp.table3 import UCI
from relucid.papers.structure.section7_2 import STUDY as DEEP
from relucid.papers.structure.section7_2 import trained
from relucid.papers.structure.table2 import STUDY as DEPTH
from relucid.papers.structure.table4 import CIFAR, DEEPER
from relucid.studies.compare import HOLDS, NONE
from relucid.studies.expect import Claim, Place
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
    stopped = find(RATES.claims[-1])
    if not published.judged or not held_out.judged:
        return ""
    only = f"in {_holding(stopped)} if validation data stop it, and " if stopped.judged else ""
    return (
        "GmP's lead on the UCI sets nearly vanishes once every method's rate is chosen on validation data: over random "
        "splits of these sets, it is ahead beyond chance as published, with training stopped by the test error, in "
        f"{_holding(published)} comparisons; {only}in {_holding(held_out)} if they stop it and choose the rates."
        f"{_on_images(find)}"
    )


def _on_images(find: Find) -> str:
    """A sentence on GmP's lead on images, if it is ahead of a network without norms and not of batch norm."""
    entry = find(VGG6.claims[0])
    standard, batch_norm = (
        [each for each in entry.judged if isinstance(each.expected.b, Place) and each.expected.b.row == row]
        for row in ("SP", "BN")
    )
    leads = [each.found.effect for each in standard if each.found and each.outcome == HOLDS]
    if not leads or len(leads) < len(standard) or any(each.outcome == HOLDS for each in batch_norm):
        return ""
    return (
        f" On images, GmP with input mean norm is ahead of a network without norms, by {min(leads):.1f} to "
        f"{max(leads):.1f} points, but not of batch norm{_small(entry)}."
    )


def _pairs(find: Find) -> str:
    entry = find(PUBLISHED_WEIGHTS[1].claims[0])
    if not entry.judged or entry.table is None:
        return ""
    shares = [
        mean
        for row in entry.table.study.rows
        if (mean := entry.table.cells[row, "paired %"].mean) is not None
    ]
    return (
        "Filters of networks that others have trained are more opposite than random ones, in "
        f"{_holding(entry)} layers, but pairs proper are rare: {min(shares):.0f} to {max(shares):.0f}% of the "
        "filters of a layer."
    )


def _missing_relu(find: Find) -> str:
    entry = find(DEEP.claims[0])
    if entry.table is None:
        return ""
    return (
        "Very deep HB-Nets begin to learn where ResNets do not, and most of that is the missing ReLU after the sum: "
        f"without it ResNets learn, too ({trained(entry.table)}{_small(entry)}).{_momentum_helps(find)}"
    )


def _momentum_helps(find: Find) -> str:
    """A sentence on HB-Net at a depth at which all networks train, if its error is lower than those of both others."""
    residual, control, _ = (find(claim).judged for claim in DEEPER.claims)
    gains = [-each.found.effect for each in (*residual, *control) if each.found and each.outcome == HOLDS]
    if len(gains) != 2:
        return ""
    return (
        f" Where all of them learn, HB-Net's error is {gains[0]:.1f} points lower than ResNet's, and {gains[1]:.1f} "
        f"lower than that of ResNet without that ReLU, which is due to momentum{_small(find(DEEPER.claims[0]))}."
        f"{_nesterov_does_not(find)}"
    )


def _nesterov_does_not(find: Find) -> str:
    """A sentence on AGD-Net, if a difference of the published size from DenseNet would have been found and was not."""
    entry = find(CIFAR.claims[0])
    judged = entry.judged
    apart = [each.found.interval for each in judged if each.found and each.outcome == NONE]
    if not apart or len(apart) < len(judged):
        return ""
    found = " and ".join(apart)
    return f" For Nesterov's method none was found: AGD-Net minus DenseNet is {found} points{_small(entry)}."


def _small(entry: Entry) -> str:
    """A reminder of the scale, if it is not the paper's."""
    return "" if entry.table is None or entry.table.scale == "full" else f", at {entry.table.scale} scale"


def _constant(find: Find) -> str:
    entry = find(DEPTH.claims[0])
    if entry.table is None:
        return ""
    return (
        "The order of algorithms in Table 2 of structure, at the depths it is claimed for, ranks networks that have "
        f"learned nothing but a constant{_small(entry)}."
    )


def _false_theorem(find: Find) -> str:
    entry = find(next(claim for claim in CRELU if "4.1" in claim.where))
    return (
        ""
        if entry.claim.holds
        else "Theorem 4.1 of crelu is false as stated: two inputs and one weight refute it."
    )
