"""The files of an improvement: the network in plain layers, a program that loads anywhere, weights, and the page."""

import json
import warnings
from collections.abc import Mapping
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from relucid._improve._improvement import GIVEN, Improvement
from relucid._improve._page import improvement_page
from relucid._improve._task import Called
from relucid._torch import tree_map
from relucid.convert import ConversionError, fuse
from relucid.convert._restore import WEIGHTS
from relucid.data.source import count_rows
from relucid.files import replacing
from relucid.printing import first_line

PROGRAM, EXAMPLE = "network.pt2", "example.safetensors"
DESCRIPTION, PAGE = "improvement.json", "page.html"
FILES = (WEIGHTS, PROGRAM, EXAMPLE, DESCRIPTION, PAGE)
LOAD = f'network = torch.export.load("{PROGRAM}").module()'
PRINTED = 1000  # outputs that go into the description; all are in `EXAMPLE`


def exported(network: nn.Module, example: Any) -> "tuple[torch.export.ExportedProgram | None, str]":
    """Export the network, without the example: for batches of any size, else of the example's, else not at all.

    The second result is why it is not for any size, "" if it is.
    """
    named = dict(example) if isinstance(example, Mapping) else {}
    several = tuple(example) if isinstance(example, tuple | list) else (example,) * (not named)
    args, kwargs = tree_map(lambda leaf: leaf.clone() if isinstance(leaf, Tensor) else leaf, (several, named))
    reason = ""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # warnings that torch itself causes
        for size in torch.export.Dim.AUTO, None:
            dynamic = size and tree_map(partial(_dynamic, size), kwargs if named else args)
            try:
                program = torch.export.export(network, args, kwargs, dynamic_shapes=dynamic, strict=False)
            except Exception as error:  # torch may fail in any way on code that it cannot follow
                reason = first_line(error)
                continue
            _keep_weights_only(program)
            return program, reason
    return None, reason


def _dynamic(size: Any, leaf: Any) -> Any:
    return {0: size} if isinstance(leaf, Tensor) else None


def _keep_weights_only(program: "torch.export.ExportedProgram") -> None:
    """Remove the example and the rest of all storages: saving a view saves everything that it is a view of."""
    program.example_inputs = None
    for tensors in (program.state_dict, program.constants):
        for name, value in tensors.items():
            if isinstance(value, Tensor) and value.untyped_storage().nbytes() > value.nbytes:
                alone = value.detach().clone()
                tensors[name] = (
                    nn.Parameter(alone, value.requires_grad) if isinstance(value, nn.Parameter) else alone
                )


def fill(improvement: Improvement, directory: Path, command: str) -> None:
    """Write all files of an improvement into an empty directory.

    Args:
        improvement: what was tried, and what came of it.
        directory: where to.
        command: the command that the user typed, for the page.
    """
    from safetensors import SafetensorError
    from safetensors.torch import save_file

    example, network, notes = improvement.project.task.example, improvement.network, []
    try:
        network = fuse(network, example).model.eval()
    except ConversionError as error:
        notes.append(f"The network is returned as it was trained, not in plain layers: {error}.")
    plain = not notes
    with torch.no_grad():
        outputs = Called(network, raw=True)(example)
    program, reason = exported(network, example)
    if program is None:
        notes.append(f"There is no {PROGRAM}, because torch cannot export the network: {reason}")
    elif reason:
        notes.append(f"{PROGRAM} takes batches of {count_rows(example)} only.")
    try:
        improvement.conversion.save(directory)
        save_file(_tensors({"inputs": example, "outputs": outputs}), directory / EXAMPLE)
        if program is not None:
            torch.export.save(program, directory / PROGRAM)
    except (SafetensorError, RuntimeError) as error:  # on a full disk, say
        raise OSError(first_line(error)) from error
    load = None if program is None else LOAD
    described = description(improvement) | {
        "plain layers": plain,
        "notes": notes,
        "load": load,
        "outputs": {
            name: {"shape": list(tensor.shape), "first": tensor.flatten()[:PRINTED].tolist()}
            for name, tensor in _tensors({"outputs": outputs}).items()
        },
    }
    (directory / DESCRIPTION).write_text(json.dumps(described, indent=1) + "\n")
    lines = ["import torch", load] if load else []
    page = improvement_page(improvement, load=lines, notes=notes, command=command)
    (directory / PAGE).write_text(page, encoding="utf-8")


def save(improvement: Improvement, directory: Path) -> None:
    """Write the files into a new directory, all of them or none."""
    if directory.exists():
        raise ValueError(f"{directory} exists: name a directory that does not")
    directory.parent.mkdir(parents=True, exist_ok=True)
    with replacing(directory) as new:
        new.mkdir()
        fill(improvement, new, f"relucid.improve(...).save({str(directory)!r})")


def _tensors(value: Any, name: str = "") -> dict[str, Tensor]:
    """All tensors in nested containers, by names such as "inputs.input_ids"."""
    if isinstance(value, Tensor):
        return {name: value.detach().contiguous().clone()}
    if isinstance(value, Mapping):
        parts: Any = value.items()
    else:
        parts = (
            enumerate(value) if isinstance(value, tuple | list) else getattr(value, "__dict__", {}).items()
        )
    inside = (_tensors(part, f"{name}.{key}" if name else str(key)) for key, part in parts)
    return {key: tensor for part in inside for key, tensor in part.items()}


def description(improvement: Improvement) -> dict[str, Any]:
    """What was done and found as plain data, for programs."""
    project, row = improvement.project, improvement.row
    return {
        "network": project.task.name,
        "headline": improvement.headline(),
        "better": improvement.better,
        "returned": row,
        "start": None if row == GIVEN else asdict(project.treatments[row]),
        "left out": dict(project.left_out),
        "examination": [finding.sentence for finding in project.examination.findings],
        "rows": improvement.rows(),
        "protocol": project.protocol,
        "runs": improvement.records(),
    }
