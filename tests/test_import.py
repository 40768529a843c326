import ast
import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

# What only the extras install. A part of the core that wants one imports it where it uses it.
EXTRAS = (
    *("datasets", "filelock", "jinja2", "joblib", "markupsafe", "PIL", "plotly", "pyarrow"),
    *("rich", "safetensors", "scipy", "sklearn", "threadpoolctl", "transformers", "typer"),
)
ROOMS = ("nn", "models", "data", "inspect", "convert", "remedies")
# The arrow of docs/architecture.md: a room may import from those of its own step and of the steps before it.
ARROW = (
    {"nn"},
    {"models", "data"},
    {"inspect", "convert", "remedies"},
    {"train"},
    {"experiments"},
    {"report"},
    {"_improve"},
    {"cli"},
)
SOURCE = Path(__file__).parents[1] / "src" / "relucid"
DOORSTEP = {path.stem for path in SOURCE.glob("*.py")}  # beside the rooms: what needs nothing
# `examination.save("page.html")` is a method of what it saves; it imports the page's room when it is called.
EXCEPTIONS = {"inspect/examination.py imports report"}


def test_the_core_imports_torch_and_numpy_only_and_without_a_warning():
    rooms = ", ".join(f"relucid.{room}" for room in ROOMS)
    code = f"import sys, {rooms}; print([m for m in {EXTRAS} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("[]\n", "")


def imported(path):
    """The rooms that a file imports from, at its head or within a function."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        names = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
        names += [name.name for name in node.names] if isinstance(node, ast.Import) else []
        yield from (name.split(".")[1] for name in names if name.startswith("relucid."))


def test_every_room_is_on_the_arrow():
    assert set().union(*ARROW) == {path.parent.name for path in SOURCE.glob("*/__init__.py")}


@pytest.mark.parametrize("step", range(len(ARROW)))
def test_nothing_imports_from_a_room_to_its_right(step):
    allowed = DOORSTEP.union(*ARROW[: step + 1])
    wrong = [
        f"{path.relative_to(SOURCE)} imports {room}"
        for name in ARROW[step]
        for path in (SOURCE / name).rglob("*.py")
        for room in imported(path)
        if room not in allowed
    ]
    assert set(wrong) <= EXCEPTIONS


def test_importing_changes_nothing():
    """Every module of every room is imported; without the extras, of the core's rooms."""
    complete = importlib.util.find_spec("joblib") is not None
    rooms = set().union(*ARROW) if complete else set(ROOMS)
    names = [
        "relucid." + ".".join(path.relative_to(SOURCE).with_suffix("").parts) for path in SOURCE.rglob("*.py")
    ]
    modules = sorted(name.removesuffix(".__init__") for name in names if name.split(".")[1] in rooms)
    others = [*EXTRAS, "plotly.tools"] if complete else []  # what these change is theirs
    code = Path(__file__).with_name("state_of_the_process.py")
    done = subprocess.run(
        [sys.executable, code, ",".join(others), ",".join(modules)], capture_output=True, text=True
    )
    assert (done.stdout, done.returncode) == ("[]\n", 0), done.stderr


def test_the_front_door_offers_what_people_need_by_name_and_imports_nothing_before():
    code = "import sys, relucid; print('torch' in sys.modules, 'to_crelu' in dir(relucid)); print(relucid.to_crelu)"
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True)
    assert done.stdout.startswith("False True\n<function to_crelu"), done.stderr


def test_every_name_at_the_front_door_is_there():
    import relucid

    extras = importlib.util.find_spec("joblib") is not None
    for name, module in relucid._NAMES.items():
        if name == "improve" and not extras:
            continue  # the wheel alone cannot train
        assert getattr(relucid, name) is getattr(importlib.import_module(module), name)
    with pytest.raises(AttributeError, match="to_crelo"):
        relucid.to_crelo  # noqa: B018
