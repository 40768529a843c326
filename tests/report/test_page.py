import json

import plotly.graph_objects as go
import pytest

from relucid.report import Figure
from relucid.report.page import check, plotly, save


def test_a_page_is_written_whole_or_not_at_all(tmp_path, monkeypatch):
    path = tmp_path / "page.html"
    save("first", path)
    monkeypatch.setattr("pathlib.Path.replace", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        save("second", path)
    assert path.read_text() == "first"
    assert list(tmp_path.iterdir()) == [path]


def test_an_existing_page_is_overwritten_only_if_that_is_said(tmp_path):
    path = tmp_path / "page.html"
    check(path, force=False)
    path.touch()
    check(path, force=True)
    with pytest.raises(ValueError, match=r"page.html exists: --force overwrites it"):
        check(path, force=False)


def test_a_page_needs_a_directory(tmp_path):
    with pytest.raises(ValueError, match=r"there is no directory .*missing"):
        check(tmp_path / "missing" / "page.html", force=False)


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
