"""Numbers that pages quote are those of the records, and no page types a measurement by hand."""

import re
from itertools import pairwise

import pytest
from choices import PICTURE as CHOICES
from choices import draw as draw_choices
from headline import PAGES, PICTURE, Curve, Headline, apart, described, draw, headline, shown
from quoted import MARK, QUOTED, RECOMMENDER, ROOT, Evidence, named, pages, refreshed

from relucid.experiments import read
from relucid.experiments._catalog import built_in

FIRST = [  # pages that a stranger reads first: every number there is quoted from records, or is no measurement
    ROOT / "README.md",
    ROOT / "docs" / "index.md",
    ROOT / "docs" / "choose.md",
    ROOT / "docs" / "tutorials" / "stopped.md",
]
NOT_MEASURED = re.compile(
    r"""CIFAR-10|stable-baselines3|ResNet-\d+|Apache-2\.0|Float\d+|L2  # names
    |about\ 20\ layers|1024\ x\ 1024                               # shapes
    |(?:Python|PyTorch|numpy)\ [\d.]+\+?|torch==[\d.]+             # versions, which tests/test_readme.py compares
    |(?:19|20)\d\d                                                 # years of papers
    |\b1000\ layers|\b110\ layers                                  # what the study is called
    |95%\ interval                                                 # of the judge
    |\bof\ 500\b                                                   # the longest episode
    |near\ [01]\b|64\ units|40\ units|\bof\ 0\.001|100\ steps       # settings, and ends of a scale""",
    re.VERBOSE,
)


@pytest.fixture(scope="module")
def evidence():
    return Evidence(read(ROOT / "results"))


@pytest.mark.parametrize("page", pages(), ids=lambda path: path.stem)
def test_a_page_quotes_what_the_records_say(page, evidence):
    text = page.read_text(encoding="utf-8")
    assert refreshed(text, lambda key: QUOTED[key](evidence)) == text, "run make pages"


@pytest.mark.parametrize("page", FIRST, ids=lambda path: path.stem)
def test_every_number_on_a_page_is_quoted(page):
    text = re.sub(
        r"^(---\n.*?\n---\n)|^```.*?^```|`[^`\n]+`|!\[[^\]]*\]",
        " ",
        page.read_text(encoding="utf-8"),
        flags=re.S | re.M,
    )
    left = refreshed(text, lambda key: "quoted")
    left = re.sub(r"\]\([^)]*\)", "]", MARK.sub("", left))
    assert re.findall(r"\S*\d[\d.,]*\S*", NOT_MEASURED.sub("", left)) == []


def test_a_number_is_replaced_where_its_comment_says_and_nowhere_else():
    text = "1 of 10, 10 of 10\n```\n10\n```\n10.5 and 10\n<!-- n: a=10, b=10, c=10 -->\n10\n"
    new = refreshed(text, {"a": "11", "b": "12", "c": "13"}.__getitem__)
    assert new == "1 of 11, 12 of 13\n```\n10\n```\n10.5 and 10\n<!-- n: a=11, b=12, c=13 -->\n10\n"


@pytest.mark.parametrize("text", ["none", "105", "10.5", "1,10", "`x`\n```\n10\n```\n"])
def test_a_number_that_is_not_in_the_text_is_an_error(text):
    with pytest.raises(ValueError, match="key: '10' is not in the text before its comment"):
        refreshed(f"{text}\n<!-- n: key=10 -->", lambda key: "11")


def test_values_may_be_words_with_spaces_and_numbers_with_commas():
    assert named("a=no detectable difference, b=13,130,\nc=2e-15") == [
        ("a", "no detectable difference"),
        ("b", "13,130"),
        ("c", "2e-15"),
    ]


def test_an_unknown_key_is_an_error(evidence):
    with pytest.raises(KeyError):
        refreshed("10 <!-- n: unknown=10 -->", lambda key: QUOTED[key](evidence))


def test_the_drawings_are_those_of_the_records(evidence):
    figure = headline(evidence)
    assert PICTURE.read_text(encoding="utf-8") == draw(figure), "run make pages"
    for page, folder in PAGES.items():
        assert f"![{described(figure)}]({folder}headline.svg)" in page.read_text(encoding="utf-8"), (
            "run make pages"
        )
    assert CHOICES.read_text(encoding="utf-8") == draw_choices(), "run make pages"


def test_a_curve_is_drawn_where_its_values_are():
    figure = Headline(
        ("T", "t"),
        ("S", "s"),
        "N",
        "step",
        [Curve("converted", "c", "c", [50.0, 90.0], 2), Curve("relu", "r", "r", [0.0, 50.0, 0.0])],
        10,
    )
    lines = dict(re.findall(r'<polyline class="([a-z ]+)" points="([^"]+)"', draw(figure)))
    assert lines["relu"] == "58.0,384.0 275.0,253.0 492.0,384.0"
    assert lines["converted bold"] == "275.0,253.0 492.0,148.2"
    assert "r 0% in step 1, 0% in 3" in described(figure)


def test_labels_do_not_cover_each_other():
    moved = apart([100.0, 101.0, 102.0, 300.0, 90.0], 20)
    ordered = sorted(moved)
    assert min(b - a for a, b in pairwise(ordered)) >= 20
    assert sorted(range(5), key=[100.0, 101.0, 102.0, 300.0, 90.0].__getitem__) == sorted(
        range(5), key=moved.__getitem__
    )
    assert moved[3] == 300.0


def test_the_alternative_text_is_replaced_on_a_page():
    figure = Headline(("T", "t"), ("S", "s"), "N", "step", [Curve("relu", "r", "r", [1.0, 2.0])], 10)
    assert (
        shown("a\n![old](docs/images/headline.svg)\nb", figure, "images/")
        .splitlines()[1]
        .startswith("![T. S r 1%")
    )


@pytest.mark.skipif("recommender" not in built_in(), reason="there is no recommender yet")
def test_the_rows_of_the_recommender_have_the_names_that_the_front_page_asks_for():
    study = built_in()["recommender"]
    assert set(RECOMMENDER.values()) <= set(study.rows)
    assert {"reward %", "repaired after phase"} <= set(study.columns)
