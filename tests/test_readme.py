import re
import runpy
from pathlib import Path

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()


def test_make_has_the_commands_that_the_readme_names():
    named = set(re.findall(r"^make ([a-z-]+)", README, re.MULTILINE))
    assert (
        {"quickstart", "test"}
        <= named
        <= set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    )


def test_the_readme_is_short_and_its_pictures_are_small():
    assert len(README.splitlines()) < 200
    pictures = [ROOT / path for path in re.findall(r"!\[[^\]]+\]\(([^)]+)\)", README)]
    assert all(picture.stat().st_size < 200_000 for picture in pictures)


def test_the_findings_are_those_of_the_recorded_quickstart():
    assert "1. **Keeps learning.**" in README
    assert runpy.run_path(str(ROOT / "docs" / "pages.py"))["readme"](README) == README, "run make pages"


def test_the_picture_shows_the_recorded_quickstart():
    assert runpy.run_path(str(ROOT / "docs" / "picture.py"))["is_current"](), "run python docs/picture.py"
