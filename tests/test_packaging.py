"""What an installation needs is what the project says it needs."""

import ast
import re
import sys
import tomllib
from pathlib import Path

from relucid import __version__

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "relucid"
CORE = ("nn", "models", "inspect", "convert")
DISTRIBUTIONS = {"PIL": "pillow", "sklearn": "scikit-learn"}  # those not named as they are imported
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
EXTRAS = set(PROJECT["optional-dependencies"])


def normal(name):
    """A distribution's name, however its hyphens and capitals are written."""
    return re.sub(r"[-_.]+", "-", name).lower()


def declared(*extras):
    """The distributions that are always installed, and those that some extras add."""
    lists = [PROJECT["dependencies"], *(PROJECT["optional-dependencies"][extra] for extra in extras)]
    return {normal(re.match(r"[\w.-]+", each)[0]) for requirements in lists for each in requirements}


def modules(node):
    """The modules that one statement or call imports."""
    if isinstance(node, ast.Import):
        return [name.name for name in node.names]
    if isinstance(node, ast.ImportFrom):
        return [node.module or ""]
    if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("import_module"):
        return [node.args[0].value] if isinstance(node.args[0], ast.Constant) else []
    return []


def third_party(nodes):
    """The distributions that are imported, other than Python's own and this one."""
    names = {name.split(".")[0] for node in nodes for name in modules(node)}
    foreign = names - sys.stdlib_module_names - {"relucid"}
    return {normal(DISTRIBUTIONS.get(name, name)) for name in foreign}


def trees(*rooms):
    folders = [SOURCE / room for room in rooms] or [SOURCE]
    return [
        ast.parse(path.read_text(encoding="utf-8")) for folder in folders for path in folder.rglob("*.py")
    ]


def test_every_import_is_declared():
    imported = third_party(node for tree in trees() for node in ast.walk(tree))
    its_own_callback = {"lightning"}  # only those who train with it ask for it
    assert imported - declared(*EXTRAS - {"dev", "docs"}) == its_own_callback


def test_the_core_imports_at_its_head_only_what_is_always_installed():
    heads = [node for tree in trees(*CORE) for node in tree.body]
    assert third_party(heads) == {"torch", "numpy"}


def test_everything_declared_is_pinned():
    pins = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pinned = {normal(line.partition("==")[0]) for line in pins if "==" in line}
    assert declared(*EXTRAS) - pinned - {"relucid"} == set()


def test_the_changelog_and_the_citation_are_of_this_version():
    citation, changelog = (
        (ROOT / name).read_text(encoding="utf-8") for name in ("CITATION.cff", "CHANGELOG.md")
    )
    assert f"\nversion: {__version__}\n" in citation
    released = re.search(r"^date-released: (\S+)$", citation, re.MULTILINE)[1]
    newest = re.search(r"^## (?!Unreleased).*$", changelog, re.MULTILINE)[0]
    assert newest == f"## {__version__} ({released})"
