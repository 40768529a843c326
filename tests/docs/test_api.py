"""The page of the API by task names functions that exist, with arguments that they take."""

import ast
import importlib
import inspect
import re
from pathlib import Path

import pytest

PAGE = (Path(__file__).parents[2] / "docs" / "api" / "index.md").read_text(encoding="utf-8")
CALLS = re.findall(r"\[`([^`]+)`\]\[([\w.]+)\]", PAGE)


@pytest.mark.parametrize("call, path", CALLS)
def test_a_call_names_arguments_that_the_function_takes(call, path):
    package, _, name = path.rpartition(".")
    known = inspect.signature(getattr(importlib.import_module(package), name)).parameters
    shown = ast.parse(call, mode="eval").body
    assert shown.func.id == name
    names = [argument.id for argument in shown.args]
    assert names == [each for each in known if each in names], "named in another order, or not at all"
