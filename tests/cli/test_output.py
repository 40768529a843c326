import os
import stat
from contextlib import suppress
from pathlib import Path

import pytest

from relucid.cli.output import check_directory, write_directory
from relucid.files import _exchanged

OURS = ("a", "b")


def filled(directory, **files):
    directory.mkdir()
    for name, text in files.items():
        (directory / name).write_text(text)
    return directory


def held(directory):
    return {path.name: path.read_text(encoding="utf-8") for path in directory.iterdir()}


def write(out, **files):
    def fill(place):
        for name, text in files.items():
            (place / name).write_text(text)

    write_directory(out, OURS, True, fill)


def test_a_result_takes_the_place_of_a_former_one_and_leaves_nothing_beside_it(tmp_path):
    out = tmp_path / "deep" / "out"
    write(out, a="first", b="first")
    write(out, a="second")
    assert held(out) == {"a": "second"}
    assert list(out.parent.iterdir()) == [out]


def test_an_empty_directory_is_filled_without_force(tmp_path):
    check_directory(tmp_path, OURS, force=False)


@pytest.mark.parametrize("force", [False, True])
@pytest.mark.parametrize(
    "make, complaint",
    [
        (lambda out: filled(out, a="ours", thesis="mine"), "holds thesis, which is not part of a result"),
        (lambda out: (filled(out) / "a").mkdir(), "holds a, which is not part of a result"),
        (lambda out: (filled(out) / "a").symlink_to("/etc"), "holds a, which is not part of a result"),
        (lambda out: out.write_text("mine"), "is a file, which is never replaced"),
        (lambda out: out.symlink_to(filled(out.parent / "real", a="ours")), "is a symbolic link"),
        (lambda out: out.symlink_to("nowhere"), "is a symbolic link"),
        (lambda out: os.mkfifo(out), "is a file, which is never replaced"),
    ],
)
def test_other_files_are_never_replaced(tmp_path, make, complaint, force):
    make(tmp_path / "out")
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(ValueError, match=complaint):
        check_directory(tmp_path / "out", OURS, force)
    assert sorted(tmp_path.rglob("*")) == before


def test_files_added_during_the_computation_are_kept(tmp_path):
    out = filled(tmp_path / "out", a="ours")

    def fill(place):
        (place / "a").write_text("new")
        (out / "thesis").write_text("mine")

    with pytest.raises(ValueError, match="holds thesis"):
        write_directory(out, OURS, True, fill)
    assert held(out) == {"a": "ours", "thesis": "mine"}


@pytest.mark.parametrize("umask, mode", [(0o022, 0o644), (0o077, 0o600), (0o002, 0o664)])
def test_the_umask_decides_who_may_read_a_result(tmp_path, umask, mode):
    def fill(place):
        (place / "a").touch(0o600)

    before = os.umask(umask)
    try:
        write_directory(tmp_path / "out", OURS, False, fill)
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "out" / "a").stat().st_mode) == mode


@pytest.mark.parametrize("step", range(4))
@pytest.mark.parametrize("after", [False, True])
def test_ctrl_c_at_any_rename_leaves_the_old_or_the_new_result(tmp_path, monkeypatch, step, after):
    out = filled(tmp_path / "out", a="old", b="old")
    rename, calls = Path.rename, []

    def interrupted(path, target):
        calls.append(path)
        if after:
            rename(path, target)
        if len(calls) == step + 1:
            raise KeyboardInterrupt
        return target if after else rename(path, target)

    monkeypatch.setattr("relucid.files._exchanged", lambda new, old: False)  # as where the system cannot
    monkeypatch.setattr(Path, "rename", interrupted)
    with suppress(KeyboardInterrupt):
        write(out, a="new", b="new")
    assert calls
    assert held(out) in ({"a": "old", "b": "old"}, {"a": "new", "b": "new"})
    assert list(tmp_path.iterdir()) == [out]


@pytest.mark.parametrize("after", [False, True])
def test_ctrl_c_around_the_exchange_leaves_the_old_or_the_new_result(tmp_path, monkeypatch, after):
    out = filled(tmp_path / "out", a="old", b="old")

    def interrupted(new, old):
        assert not after or _exchanged(new, old)
        raise KeyboardInterrupt

    monkeypatch.setattr("relucid.files._exchanged", interrupted)
    with suppress(KeyboardInterrupt):
        write(out, a="new", b="new")
    assert held(out) == (dict.fromkeys("ab", "new") if after else dict.fromkeys("ab", "old"))
    assert list(tmp_path.iterdir()) == [out]


def test_a_full_disk_names_the_result_and_leaves_nothing(tmp_path):
    def fill(place):
        raise OSError(28, "No space left on device", str(place / "a"))

    with pytest.raises(ValueError, match=r"out cannot be written: No space left on device$"):
        write_directory(tmp_path / "out", OURS, False, fill)
    assert list(tmp_path.iterdir()) == []
