"""A converted network as a program that runs without the network's code."""

import logging
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.export import Dim

from relucid.convert import ConversionError
from relucid.printing import first_line


def write_program(model: nn.Module, example: Tensor, path: Path) -> None:
    """Write a program that `torch.export.load` reads, for batches of any size."""
    with _exporting():
        program = _program(model, example)
    torch.export.save(program, path)


def write_onnx(model: nn.Module, example: Tensor, path: Path) -> None:
    """Write a graph that ONNX runtimes read, for batches of any size."""
    with _exporting():
        graph = torch.onnx.export(_program(model, example), input_names=["input"], verbose=False)
    if graph is None:
        raise ConversionError("the converted network cannot be exported to ONNX")
    graph.save(path, external_data=False)


WRITERS: dict[str, tuple[str, Callable[[nn.Module, Tensor, Path], None] | None]] = {
    "safetensors": ("weights.safetensors", None),
    "pt2": ("model.pt2", write_program),
    "onnx": ("model.onnx", write_onnx),
}


def _program(model: nn.Module, example: Tensor) -> torch.export.ExportedProgram:
    """Export the network in evaluation mode, for batches of any size where its own code allows it."""
    batch = example if len(example) > 1 else torch.cat([example, example])  # export would fix a size of 1
    return torch.export.export(model.eval(), (batch,), dynamic_shapes=({0: Dim.AUTO},))


@contextmanager
def _exporting() -> Iterator[None]:
    """Turn any failure of an export into a `ConversionError`, and silence torch's remarks."""
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    except Exception as error:
        raise ConversionError(f"the converted network cannot be exported: {first_line(error)}") from error
    finally:
        logging.disable(logging.NOTSET)
