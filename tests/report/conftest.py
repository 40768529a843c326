import re

import pytest

from relucid.studies import Column, Result, Store, Study, run, table

PLANTED = '<script>alert("planted")</script>'
LIBRARY = re.compile(r"<script>/\*\*\n\* plotly\.js.*?</script>", re.DOTALL)


def measure(config):
    if config["x"] == config["seed"] == 2:
        raise ArithmeticError("too large")
    course = [1 / (config["x"] + epoch) for epoch in range(5)]
    return Result({"value": config["x"] ** 2 + config["seed"] / 10, "size": config["x"]}, {"loss": course})


@pytest.fixture
def squares():
    """A function that makes a study, with the changes that it is given."""

    def make(**changes):
        fields = {
            "rows": {"one": {"x": 1}, PLANTED: {"x": 2}},
            "columns": {"value": Column("value"), "size": Column("size", best=None, digits=0)},
            "repeat": {"seed": range(4)},
            "baseline": "one",
            "published": {"one": {"value": (1.2, 0.1)}},
            "source": "a Table 1",
            "protocol": "Nothing is chosen.",
        }
        return Study("squares", "How large squares are", measure, **{**fields, **changes})

    return make


@pytest.fixture
def done(tmp_path):
    """A function that runs a study, and returns its table and the store."""

    def do(study, **options):
        run(study, store=tmp_path, jobs=1, **options)
        return table(study, store=tmp_path), Store(tmp_path)

    return do


@pytest.fixture
def without_library():
    """A function that takes Plotly's library, which is there once, out of a page."""

    def strip(page):
        rest, found = LIBRARY.subn("", page)
        assert found == 1
        return rest

    return strip
