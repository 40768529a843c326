"""What is generated from results/ is what the files in docs say, and nothing is left over."""

import re
from pathlib import Path

import converted
import pages as generated
import pytest
import typer

from relucid.cli.app import app
from relucid.experiments._judge import number

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
OUTCOMES = r"\b(confirmed|reversed|absent|inconclusive|no detectable difference)\b"
EXPRESSIONS = re.compile(r"\{\{.*?\}\}|\{%.*?%\}|\{#.*?#\}", re.DOTALL)


@pytest.fixture(scope="module")
def site(records):
    return generated.Site(records)


@pytest.fixture(scope="module")
def written(site):
    return site.pages()


def test_pages_and_the_figure_say_what_records_and_claims_say(written, site):
    assert {"claims.md", "results.md", "images/results.svg"} < written.keys()
    old = [name for name, text in written.items() if (DOCS / name).read_text(encoding="utf-8") != text]
    assert old == [], "run make pages"


def test_the_page_of_networks_says_what_benchmarks_measured():
    assert (DOCS / "conversions" / "networks.md").read_text(encoding="utf-8") == converted.page(), (
        "run make pages"
    )


def test_the_reference_has_every_option_of_every_command():
    for name, command in typer.main.get_command(app).commands.items():
        (section,) = re.findall(
            rf"^## `relucid {name}\b.*?(?=^## |\Z)", generated.reference(), re.MULTILINE | re.DOTALL
        )
        options = {
            max(of.opts, key=len) for of in command.params if of.opts[0].startswith("-") and not of.hidden
        }
        assert options - {"--help"} == set(re.findall(r"`(?:-\w, )?(--[\w-]+)", section))


def test_the_reference_of_commands_is_that_of_the_commands():
    assert (DOCS / "cli.md").read_text(encoding="utf-8") == generated.reference(), "run make pages"


def test_every_figure_of_the_results_is_on_a_page_and_no_other_page_is_left_over(written):
    figures = {path.relative_to(DOCS).as_posix() for path in (DOCS / "images" / "results").glob("*.svg")}
    pages_of = {name: text for name, text in written.items() if name.endswith(".md")}
    linked = {
        found for text in pages_of.values() for found in re.findall(r"\]\(\.\./(images/results\S+)\)", text)
    }
    assert figures == linked == {name for name in written if name.startswith("images/results/")}
    pages = {f"results/{path.name}" for path in (DOCS / "results").glob("*.md")}
    assert pages == {name for name in written if name.startswith("results/")}


def test_no_outcome_is_typed_by_hand():
    for path in (DOCS / "templates").glob("*.jinja"):
        assert (
            re.findall(OUTCOMES, EXPRESSIONS.sub("", path.read_text(encoding="utf-8")), re.IGNORECASE) == []
        )


def test_the_front_page_counts_every_experiment_once(site, written):
    counts = site.outcomes()
    judged = [entry for entry in site.experiments() if entry.finding]
    assert counts.total() == len(judged) == len({(entry.study.name, entry.claim.where) for entry in judged})
    for outcome, count in counts.items():
        assert re.search(rf"{count} (is|are|show) {outcome}", written["results.md"])
        assert f"| {outcome} | {count} |" in written["claims.md"]
    assert f"{site.proved().count(False)} are false as printed" in written["results.md"]


def test_page_and_ledger_agree_on_every_claim(site, written):
    compared = 0
    for room in site.rooms:
        for entry in site.ledger[room]:
            if entry.finding:
                page = written[site.page(entry.finding)]
                compared += len(entry.finding.verdicts)
                assert any(entry.finding.line(again) in page for again in (False, True))
                assert all(" ".join(caveat.split()[:2]) in page for caveat in entry.finding.caveats.values())
                assert f"({site.page(entry.finding)}) **{entry.finding.outcome}**" in written["claims.md"]
    assert compared > 200


def test_a_claim_names_the_smallest_and_the_largest_effect_of_each_outcome(ledger):
    finding = ledger["gmp Table 3, as published"].finding
    line, groups = finding.line(), {}
    for verdict in finding.verdicts:
        groups.setdefault(verdict.outcome, []).append(verdict)
    assert len(groups) > 1
    for outcome, verdicts in groups.items():
        sizes = sorted(verdicts, key=lambda verdict: abs(verdict.comparison.effect))
        part = line.split(f" {outcome.capitalize()} ({len(verdicts)}): ")[1]
        ends = [number(of.comparison.effect) for of in (sizes[0], sizes[-1])]
        assert re.match(rf"{re.escape(ends[0])}.*? to {re.escape(ends[1])}", part)
        doubtful = sizes[0 if outcome in ("confirmed", "reversed") else -1]
        assert f"{doubtful.effect} (" in part  # the end that is nearer to another outcome has its interval


def test_links_between_pages_of_a_room_lead_to_them(written):
    for name, text in written.items():
        if name.startswith("results/"):
            for target in re.findall(r"\]\(([\w-]+\.md)", text):
                assert f"results/{target}" in written
