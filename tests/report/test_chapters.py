from dataclasses import replace

import pytest

from relucid.papers import PAPERS
from relucid.report.chapters import GROUPS, POWER, at_a_glance, chapters, power, short
from relucid.report.effects import headline
from relucid.studies.ledger import STATES


@pytest.fixture(scope="module")
def entries(ledger):
    return list(ledger.values())


@pytest.fixture(scope="module")
def found(entries):
    return chapters(entries, PAPERS)


def test_every_claim_that_a_study_checks_is_in_one_chapter_once_run_or_not(entries, found):
    shown = [entry for chapter in found for entry in chapter.tried]
    waiting = [
        entry for chapter in found for each in chapter.waiting for entry in each.entries if not entry.table
    ]
    assert all(entry.table for entry in shown)
    assert len(shown) + len(waiting) == sum(entry.empirical for entry in entries)
    assert {id(entry) for entry in (*shown, *waiting)} == {id(e) for e in entries if e.empirical}


def test_at_a_glance_every_claim_that_was_compared_is_named(entries):
    alt = at_a_glance(entries).alt.replace("\u00a0", " ")
    assert {state for states in GROUPS.values() for state in states} < STATES.keys()
    compared = [entry for entry in entries if entry.table and entry.judged]
    assert len(compared) > 30
    assert all(f"{entry.paper} {entry.claim.where}" in alt for entry in compared)


def test_a_line_tells_level_repetitions_effect_detectable_published_and_hours(entries):
    told = [entry for entry in entries if (line := headline(entry)) and line.published is not None]
    assert told
    for entry in told:
        line, texts = headline(entry), dict(zip(POWER, power(entry), strict=True))
        place = line.judged.expected.b
        cell = entry.table.cells[place.row, place.column]
        assert texts["baseline"] == f"{cell.mean:.3g} ({place.column})"
        assert int(texts["repeated"]) == len(cell.values)
        assert float(texts["detectable %"]) == pytest.approx(
            100 * line.judged.found.detectable / cell.mean, rel=0.06
        )
        assert float(texts["published %"]) == pytest.approx(line.published, rel=0.06)
        hours = sum(run["seconds"] for run in entry.table.runs) / 3600
        assert (
            texts["hours"] == "< 0.01"
            if hours < 0.01
            else float(texts["hours"]) == pytest.approx(hours, rel=0.06)
        )


def test_published_figures_stand_beside_ours_at_the_papers_scale_only(recorded_tables):
    table = next(each for each in recorded_tables if each.study.name == "gmp/uci")
    assert short(table) is table
    smaller = short(replace(table, scale="cpu"))
    assert {cell.published for cell in smaller.cells.values()} == {(None, None)}
    assert {place: cell.values for place, cell in smaller.cells.items()} == {
        place: cell.values for place, cell in table.cells.items()
    }


def test_what_was_run_at_small_scale_only_waits_for_the_scale_that_would_answer(found):
    again = {
        each.command: [entry.table.scale for entry in each.entries if entry.table]
        for chapter in found
        for each in chapter.waiting
        if any(entry.table for entry in each.entries)
    }
    assert "relucid run structure/deep --scale cpu" in again
    assert all(command.endswith("--scale cpu") for command in again)
    assert {scale for scales in again.values() for scale in scales} == {"small"}


def test_a_command_is_listed_once(found):
    commands = [each.command for chapter in found for each in chapter.waiting]
    assert len(commands) == len(set(commands))


def test_what_was_not_run_has_its_command_and_how_long_it_takes(found):
    waiting = {each.command: each.cost for chapter in found for each in chapter.waiting}
    assert waiting["relucid run gmp/uci-authors --scale full"] == "24 runs, about 0.6 hours of one core"
