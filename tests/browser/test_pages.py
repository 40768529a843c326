"""The pages as a reader has them: in chromium, from the disk, without a network."""

from collections import OrderedDict
from dataclasses import replace

import plotly.graph_objects as go
import pytest
import torch
from torch import nn

import relucid
from relucid._improve._task import RECIPE
from relucid.experiments import Column, Results, Store, Study, run
from relucid.experiments._catalog import find as study_called
from relucid.inspect import examine
from relucid.report import Figure
from relucid.report.examination import Provenance, examination_page
from relucid.report.page import save
from relucid.report.study import study_page

pytestmark = pytest.mark.browser

DESKTOP = {"width": 1280, "height": 800, "deviceScaleFactor": 1, "mobile": False}
PLANTED = '<script>alert("planted")</script>'
# Figures are drawn when they come near: goes to the next one that is not, and says whether there is none.
DRAWN = """
for (const details of document.querySelectorAll("details")) details.open = true;
const next = [...document.querySelectorAll(".plot")].find((plot) => !plot.querySelector(".main-svg"));
next?.scrollIntoView();
return !next;
"""


def figures(_results):
    """Three frames, in which a line rises."""
    frames = [go.Frame(data=[go.Scatter(y=[0, height])], name=f"epoch {height}") for height in range(3)]
    plot = go.Figure(go.Scatter(y=[0, 0]), {"yaxis_range": [0, 2]}, frames)
    return [Figure("A rising line", "A line that rises epoch by epoch", plot)]


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    """The address of a study's page."""
    place = tmp_path_factory.mktemp("study")
    rows = {"b": {"x": 10}, PLANTED: {"x": 9}, "c": {"x": 100}}
    found = Study(
        *("heights", "How high", lambda x, seed: {"height": x, "depth": seed}, rows),
        columns={"height": Column("height", digits=0), "depth": Column("depth")},
        published={("b", "height"): 11.0},
        figures=[figures],
    )
    save(study_page(run(found, store=place, jobs=1), "heights"), place / "page.html")
    return (place / "page.html").as_uri()


@pytest.fixture(scope="module")
def examination(tmp_path_factory):
    """The address of an examination's page."""
    net = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Flatten())
    net.add_module(PLANTED, nn.Linear(8 * 36, 4))
    net.add_module("last", nn.ReLU())
    place = tmp_path_factory.mktemp("examination")
    save(examination_page(examine(net, torch.randn(9, 3, 8, 8)), Provenance(PLANTED)), place / "page.html")
    return (place / "page.html").as_uri()


@pytest.fixture(scope="module")
def long_examination(tmp_path_factory):
    """The address of the page of a network with many layers, in stages, with long names."""
    stages = {
        f"stage_with_a_long_name_{i}": nn.Sequential(
            *(m for _ in range(9) for m in (nn.Linear(4, 4), nn.ReLU()))
        )
        for i in range(3)
    }
    place = tmp_path_factory.mktemp("long")
    found = examine(nn.Sequential(OrderedDict(stages)), torch.randn(40, 4))
    save(examination_page(found, Provenance("net:build")), place / "page.html")
    return (place / "page.html").as_uri()


@pytest.fixture(scope="module")
def improvement(tmp_path_factory):
    """The address of an improvement's page."""
    net = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 3))
    net[0].bias.data[:2] = -100.0
    train, test = ((inputs, inputs[:, :3].argmax(1)) for inputs in (torch.randn(60, 4), torch.randn(20, 4)))
    place = tmp_path_factory.mktemp("improvement")
    found = relucid.improve(
        net, (train, test), tries=["crelu"], name=PLANTED, seeds=3, store=place, jobs=1,
        recipe=replace(RECIPE, epochs=1),
    )  # fmt: skip
    found.save(place / "out")
    return (place / "out" / "page.html").as_uri()


@pytest.fixture(scope="module")
def quickstart(tmp_path_factory, quickstart_store):
    """The address of the page of the quickstart."""
    path = tmp_path_factory.mktemp("quickstart") / "page.html"
    results = Results(study_called("quickstart"), "smoke", Store(quickstart_store))
    save(study_page(results, "quickstart"), path)
    return path.as_uri()


@pytest.fixture(params=["study", "examination", "improvement"])
def page(request):
    """The address of each of them."""
    return request.getfixturevalue(request.param)


def wait(browser, script):
    """Until a script returns something."""
    from selenium.webdriver.support.ui import WebDriverWait

    return WebDriverWait(browser, 60, poll_frequency=0.05).until(lambda _: browser.execute_script(script))


def find(browser, selector):
    return browser.find_elements("css selector", selector)


def press(element, key):
    from selenium.webdriver.common.keys import Keys

    element.send_keys(getattr(Keys, key))


def test_all_figures_are_drawn_and_nothing_is_fetched(browser, page):
    browser.get(page)
    wait(browser, DRAWN)
    assert browser.execute_script("return performance.getEntriesByType('resource').length") == 0


def test_the_quickstart_shows_three_findings_and_plays_the_boundaries(browser, quickstart):
    browser.get(quickstart)
    wait(browser, DRAWN)
    assert [each.text[:2] for each in find(browser, "h2")][:3] == ["1.", "2.", "3."]
    (shown,) = find(browser, "output")
    before = shown.text
    press(wait(browser, "return document.querySelector('input[type=range]')"), "END")
    wait(browser, f"return document.querySelector('output').textContent !== {before!r}")


def test_the_quickstart_shows_its_first_figure_and_all_findings_without_scrolling(browser, quickstart):
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", DESKTOP)
    browser.get(quickstart)
    wait(browser, "return document.querySelector('.plot .main-svg')")
    for selector in ("figure", ".headlines"):
        assert find(browser, selector)[0].rect["y"] + find(browser, selector)[0].rect["height"] <= 800
    assert not find(browser, "details[open]")


SAYS_MORE = """
const plot = document.querySelector(".plot");
plot.scrollIntoView();
return plot.textContent.length > plot.getAttribute("aria-label").length;
"""


def test_a_browser_that_cannot_unpack_the_library_says_what_a_figure_shows(browser, study):
    command = "Page.addScriptToEvaluateOnNewDocument"
    added = browser.execute_cdp_cmd(command, {"source": "delete window.DecompressionStream"})
    try:
        browser.get(study)
        plot = find(browser, ".plot")[0]
        alt = plot.get_attribute("aria-label")
        wait(browser, SAYS_MORE)
        assert alt in plot.text
    finally:
        browser.execute_cdp_cmd("Page.removeScriptToEvaluateOnNewDocument", added)


def test_the_quickstart_is_no_wider_than_a_phone(browser, quickstart):
    phone = {"width": 390, "height": 844, "deviceScaleFactor": 2, "mobile": True}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", phone)
    browser.get(quickstart)
    wait(browser, DRAWN)
    assert browser.execute_script("return document.scrollingElement.scrollWidth") == 390


def test_no_button_sends_anything_anywhere(browser, study):
    browser.get(study)
    wait(browser, DRAWN)
    buttons = (
        "return [...document.querySelectorAll('.plot:first-child .modebar-btn')].map((b) => b.dataset.title)"
    )
    assert set(browser.execute_script(buttons)) == {
        *("Download plot as a PNG", "Zoom", "Pan", "Zoom in", "Zoom out", "Reset axes")
    }


def test_what_a_user_wrote_is_shown_and_not_run(browser, page):
    browser.get(page)
    wait(browser, DRAWN)
    assert PLANTED in browser.execute_script("return document.body.innerText")
    assert "planted" not in browser.execute_script(
        "return [...document.scripts].filter((s) => !s.type).map((s) => s.textContent).join()"
    )


def test_labels_in_a_plot_are_shown_as_they_are_written(browser, study):
    browser.get(study)
    wait(browser, DRAWN)
    assert PLANTED in browser.execute_script("return document.querySelectorAll('.plot')[1].textContent")


def rows(browser):
    return browser.execute_script(
        "return [...document.querySelector('tbody').rows].map((row) => row.cells[0].textContent)"
    )


@pytest.mark.parametrize("key", ["click", "ENTER", "SPACE"])
def test_headings_sort_by_value_then_backwards_then_as_it_was(browser, study, key):
    browser.get(study)
    ours, theirs = find(browser, "thead button")[:2]
    act = ours.click if key == "click" else lambda: press(ours, key)
    assert rows(browser) == ["b", PLANTED, "c"]
    act()
    assert rows(browser) == [PLANTED, "b", "c"]
    assert find(browser, "th[aria-sort=ascending] button") == [ours]
    act()
    assert rows(browser) == ["c", "b", PLANTED]
    assert find(browser, "th[aria-sort=descending] button") == [ours]
    act()
    assert rows(browser) == ["b", PLANTED, "c"]
    theirs.click()
    theirs.click()
    assert rows(browser)[0] == "b"  # what is not published is last, backwards too


HEIGHT = "return document.querySelector('.plot').data[0].y[1]"


def test_the_slider_moves_the_figure(browser, study):
    browser.get(study)
    wait(browser, DRAWN)
    (slider,) = wait(browser, "return document.querySelectorAll('input[type=range]')")
    (shown,) = find(browser, "output")
    assert (browser.execute_script(HEIGHT), shown.text) == (0, "epoch 0")
    before = browser.execute_script("return document.querySelector('.plot .js-line').getAttribute('d')")
    press(slider, "ARROW_RIGHT")
    wait(browser, f"{HEIGHT} === 1")
    assert shown.text == slider.get_attribute("aria-valuetext") == "epoch 1"
    assert (
        browser.execute_script("return document.querySelector('.plot .js-line').getAttribute('d')") != before
    )
    press(slider, "END")
    wait(browser, f"{HEIGHT} === 2")
    press(slider, "HOME")
    wait(browser, f"{HEIGHT} === 0")


def test_play_shows_all_frames_and_stops(browser, study):
    browser.get(study)
    wait(browser, DRAWN)
    (button,) = wait(browser, "return document.querySelectorAll('.player button')")
    button.click()
    assert button.text == "Stop"
    wait(browser, f"{HEIGHT} === 2 && document.querySelector('.player button').textContent === 'Play'")


def emulate(browser, scheme):
    features = [{"name": "prefers-color-scheme", "value": scheme}]
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})


COLORS = """
const [page, text] = [document.body, document.querySelector(".plot .xtick text")];
return [getComputedStyle(page).backgroundColor, text && getComputedStyle(text).fill];
"""


def test_page_and_figures_follow_light_and_dark(browser, study):
    emulate(browser, "dark")
    browser.get(study)
    wait(browser, DRAWN)
    assert browser.execute_script(COLORS) == ["rgb(21, 24, 29)", "rgb(232, 234, 237)"]
    emulate(browser, "light")
    wait(browser, COLORS.replace("return", "const found =") + "return found[1] === 'rgb(28, 31, 36)'")
    assert browser.execute_script(COLORS)[0] == "rgb(255, 255, 255)"


def test_a_phone_shows_the_page_without_scrolling_sideways(browser, page):
    phone = {"width": 390, "height": 844, "deviceScaleFactor": 2, "mobile": True}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", phone)
    browser.get(page)
    wait(browser, DRAWN)
    assert browser.execute_script("return document.scrollingElement.scrollWidth") == 390


def test_a_phone_shows_the_figures_of_an_improvement_whole(browser, improvement):
    resize(browser, 390)
    browser.get(improvement)
    wait(browser, DRAWN)
    sizes = "[p.scrollWidth, p.closest('.scroll').clientWidth]"
    widths = f"return [...document.querySelectorAll('.plot')].map((p) => {sizes})"
    found = browser.execute_script(widths)
    assert found
    assert all(plot <= there for plot, there in found)


def test_the_focus_is_visible(browser, page):
    browser.get(page)
    for _ in range(3):
        press(browser.switch_to.active_element, "TAB")
        style = "const s = getComputedStyle(document.activeElement); return [s.outlineStyle, s.outlineWidth]"
        assert browser.execute_script(style) == ["solid", "3px"]


TABLES = "[...document.querySelectorAll('.scroll:has(table)')]"
OPEN = "for (const each of document.querySelectorAll('details')) each.open = true;"


def resize(browser, width):
    screen = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 500}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", screen)


def test_the_tables_of_an_examination_fit_their_boxes_from_1280_pixels_on(browser, long_examination):
    resize(browser, 1280)
    browser.get(long_examination)
    assert browser.execute_script(f"{OPEN} return {TABLES}.length") == 4
    assert browser.execute_script(
        f"{OPEN} return {TABLES}.every((box) => box.scrollWidth <= box.clientWidth)"
    )
    assert not find(browser, ".scroll.more")


def test_on_a_phone_a_table_that_scrolls_says_so(browser, long_examination):
    resize(browser, 390)
    browser.get(long_examination)
    browser.execute_script(OPEN)
    wide = f"{TABLES}.filter((box) => box.scrollWidth > box.clientWidth)"
    assert browser.execute_script(f"return {wide}.length") > 0
    wait(browser, f"return {wide}.every((box) => box.classList.contains('more'))")
    hint = f"return getComputedStyle({wide}[0], '::before').content"
    assert "Scroll sideways" in browser.execute_script(hint)


def test_a_long_network_is_folded_and_a_link_unfolds_its_stage(browser, long_examination):
    resize(browser, 1280)
    browser.get(long_examination)
    assert browser.execute_script("return document.scrollingElement.scrollHeight") < 3000
    assert not find(browser, "details.stage[open]")
    find(browser, "a[href='#stage-1']")[0].click()
    wait(browser, "return document.querySelectorAll('details.stage')[1].open")
