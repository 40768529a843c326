"""The page on when to use what says of every claim what the ledger says."""

import re
from pathlib import Path

PAGE = (Path(__file__).parents[2] / "docs" / "choose.md").read_text()


def test_the_outcomes_are_those_of_the_ledger(ledger):
    quoted = re.findall(r"\*\(((?:crelu|gmp|structure|ours) .+?): ([a-z ]+)\)\*", PAGE)
    assert len(quoted) == PAGE.count("*(") > 15
    assert {where: ledger[where].finding.outcome for where, _ in quoted} == dict(quoted)


def test_what_makes_a_residual_network_worse_is_geometric_weights(ledger):
    """The outcome of this claim alone does not say which of the three choices it is."""
    verdicts = ledger["ours each choice, and all three"].finding.verdicts
    outcomes = {verdict.contrast.a.row: verdict.outcome for verdict in verdicts}
    assert outcomes["geometric weights, input mean norm"] == "reversed"
    assert outcomes["CReLU"] == outcomes["heavy ball"] == "no detectable difference"
