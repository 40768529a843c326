"""A version for a user's own function: it changes when the code does."""

import ast
import hashlib
import inspect
import json
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

import torch

import relucid

# Calls in an assignment that only describe a study, and do nothing else.
DESCRIBING = {
    *(
        "Claim",
        "Column",
        "Derived",
        "Equal",
        "Higher",
        "Lower",
        "Near",
        "NotWorse",
        "Quantity",
        "Runner",
        "Scale",
    ),
    *("Statistic", "Study", "dict", "list", "range", "tuple"),
}


def version_of(function: Callable[..., Any]) -> str:
    """The version of a user's function: a digest of its source, and the releases of relucid and torch.

    The digest covers the file that the function is in and the modules it imports from beside it, without comments
    and layout, and without what the function never reads: the study itself, its rows and columns, functions that
    draw its figures. Rows may thus be added to a study, and its runs still count. In a notebook it covers the
    function and the functions, classes and constants that it uses. Of relucid and torch the first two numbers
    count (2.13): a release may change what a layer does, a repair of one does not.

    >>> version_of(lambda config: {"error": 1.0}) == version_of(lambda config: {"error": 2.0})
    False
    """
    digest = hashlib.sha256("\n".join(_texts(inspect.unwrap(function))).encode()).hexdigest()[:12]
    return f"source {digest}, relucid {_release(relucid.__version__)}, torch {_release(torch.__version__)}"


def _release(version: str) -> str:
    return ".".join(version.split(".")[:2])


def _texts(function: Callable[..., Any]) -> Iterator[str]:
    code = getattr(function, "__code__", None)
    if code is None:  # a built-in function
        yield getattr(function, "__qualname__", repr(function))
        return
    path = Path(code.co_filename)
    if not path.is_file():
        yield from _live(function, set())
        return
    yield from _taken(function)
    counting = _counting(ast.parse(path.read_text()).body, code.co_firstlineno)
    yield from map(ast.unparse, counting)
    for file in sorted(_beside(counting, path, set())):
        yield ast.unparse(ast.parse(file.read_text()))


def _taken(function: Any) -> Iterator[str]:
    """The plain values that an inner function has captured."""
    taken = inspect.getclosurevars(function).nonlocals
    yield from (f"{name} = {_plain(value)}" for name, value in sorted(taken.items()))


def _plain(value: Any) -> str:
    """Numbers, text, and lists or dictionaries of them as text; for anything else only its type."""
    try:
        return json.dumps(value, sort_keys=True)
    except (TypeError, ValueError):
        return type(value).__qualname__


def _counting(statements: list[ast.stmt], line: int) -> list[ast.stmt]:
    """The statements of a file that can affect the function on this line."""
    idle = [each for each in statements if _describes(each) and not _spans(each, line)]
    while True:
        active = [each for each in statements if each not in idle]
        read = {node.id for each in active for node in ast.walk(each) if isinstance(node, ast.Name)}
        rest = [each for each in idle if not _bound(each) & read]
        if len(rest) == len(idle):
            return active
        idle = rest


def _spans(statement: ast.stmt, line: int) -> bool:
    first = min([statement.lineno, *(each.lineno for each in getattr(statement, "decorator_list", []))])
    return bool(first <= line <= (statement.end_lineno or first))


def _describes(statement: ast.stmt) -> bool:
    """Whether a statement only gives something a name."""
    if isinstance(statement, ast.FunctionDef | ast.ClassDef):
        return not statement.decorator_list
    if isinstance(statement, ast.Expr):
        return isinstance(statement.value, ast.Constant)  # a docstring
    if not isinstance(statement, ast.Assign | ast.AnnAssign) or not _bound(statement):
        return False
    calls = [node.func for node in ast.walk(statement) if isinstance(node, ast.Call)]
    return all(getattr(call, "id", getattr(call, "attr", None)) in DESCRIBING for call in calls)


def _bound(statement: ast.stmt) -> set[str]:
    if isinstance(statement, ast.FunctionDef | ast.ClassDef):
        return {statement.name}
    targets = statement.targets if isinstance(statement, ast.Assign) else [getattr(statement, "target", None)]
    names = [target.id for target in targets if isinstance(target, ast.Name)]
    return set(names) if len(names) == len(targets) else set()


def _beside(statements: list[ast.stmt], path: Path, found: set[Path]) -> set[Path]:
    """The files beside this one that the statements import, and the files that those import."""
    root = path.resolve().parent
    while (root / "__init__.py").exists():
        root = root.parent
    for statement in statements:
        for node in ast.walk(statement):
            for module in _imported(node, path.resolve().parent, root):
                for file in (module.with_suffix(".py"), module / "__init__.py"):
                    if file.is_file() and file not in found:
                        found.add(file)
                        _beside(ast.parse(file.read_text()).body, file, found)
    return found


def _imported(node: ast.AST, here: Path, root: Path) -> Iterator[Path]:
    """The paths at which modules imported by a statement would be if they were beside the file."""
    if isinstance(node, ast.Import):
        for alias in node.names:
            yield root.joinpath(*alias.name.split("."))
    elif isinstance(node, ast.ImportFrom):
        start = root if not node.level else [here, *here.parents][node.level - 1]
        module = start.joinpath(*(node.module or "").split("."))
        yield module
        yield from (module / alias.name for alias in node.names)


def _live(thing: Any, seen: set[int]) -> Iterator[str]:
    """The code of a function without a file, and of the functions, classes and constants that it uses."""
    thing = getattr(thing, "__func__", getattr(thing, "fget", thing))  # methods and properties
    if id(thing) in seen:
        return
    seen.add(id(thing))
    if isinstance(thing, type):
        for value in vars(thing).values():
            yield from _live(value, seen)
    elif isinstance(thing, FunctionType):
        names = yield from _code(thing.__code__)
        yield from _taken(thing)
        for name in sorted(names & thing.__globals__.keys()):
            value = thing.__globals__[name]
            yield f"{name} = {_plain(value)}"
            if getattr(value, "__module__", None) == thing.__module__:
                yield from _live(value, seen)
    else:
        yield _plain(thing)


def _code(code: CodeType) -> Generator[str, None, set[str]]:
    """A function's compiled code, and the names it uses."""
    names = set(code.co_names)
    yield code.co_code.hex()
    yield repr(code.co_names)
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            names |= yield from _code(constant)
        else:
            yield repr(sorted(constant, key=repr) if isinstance(constant, frozenset) else constant)
    return names
