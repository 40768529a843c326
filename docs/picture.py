"""Draw README's picture, docs/images/quickstart.png, from results/quickstart.jsonl; takes chromium.

python docs/picture.py            # draw it
python docs/picture.py --check    # fail if it was drawn from other results, or in other words
"""

import hashlib
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from relucid.experiments import Results, read
from relucid.experiments._catalog import find
from relucid.report.study import study_page

ROOT = Path(__file__).parents[1]
RESULTS, PICTURE = ROOT / "results" / "quickstart.jsonl", ROOT / "docs" / "images" / "quickstart.png"
DIGEST = PICTURE.with_suffix(".sha256")
SIZE = 1200, 1060
FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--hide-scrollbars"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
)


def digest() -> str:
    """Of the results that the picture shows, and of its findings in words, which README has too."""
    findings = (ROOT / "README.md").read_text().partition("<!-- quickstart -->")[2]
    findings = findings.partition("<!-- /quickstart -->")[0]
    return hashlib.sha256(RESULTS.read_bytes() + findings.encode()).hexdigest()


def is_current() -> bool:
    """Whether the picture was drawn from the recorded results, with the findings in these words."""
    return DIGEST.exists() and DIGEST.read_text().split() == [digest()]


def draw() -> None:
    """Show the recorded results as a page, and take its picture."""
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    if chromium is None:
        sys.exit("docs/picture.py needs chromium: apt-get install chromium")
    with tempfile.TemporaryDirectory() as name:
        place, results = Path(name), Results(find("quickstart"), "full", read(ROOT / "results"))
        (place / "page.html").write_text(study_page(results, "quickstart"))
        width, height = SIZE
        where = [
            f"--user-data-dir={place / 'profile'}",
            f"--window-size={width},{height}",
            f"--screenshot={PICTURE}",
        ]
        page = (place / "page.html").as_uri()
        command = [chromium, *FLAGS, *where, "--virtual-time-budget=20000", page]
        subprocess.run(command, check=True, capture_output=True, timeout=300)
    _shrink(PICTURE)
    DIGEST.write_text(digest() + "\n")


def _shrink(picture: Path) -> None:
    """Keep to 64 colours, which a page of text and lines does not miss."""
    from PIL import Image

    with Image.open(picture) as opened:
        few = opened.convert("RGB").quantize(64)
    few.save(picture, optimize=True)


if __name__ == "__main__":
    if sys.argv[1:] != ["--check"]:
        draw()
    elif not is_current():
        sys.exit(
            "docs/images/quickstart.png is older than its results or their words: run python docs/picture.py"
        )
