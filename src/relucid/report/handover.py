"""What an improvement hands back: the network in plain layers, weights, a program that loads anywhere, and the page."""

import json
import tempfile
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from relucid.convert import ConversionError, fuse
from relucid.report.improvement import improvement_page
from relucid.studies.improve import Improvement

WEIGHTS, PROGRAM, EXAMPLE = "weights.safetensors", "network.pt2", "example.safetensors"
DESCRIPTION, PAGE = "improvement.json", "page.html"
FILES = (WEIGHTS, PROGRAM, EXAMPLE, DESCRIPTION, PAGE)
LOAD = f'network = torch.export.load("{PROGRAM}").module()'
PRINTED = 1000  # outputs that go into the description; all are in `EXAMPLE`


@dataclass(frozen=True, eq=False)
class Handed:
    """A network ready to be handed back.

    Args:
        network: in plain layers, where that is possible.
        program: the same as torch.export has it; None where it cannot be exported.
        plain: whether its layers are plain.
        outputs: on the example, (N, ...).
        notes: what a reader must know, in sentences.
    """

    network: nn.Module
    program: "torch.export.ExportedProgram | None"
    plain: bool
    outputs: Tensor
    notes: tuple[str, ...]


def handed(found: Improvement) -> Handed:
    """Convert the network to plain layers and export it."""
    example, network, plain, notes = found.project.subject.example, found.network, True, []
    try:
        network = fuse(network, example).model.eval()
    except ConversionError as error:
        plain = False
        notes.append(f"The network is handed back as it was trained, not in plain layers: {error}.")
    with torch.no_grad():
        outputs = network(example)
    program, note = exported(network, example)
    notes += [note] * bool(note)
    if not found.exact:
        notes.append(
            "Trained once more to be handed back, the network differs from the recorded one by rounding."
        )
    return Handed(network, program, plain, outputs, tuple(notes))


def exported(network: nn.Module, example: Tensor) -> "tuple[torch.export.ExportedProgram | None, str]":
    """Export the network for batches of any size, else for batches of the example's size; or say why neither works."""
    batch = torch.export.Dim("batch")
    reason = ""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # warnings that torch itself causes
        for shapes in ({0: batch},), None:
            try:
                program = torch.export.export(
                    network, (example.clone(),), dynamic_shapes=shapes, strict=False
                )
            except Exception as error:  # torch may fail in any way on code that it cannot follow
                reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
                continue
            _keep_weights_only(program)
            return program, "" if shapes else f"{PROGRAM} takes batches of {len(example)} only."
    return None, f"There is no {PROGRAM}, because torch cannot export the network: {reason}"


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


def fill(found: Improvement, directory: Path, command: str) -> None:
    """Write all files of an improvement into an empty directory.

    Args:
        found: the improvement.
        directory: where to.
        command: the command that the user typed, for the page.
    """
    from safetensors import SafetensorError
    from safetensors.torch import save_file, save_model

    result = handed(found)
    try:
        save_model(result.network, str(directory / WEIGHTS))
        tensors = {"inputs": found.project.subject.example, "outputs": result.outputs}
        save_file({name: value.contiguous() for name, value in tensors.items()}, directory / EXAMPLE)
        if result.program is not None:
            torch.export.save(result.program, directory / PROGRAM)
    except (SafetensorError, RuntimeError) as error:  # on a full disk, say
        raise OSError((str(error).strip().splitlines() or ["the weights cannot be written"])[0]) from error
    (directory / DESCRIPTION).write_text(json.dumps(description(found, result), indent=1) + "\n")
    load = ["import torch", LOAD] if result.program is not None else []
    page = improvement_page(found, load=load, notes=result.notes, command=command)
    (directory / PAGE).write_text(page, encoding="utf-8")


def save(found: Improvement, directory: Path) -> None:
    """Write the files into a new directory, all of them or none."""
    if directory.exists():
        raise ValueError(f"{directory} exists: name a directory that does not")
    directory.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=directory.parent, prefix=".relucid-") as place:
        filled = Path(place) / "filled"
        filled.mkdir()
        fill(found, filled, f"relucid.improve(...).save({str(directory)!r})")
        filled.rename(directory)


def description(found: Improvement, result: Handed) -> dict[str, Any]:
    """What was done and found as plain data, for programs."""
    outputs = result.outputs.flatten()[:PRINTED]
    return {
        "network": found.project.subject.name,
        "headline": found.headline(),
        "better": found.better,
        "handed back": found.row,
        "seed": found.seed,
        "metrics": dict(found.metrics),
        "start": found.project.starts[found.row].to_dict(),
        "plain layers": result.plain,
        "notes": list(result.notes),
        "left out": dict(found.project.left_out),
        "load": LOAD if result.program is not None else None,
        "outputs": {"shape": list(result.outputs.shape), "first": outputs.tolist()},
        "examination": [finding.sentence for finding in found.project.examination.findings],
        **{key: value for key, value in found.table.to_dict().items() if key not in ("votes", "published")},
    }
