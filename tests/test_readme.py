"""README is short, and what it says can be typed, or comes from records (`tests/docs/test_quoted.py`)."""

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_make_has_the_commands_that_the_readme_names():
    named = set(re.findall(r"^make ([a-z-]+)", README, re.MULTILINE))
    rules = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    assert {"quickstart", "test"} <= named <= rules


def test_what_the_readme_installs_can_be_installed():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = re.findall(r"pip install '\.\[([a-z,]+)\]'", README)
    assert extras
    assert {extra for each in extras for extra in each.split(",")} <= set(project["optional-dependencies"])
    (constraints,) = re.findall(r"-c (\S+) torch==", README)
    (pinned,) = re.findall(r"torch==([\d.]+)", README)
    assert f"torch=={pinned}" in (ROOT / "Makefile").read_text(encoding="utf-8")
    assert (ROOT / constraints).is_file()
    named = re.findall(r"needs (\w+), (\w+) and (\w+)", README)
    assert [set(names) for names in named] == [{re.split(r"\W", name)[0] for name in project["dependencies"]}]
    assert f"Python {project['requires-python'].removeprefix('>=')}+" in README
    (lowest,) = [
        name.removeprefix("torch>=") for name in project["dependencies"] if name.startswith("torch>")
    ]
    assert f"PyTorch {lowest.partition(',')[0]}+" in README


def test_the_readme_is_short_and_its_pictures_are_small():
    assert len(README.splitlines()) <= 150
    pictures = [ROOT / path for path in re.findall(r"!\[[^\]]+\]\(([^)]+)\)", README)]
    assert len(pictures) == 2
    assert all(picture.stat().st_size < 20_000 for picture in pictures)


@pytest.mark.parametrize(
    "picture", sorted((ROOT / "docs" / "images").glob("[ht]*.svg")), ids=lambda p: p.stem
)
def test_the_pictures_can_be_read_on_dark_pages_and_by_those_who_cannot_see_them(picture):
    text = picture.read_text(encoding="utf-8")
    assert "prefers-color-scheme:dark" in text
    assert re.search(r'<title id="ti">.+</title>\n<desc id="de">.+</desc>', text)
