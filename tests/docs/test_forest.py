import re
from xml.etree import ElementTree

from evidence.effects import effects
from evidence.forest import LEFT, WIDTH, ForestRow, forest

SVG = "{http://www.w3.org/2000/svg}"
PLANTED = "<script>alert('planted')</script>"


def drawn(figure, name):
    return ElementTree.fromstring(figure.svg).findall(f".//{SVG}{name}")


def test_every_effect_is_drawn_with_its_comparison_and_nothing_leaves_the_drawing(ledger):
    rows = [ForestRow(name, effects(each)) for name, each in ledger.items() if each.judged]
    figure = forest("All", rows)
    shown = [each for row in rows for each in row.effects]
    assert [title.text for title in drawn(figure, "title")] == [str(each.judged) for each in shown]
    places = [float(line.get(end)) for line in drawn(figure, "line") for end in ("x1", "x2")]
    assert LEFT < min(places) <= max(places) < WIDTH
    height = float(ElementTree.fromstring(figure.svg).get("viewBox").split()[3])
    assert max(float(text.get("y")) for text in drawn(figure, "text")) < height


def test_a_published_effect_is_a_diamond_and_what_is_beyond_the_axis_an_arrow(ledger):
    found = [each for entry in ledger.values() for each in effects(entry)]
    figure = forest("All", [ForestRow("all", found)])
    published = sum(each.published is not None for each in found)
    arrows = sum((each.low < -30) + (each.high > 30) for each in found)
    assert published > 20
    assert arrows > 20
    diamonds = [each for each in drawn(figure, "path") if each.get("class") == "published"]
    assert len(diamonds) == published + 1  # the legend has one
    assert len(drawn(figure, "path")) == len(diamonds) + arrows


def test_the_description_names_every_row():
    figure = forest("T", [ForestRow("one", []), ForestRow("two", [])])
    assert figure.alt == "T. Effects with intervals, in per cent of the baseline. one, two."


def test_names_are_escaped_and_nothing_is_fetched_or_run():
    svg = str(forest(PLANTED, [ForestRow(PLANTED, [])]).svg)
    assert "<script" not in svg
    assert set(re.findall(r"https?://[^\"]+", svg)) == {"http://www.w3.org/2000/svg"}


def test_it_has_colours_for_a_dark_page():
    assert "prefers-color-scheme: dark" in str(forest("T", [ForestRow("one", [])]).svg)
