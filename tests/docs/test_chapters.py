from dataclasses import replace

import pytest
from evidence.chapters import chapters, short

from relucid.papers import PAPERS


@pytest.fixture(scope="module")
def entries(ledger):
    return list(ledger.values())


@pytest.fixture(scope="module")
def found(entries, recorded_tables):
    return chapters(entries, recorded_tables, PAPERS)


def test_every_recorded_table_is_in_one_section_whatever_its_scale(recorded_tables, found):
    shown = [part.table for chapter in found for section in chapter.sections for part in section.parts]
    assert {(each.study.name, each.scale) for each in shown} == {
        (each.study.name, each.scale) for each in recorded_tables
    }
    assert len(shown) == len(recorded_tables)


def test_every_claim_was_run_or_waits_for_a_command(entries, found):
    waiting = {id(entry) for chapter in found for each in chapter.waiting for entry in each.entries}
    missing = [entry for entry in entries if entry.empirical and entry.table is None]
    assert missing
    assert all(id(entry) in waiting for entry in missing)


def test_a_chapter_has_every_claim_of_a_kind_that_was_judged(entries, found):
    for kind in ("experiment", "construction", "mathematics"):
        shown = [entry for chapter in found for entry in chapter.of_kind(kind)]
        assert shown == [entry for entry in entries if entry.kind == kind and entry.judged]
        assert shown


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
    designed = {command: scales for command, scales in again.items() if not command.endswith("--scale cpu")}
    assert {scale for command in again.keys() - designed for scale in again[command]} == {"small"}
    assert {command.rpartition(" ")[2] for command in designed} & {"full", "cpu", "small", "smoke"} == set()


def test_a_scale_that_was_designed_and_not_run_waits_whatever_else_has_been_run(entries, recorded_tables):
    command, scale = "relucid run structure/deep --scale small-40", "small-40"
    unknown = [
        replace(each, table=None, judged=(), state="not run")
        if each.table and each.table.scale == scale
        else each
        for each in entries
    ]
    for known, waits in ((entries, False), (unknown, True)):
        found = chapters(known, recorded_tables, PAPERS)
        assert (command in {each.command for chapter in found for each in chapter.waiting}) == waits


def test_a_command_is_listed_once(found):
    commands = [each.command for chapter in found for each in chapter.waiting]
    assert len(commands) == len(set(commands))


def test_what_was_not_run_has_its_command_and_how_long_it_takes(found):
    waiting = {each.command: each.cost for chapter in found for each in chapter.waiting}
    assert waiting["relucid run gmp/uci-authors --scale full"] == "24 runs, about 0.6 hours of one core"


def test_a_scale_for_a_part_of_a_study_supersedes_no_other(found):
    parts = [part for chapter in found for section in chapter.sections for part in section.parts]
    titles = {part.title for part in parts if part.study.name == "structure/deep"}
    assert titles == {"small-40 scale", "small scale"}
