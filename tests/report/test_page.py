import gzip
import json
import os
from base64 import b64decode

import plotly.graph_objects as go
import pytest
from plotly.offline import get_plotlyjs

from relucid.report import Figure
from relucid.report.page import check, library, plotly, save


def test_a_page_is_written_whole_or_not_at_all(tmp_path, monkeypatch):
    path = tmp_path / "page.html"
    save("first", path)
    monkeypatch.setattr("pathlib.Path.replace", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        save("second", path)
    assert path.read_text(encoding="utf-8") == "first"
    assert list(tmp_path.iterdir()) == [path]


def test_an_existing_page_is_overwritten_only_by_force(tmp_path):
    path = tmp_path / "page.html"
    check(path, force=False)
    path.touch()
    check(path, force=True)
    with pytest.raises(ValueError, match="--force overwrites it"):
        check(path, force=False, option="--force")


def test_a_page_needs_a_directory(tmp_path):
    with pytest.raises(ValueError, match=r"no directory .*missing"):
        check(tmp_path / "missing" / "page.html", force=False)


@pytest.mark.parametrize(
    "make, complaint",
    [
        (lambda path: path.symlink_to("mine.txt"), "is a symbolic link, which is never replaced"),
        (lambda path: os.mkfifo(path), "is not a regular file and is never replaced"),
        (lambda path: path.mkdir(), "is not a regular file and is never replaced"),
    ],
)
def test_a_page_never_takes_the_place_of_a_link_a_device_or_a_directory(tmp_path, make, complaint):
    (tmp_path / "mine.txt").write_text("mine")
    path = tmp_path / "page.html"
    make(path)
    mode = path.lstat().st_mode
    for attempt in (lambda: check(path, force=True), lambda: save("page", path)):
        with pytest.raises(ValueError, match=complaint):
            attempt()
    assert path.lstat().st_mode == mode
    assert (tmp_path / "mine.txt").read_text(encoding="utf-8") == "mine"


def test_a_page_may_have_the_longest_name_that_there_is(tmp_path):
    path = tmp_path / ("p" * 250 + ".html")
    save("page", path)
    assert path.read_text(encoding="utf-8") == "page"


def test_a_plot_leaves_its_look_to_the_page():
    plot = go.Figure(go.Scatter(y=[1, 2]), {"title": "t", "template": "plotly_dark", "xaxis_title": "x"})
    written = json.loads(plotly(Figure("t", "a", plot)))
    assert list(written["layout"]) == ["xaxis"]
    assert written["data"][0]["y"] == [1, 2]


def test_the_page_has_its_own_slider_in_the_place_of_that_of_a_plot_with_frames():
    layout = {"sliders": [{"steps": []}], "updatemenus": [{"buttons": []}]}
    still = go.Figure(go.Scatter(y=[1]), layout)
    moving = go.Figure(go.Scatter(y=[1]), layout, frames=[go.Frame(name="epoch 1")])
    assert json.loads(plotly(Figure("t", "a", still)))["layout"].keys() == {"sliders", "updatemenus"}
    written = json.loads(plotly(Figure("t", "a", moving)))
    assert written["layout"] == {}
    assert [frame["name"] for frame in written["frames"]] == ["epoch 1"]


def test_no_text_in_a_plot_can_end_its_script():
    plot = go.Figure(go.Scatter(y=[1], name="</script><script>alert(1)</script>"))
    assert "<" not in plotly(Figure("t", "a", plot))


def test_the_library_is_packed_whole_and_the_same_each_time():
    packed = library()
    assert gzip.decompress(b64decode(packed, validate=True)).decode() == get_plotlyjs()
    library.cache_clear()
    assert library() == packed
