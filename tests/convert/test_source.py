"""Conversions patch nothing: what their source does not hold."""

import ast
from pathlib import Path

import pytest

import relucid.convert

FILES = sorted(Path(relucid.convert.__file__).parent.glob("*.py"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_no_graph_no_lock_no_garbage_collection_and_no_assignment_to_a_name_of_torch(path):
    tree = ast.parse(path.read_text(encoding="utf-8"))
    imported, modules = set(), {"torch", "nn", "F"}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            imported |= {getattr(node, "module", None) or "", *(alias.name for alias in node.names)}
        targets = getattr(node, "targets", [getattr(node, "target", None)])
        for target in targets if isinstance(node, ast.Assign | ast.AnnAssign | ast.AugAssign) else ():
            while isinstance(target, ast.Attribute):
                target = target.value
            assert not (isinstance(target, ast.Name) and target.id in modules), ast.unparse(node)
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") in ("setattr", "delattr"):
            assert ast.unparse(node.args[0]) not in modules
    # Edits ask which optimizers there are, and finish what they have begun while an interrupt waits.
    allowed = {"gc", "threading"} if path.name == "_edits.py" else set()
    assert not imported & {"gc", "threading", "torch.fx", "fx", "builtins", "unittest.mock"} - allowed
