import sys
from pathlib import Path

import pytest

from relucid.files import clear_beside, replacing


def fill(place, text):
    place.mkdir()
    (place / "a").write_text(text)


@pytest.mark.parametrize("before", [None, "old"])
def test_a_file_is_replaced_when_it_is_whole(tmp_path, before):
    path = tmp_path / "page.html"
    if before:
        path.write_text(before)
    with replacing(path) as new:
        new.write_text("half")
        assert (path.read_text(encoding="utf-8") if path.exists() else None) == before
        new.write_text("new")
    assert path.read_text(encoding="utf-8") == "new"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("before", [False, True])
def test_a_directory_is_replaced_as_a_whole(tmp_path, before):
    path = tmp_path / "out"
    if before:
        fill(path, "old")
        (path / "b").touch()
    with replacing(path) as new:
        fill(new, "new")
    assert {each.name: each.read_text(encoding="utf-8") for each in path.iterdir()} == {"a": "new"}
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.skipif(sys.platform != "linux", reason="Linux alone lets two directories change places at once")
def test_there_is_no_moment_without_a_directory(tmp_path, monkeypatch):
    out = tmp_path / "out"
    fill(out, "old")
    for name in (
        "rename",
        "replace",
        "unlink",
        "rmdir",
    ):  # each would leave a moment without the old one or the new
        monkeypatch.setattr(Path, name, None)
    with replacing(out) as new:
        fill(new, "new")
    assert (out / "a").read_text(encoding="utf-8") == "new"


@pytest.mark.parametrize("error", [OSError, KeyboardInterrupt])
def test_after_an_error_everything_is_as_it_was(tmp_path, error):
    path = tmp_path / "out"
    fill(path, "old")

    def fail():
        with replacing(path) as new:
            fill(new, "new")
            raise error

    with pytest.raises(error):
        fail()
    assert (path / "a").read_text(encoding="utf-8") == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_what_a_killed_process_left_is_removed_and_nothing_else(tmp_path):
    killed = replacing(tmp_path / "last.ckpt")
    fill(killed.__enter__(), "half")
    with replacing(tmp_path / "other.ckpt") as other:
        fill(other, "whole")
        clear_beside(tmp_path / "last.ckpt")
        assert len(list(tmp_path.iterdir())) == 1
    assert (tmp_path / "other.ckpt" / "a").read_text(encoding="utf-8") == "whole"
