import re
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
