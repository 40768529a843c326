"""Whatever the README and the documentation show, runs, and prints what they show."""

import doctest
import re
import shlex
from pathlib import Path

import pytest
import typer

from relucid.cli.app import app
from relucid.models import BACKBONES

ROOT = Path(__file__).parents[2]
PAGES = {
    str(path.relative_to(ROOT)): path for path in (ROOT / "README.md", *sorted(ROOT.glob("docs/**/*.md")))
}


def blocks(page: Path, language: str) -> list[str]:
    return re.findall(
        rf"^```{language}\n(.*?)^```", page.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE
    )


def examples(page: Path) -> list[tuple[str, str | None]]:
    """The Python on a page, each with the block of text below it, which shows what it prints."""
    pattern = r"^```python\n(.*?)^```\n(?:\n```text\n(.*?)^```)?"
    found = re.finditer(pattern, page.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    return [(match[1], match[2]) for match in found]


def commands() -> list[str]:
    """Every line that begins with `relucid`, its comment left out."""
    lines = (line for page in PAGES.values() for block in blocks(page, "") for line in block.splitlines())
    return sorted({line.partition("#")[0].strip() for line in lines if line.startswith("relucid ")})


@pytest.fixture
def backbones():
    """A page adds one."""
    before = dict(BACKBONES)
    yield
    BACKBONES.clear()
    BACKBONES.update(before)


@pytest.mark.parametrize("page", [name for name, path in PAGES.items() if blocks(path, "python")])
def test_the_python_on_a_page_runs_and_prints_what_the_page_shows(
    page, backbones, monkeypatch, tmp_path, capsys
):
    monkeypatch.chdir(tmp_path)
    names = {}
    for block, output in examples(PAGES[page]):
        capsys.readouterr()
        exec(compile(block, page, "exec"), names)
        printed = capsys.readouterr().out
        same = doctest.OutputChecker().check_output(output or "", printed, doctest.ELLIPSIS)
        assert same, f"the page shows:\n{output}\nbut this is printed:\n{printed}"


@pytest.mark.parametrize("command", commands())
def test_a_command_on_a_page_exists_with_its_options(command):
    _, name, *arguments = shlex.split(command)
    known = typer.main.get_command(app).commands
    known[name].make_context(name, arguments, resilient_parsing=False)


@pytest.mark.parametrize("page", PAGES)
def test_what_a_page_links_to_is_there(page):
    text = re.sub(r"^```.*?^```", "", PAGES[page].read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
    targets = re.findall(r"\]\((?!http)([^)#]+)", text)
    missing = [target for target in targets if not (PAGES[page].parent / target).exists()]
    assert not missing
