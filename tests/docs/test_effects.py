import pytest
from evidence.effects import effects, headline

from relucid.studies import Cell, Claim, Column, Higher, Lower, Study, Table
from relucid.studies.expect import Derived, Place, Quantity
from relucid.studies.ledger import entry

LOW, HIGH = (9.0, 9.1, 9.3), (10.0, 10.2, 10.1)


def claimed(expectation, old=HIGH, new=LOW, published=None):
    """The entry of a claim about new and old, of one or two columns."""
    study = Study(
        "s",
        "t",
        print,
        rows={"old": {}, "new": {}},
        columns={"a": Column("error"), "b": Column("error")},
        published=published or {},
        claims=(Claim("Table 1", "It is so.", (expectation,)),),
    )
    cells = {
        (row, column): Cell(
            dict(zip("xyz", values, strict=True)),
            3,
            {"finished": 3},
            ((published or {}).get(row, {}).get(column), None),
        )
        for row, values in (("old", old), ("new", new))
        for column in ("a", "b")
    }
    return entry("p", study, study.claims[0], Table(study, "full", cells, []))


def test_an_effect_is_in_per_cent_of_what_is_compared_with_and_positive_as_claimed():
    (lower,) = effects(claimed(Lower("new", than="old", columns="a")))
    (higher,) = effects(claimed(Higher("new", than="old", columns="a")))
    assert lower.size == pytest.approx(100 * (30.3 - 27.4) / 30.3)
    assert higher.size == pytest.approx(-lower.size)
    assert higher.low == pytest.approx(-lower.high)
    assert 0 < lower.low < lower.size < lower.high


def test_the_published_effect_is_in_per_cent_of_the_papers_own_level():
    published = {"old": {"a": 50.0}, "new": {"a": 45.0}}
    (found,) = effects(claimed(Lower("new", than="old", columns="a"), published=published))
    assert found.published == pytest.approx(10.0)


def test_some_repetitions_of_cells_are_compared_with_what_was_published_for_the_cells():
    def first_two(row, of):
        return Quantity(
            row, lambda table: {key: table.cells[row, "a"].samples[key] for key in "xy"}, (row,), of=of
        )

    published = {"old": {"a": 50.0}, "new": {"a": 45.0}}
    new, old = (first_two(row, Place(row, "a")) for row in ("new", "old"))
    (found,) = effects(claimed(Derived(new, "lower", old, paired=True), published=published))
    assert found.published == pytest.approx(10.0)
    assert found.size == pytest.approx(100 * (20.2 - 18.1) / 2 / 10.1)
    assert effects(claimed(Derived(first_two("new", None), "lower", first_two("old", None)))) == []


def test_a_level_that_is_not_above_zero_gives_no_effect_in_per_cent():
    assert effects(claimed(Lower("new", than="old", columns="a"), old=(-0.1, 0.1, 0.12))) == []
    assert headline(claimed(Lower("new", than="old", columns="a"), old=(-0.1, 0.1, 0.12))) is None
    assert effects(claimed(Lower("new", than=3.0, columns="a"))) == []


def test_the_median_of_those_with_a_published_effect_stands_for_a_claim(ledger):
    compared = 0
    for each in ledger.values():
        stands, found = headline(each), effects(each)
        published = [effect for effect in found if effect.published is not None]
        among = [effect.size for effect in published or found]
        compared += len(among) > 2
        if among:
            assert sum(size < stands.size for size in among) <= len(among) / 2
            assert sum(size > stands.size for size in among) <= len(among) / 2
            assert (stands.published is not None) == bool(published)
    assert compared > 3
