import re

import pytest

from relucid.experiments import Column, Study, run

PLANTED = '<script>alert("planted")</script>'
LIBRARY = re.compile(r'<script type="application/gzip" id="library">[\w+/=]*</script>')


def measure(x, seed, **_):
    if x == seed == 2:
        raise ArithmeticError("too large")
    curve = [1 / (x + epoch) for epoch in range(5)]
    return {"value": x**2 + seed / 10, "size": x, "history": {"loss": curve}}


@pytest.fixture
def squares():
    """A function that makes a study, with the changes that it is given."""

    def make(**changes):
        fields = {
            "rows": {"one": {"x": 1}, PLANTED: {"x": 2}},
            "columns": {"value": Column("value"), "size": Column("size", best=None, digits=0)},
            "repeat": {"seed": range(4)},
            "published": {("one", "value"): (1.2, 0.1)},
        }
        return Study("squares", "How large squares are", measure, **{**fields, **changes})

    return make


@pytest.fixture
def done(tmp_path):
    """A function that runs a study, and returns its results."""

    def do(study, **options):
        return run(study, store=tmp_path, jobs=1, **options)

    return do


@pytest.fixture
def without_library():
    """A function that takes Plotly's library, which is there once, out of a page."""

    def strip(page):
        rest, found = LIBRARY.subn("", page)
        assert found == 1
        return rest

    return strip
