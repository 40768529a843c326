"""The front door: every name is typed, complete and leads into a room."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import relucid

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "relucid"
NAMES = sorted(relucid._NAMES)


def test_nothing_but_what_people_need_is_offered():
    rooms = {path.stem for path in SOURCE.iterdir()}
    assert {name for name in dir(relucid) if not name.startswith("_")} - rooms == set(NAMES) - rooms
    for name in NAMES:
        assert getattr(relucid, name).__module__.startswith("relucid.")


def hidden(package):
    """Modules of a package that a name it imports hides, so that they cannot be reached as attributes."""
    modules = {path.stem for path in package.glob("*.py")}
    modules |= {path.parent.name for path in package.glob("*/__init__.py")}
    itself = ".".join(("relucid", *package.relative_to(SOURCE).parts))
    tree = ast.parse((package / "__init__.py").read_text(encoding="utf-8"))
    imports = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.module != itself]
    names = {name.asname or name.name for node in imports for name in node.names}
    return {f"{package.name}.{name}" for name in modules & names}


def test_no_module_is_hidden_by_a_name():
    packages = [path.parent for path in SOURCE.rglob("__init__.py")]
    assert set().union(*map(hidden, packages)) == set()


@pytest.mark.needs("mypy")
def test_a_strict_type_checker_knows_every_name(tmp_path):
    """Neither unknown, nor untyped, nor merely an object; and calls are checked."""
    wrong = [
        "relucid.Watch(1)",
        "relucid.metrics(relucid.create('vgg6', num_classes=2), None).foo",
        "relucid.to_crelu(1, 2)",
    ]
    uses = [f"reveal_type({name})" for name in NAMES] + wrong
    code = tmp_path / "user.py"
    code.write_text("\n".join(["import relucid", *(f"from relucid import {name}" for name in NAMES), *uses]))
    command = [
        sys.executable,
        "-m",
        "mypy",
        "--strict",
        "--no-error-summary",
        "--cache-dir",
        ROOT / ".mypy_cache",
    ]
    done = subprocess.run([*command, code], cwd=tmp_path, capture_output=True, text=True)
    lines = [line.partition(": ")[2] for line in done.stdout.splitlines()]
    revealed = [line for line in lines if line.startswith("note: Revealed")]
    errors = [line for line in lines if line.startswith("error")]
    assert len(revealed) == len(NAMES), done.stdout + done.stderr
    assert not [line for line in revealed if '"Any"' in line or '"builtins.object"' in line]
    assert len(errors) == len(wrong) + 1, done.stdout  # the last has two wrong arguments
