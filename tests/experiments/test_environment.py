import shutil
import subprocess

import pytest

from relucid.experiments import _environment as environment

MADE = ["-c", "user.name=a", "-c", "user.email=a@b", "commit", "-q", "--allow-empty", "-m", "first"]


pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="needs git")


def commit_in(directory):
    subprocess.run(["git", "init", "-q"], cwd=directory, check=True)
    subprocess.run(["git", *MADE], cwd=directory, check=True)
    return subprocess.check_output(["git", "rev-parse", "HEAD"], cwd=directory, text=True).strip()


def test_a_run_has_the_commit_of_the_working_directory(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    expected = commit_in(tmp_path)
    assert environment._commit() == expected


def test_outside_a_repository_a_run_has_the_commit_of_the_sources(tmp_path, monkeypatch):
    sources, elsewhere = tmp_path / "sources", tmp_path / "elsewhere"
    sources.mkdir()
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    monkeypatch.setattr(environment, "__file__", str(sources / "environment.py"))
    assert environment._commit() is None
    expected = commit_in(sources)
    assert environment._commit() == expected
