"""A converted network as a program that runs without the network's code."""

import logging
import warnings
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor, nn

from relucid._improve._handover import exported
from relucid.convert import ConversionError
from relucid.printing import first_line

FAILURE = "the converted network cannot be exported"


def write_program(model: nn.Module, example: Tensor, path: Path) -> None:
    """Write a program that `torch.export.load` reads, for batches of any size."""
    torch.export.save(_program(model, example), path)


def write_onnx(model: nn.Module, example: Tensor, path: Path) -> None:
    """Write a graph that ONNX runtimes read, for batches of any size."""
    program = _program(model, example)
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # remarks of torch
            graph = torch.onnx.export(program, input_names=["input"], verbose=False)
    except Exception as error:
        raise ConversionError(f"{FAILURE}: {first_line(error)}") from error
    finally:
        logging.disable(logging.NOTSET)
    if graph is None:
        raise ConversionError(f"{FAILURE} to ONNX")
    graph.save(path, external_data=False)


WRITERS: dict[str, tuple[str, Callable[[nn.Module, Tensor, Path], None] | None]] = {
    "safetensors": ("weights.safetensors", None),
    "pt2": ("model.pt2", write_program),
    "onnx": ("model.onnx", write_onnx),
}


def _program(model: nn.Module, example: Tensor) -> torch.export.ExportedProgram:
    """Export the network in evaluation mode, for batches of any size where its own code allows it."""
    batch = example if len(example) > 1 else torch.cat([example, example])  # export would fix a size of 1
    program, reason = exported(model.eval(), batch)
    if program is None or reason:
        raise ConversionError(f"{FAILURE}: {reason}")
    return program
