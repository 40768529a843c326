"""What relucid relies on in torch's private names: each test fails when a release changes it."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

from relucid import _torch

SOURCE = Path(__file__).parents[1] / "src" / "relucid"
# A name of torch that begins with an underscore, after a dot or in an import.
PRIVATE = re.compile(
    r"torch[\w.]*\._(?!_)\w|\b_C\.|from torch[\w.]* import .*\b_\w"
    r"|\._(schema|cdata|version|parameters|buffers|modules)\b"
)


def test_no_other_file_uses_a_private_name():
    found = [
        f"{path.relative_to(SOURCE)}: {line.strip()}"
        for path in SOURCE.rglob("*.py")
        if path.name != "_torch.py"
        for line in path.read_text(encoding="utf-8").splitlines()
        if PRIVATE.search(line)
    ]
    assert found == []


@pytest.mark.parametrize(
    "base, kinds",
    [
        (_torch.ConvNd, (nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.ConvTranspose1d, nn.ConvTranspose2d)),
        (_torch.ConvTransposeNd, (nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)),
        (_torch.BatchNormNd, (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm)),
    ],
)
def test_base_classes_are_those_of_the_layers(base, kinds):
    assert all(issubclass(kind, base) for kind in kinds)
    assert not issubclass(nn.Linear, base)


def test_weight_norm_registers_the_class_that_ensembles_replace():
    layer = nn.utils.parametrizations.weight_norm(nn.Linear(2, 3))
    (found,) = layer.parametrizations.weight
    assert type(found) is _torch.WeightNorm


def test_trees_have_leaves_and_are_mapped():
    tree = {"a": [torch.ones(1), 2], "b": (3,)}
    assert len(_torch.tree_leaves(tree)) == 3
    assert _torch.tree_map(type, tree) == {"a": [torch.Tensor, int], "b": (int,)}
    assert _torch.tree_map_only(int, lambda n: n + 1, tree)["b"] == (4,)


def test_hooks_of_modules_and_parameters_are_seen():
    layer = nn.Linear(2, 2)
    counts = _torch.hook_counts(layer)
    layer.register_forward_hook(lambda *_: None)
    assert sum(_torch.hook_counts(layer)) > sum(counts)
    for register in ("register_hook", "register_post_accumulate_grad_hook"):
        weight = nn.Parameter(torch.ones(1))
        assert not _torch.parameter_hooks(weight)
        getattr(weight, register)(lambda *_: None)
        assert _torch.parameter_hooks(weight)


def test_what_a_module_has_registered_is_found_by_name():
    norm = nn.Sequential(nn.BatchNorm1d(2))
    assert [list(names) for names in _torch.registries(norm[0])][:1] == [["weight", "bias"]]
    assert list(_torch.registries(norm)[2]) == ["0"]


def test_a_compiled_network_is_known_by_the_original_that_it_holds():
    assert _torch.is_compiled(torch.compile(nn.Linear(2, 2)))
    assert not _torch.is_compiled(nn.Linear(2, 2))


def test_without_its_fast_path_a_transformer_layer_calls_its_modules():
    layer, calls = nn.TransformerEncoderLayer(4, 2, 8, batch_first=True).eval(), []
    layer.linear1.forward = lambda x: calls.append(x) or nn.functional.linear(x, layer.linear1.weight)
    for expected in (0, 1):
        with torch.no_grad():
            layer(torch.ones(1, 3, 4))
        assert len(calls) == expected
        _torch.slow_path(layer)


def test_the_class_of_a_parametrized_module_comes_after_its_own():
    layer = nn.utils.parametrizations.weight_norm(nn.Linear(2, 3))
    assert type(layer) is not nn.Linear
    assert _torch.unparametrized_class(layer) is nn.Linear


class Seen(_torch.DispatchMode):
    def __init__(self):
        super().__init__()
        self.schemas = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.schemas.append(_torch.schema_of(func))
        return func(*args, **(kwargs or {}))


def test_a_mode_sees_every_operation_with_its_schema():
    x = torch.ones(3)
    with Seen() as seen:
        torch.relu_(x).add(1)
        torch.mul(x, 2, out=torch.empty(3))
    names = [schema.name for schema in seen.schemas]
    assert [name for name in names if "empty" not in name] == ["aten::relu_", "aten::add", "aten::mul"]
    mutable = {schema.name: schema.is_mutable for schema in seen.schemas}
    assert (mutable["aten::relu_"], mutable["aten::add"]) == (True, False)
    assert [a.name for a in seen.schemas[-1].arguments if a.is_out] == ["out"]


def test_a_mode_does_not_import_the_compiler():
    code = (
        "import sys, torch\nfrom relucid import _torch\n"
        "class Mode(_torch.DispatchMode):\n"
        "    def __torch_dispatch__(self, func, types, args=(), kwargs=None):\n"
        "        return func(*args, **(kwargs or {}))\n"
        "with Mode(): torch.ones(2).relu()\n"
        "print(_torch.compiler_is_imported())\n"
        "torch.compile(torch.relu, backend='eager')(torch.ones(2))\n"
        "print(_torch.compiler_is_imported())"
    )
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True)
    assert done.stdout.split() == ["False", "True"], done.stderr


def test_tensors_that_share_memory_share_their_storage():
    x, empty = torch.ones(4), torch.empty(0)
    assert _torch.storage_of(x) == _torch.storage_of(x[1:]) == _torch.storage_of(x.detach())
    assert _torch.storage_of(x) != _torch.storage_of(x.clone())
    assert _torch.storage_of(empty) != _torch.storage_of(torch.empty(0))


def test_a_change_in_place_is_a_new_version():
    x = torch.ones(2)
    before = _torch.version_of(x)
    x.add_(1)
    assert _torch.version_of(x) == before + 1


def test_a_module_keeps_its_hooks_where_they_are_copied_from():
    old, new, calls = nn.Linear(2, 2), nn.Linear(2, 2), []
    old.register_forward_pre_hook(lambda *_: calls.append("before"))
    old.register_forward_hook(lambda *_: calls.append("after"))
    old.register_full_backward_hook(lambda *_: calls.append("backward"))
    assert all(hasattr(old, name) for name in _torch.HOOKS)
    _torch.copy_hooks(old, new)
    new(torch.ones(1, 2, requires_grad=True)).sum().backward()
    assert calls == ["before", "after", "backward"]
    assert _torch.has_hooks(new)
    assert not _torch.has_hooks(nn.Linear(2, 2))


def test_a_tensor_inside_a_transform_is_known_as_one():
    seen = []
    torch.func.vmap(lambda x: seen.append(_torch.is_functorch_wrapped_tensor(x)) or x)(torch.ones(2))
    assert seen == [True]
    assert not _torch.is_functorch_wrapped_tensor(torch.ones(2))
