import re
from xml.etree import ElementTree

import forest as drawing


def test_a_forest_shows_every_comparison_of_a_claim_within_its_frame(ledger):
    finding = ledger["gmp Table 3, as published"].finding
    svg = drawing.forest("One claim", [("GmP has a lower error & more", finding)])
    root = ElementTree.fromstring(svg)
    titles = [element.text for element in root.iter() if element.tag.endswith("title")]
    assert titles == [str(verdict) for verdict in finding.verdicts]
    assert svg.count('class="published"') == len(finding.verdicts) + 1  # one of the legend
    assert max(float(x) for x in re.findall(r' x[12]="([\d.]+)"', svg)) <= drawing.WIDTH


def test_effects_are_shares_of_the_baseline_in_the_claimed_direction(ledger):
    finding = ledger["crelu Table 1, CIFAR-10"].finding
    (effect,), (verdict,) = drawing.effects(finding), finding.verdicts
    baseline = finding.results[verdict.contrast.b].mean()
    assert effect.size == -100 * verdict.comparison.effect / baseline
    assert effect.low < effect.size < effect.high < 0
    assert effect.published == -100 * verdict.published / baseline


def test_what_is_beyond_the_axis_is_an_arrow():
    assert drawing._x(1000, 300) == drawing.WIDTH - drawing.EDGE
    assert drawing._x(-1000, 300) == drawing.LEFT + drawing.EDGE
