"""convert: change a user's network and keep its function."""

import json
import warnings
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from relucid.cli.foreign import foreign
from relucid.cli.options import EXAMPLE, EXPORTS, Checkpoint, Factory, Key, Out, Replace, Unsafe, one_of
from relucid.cli.output import check_directory, write_directory
from relucid.conversions import CONVERSIONS
from relucid.extras import command
from relucid.printing import first_line

if TYPE_CHECKING:
    from relucid.convert import Conversion

DESCRIPTION = "conversion.json"
FILES = (DESCRIPTION, "weights.safetensors", "model.pt2", "model.onnx")
WITH_LAYERS = ("crelu", "merge", "geometric")


Kind = Annotated[
    str, one_of([*CONVERSIONS], "--to", f"What to convert it to: {', '.join(CONVERSIONS)}.", "KIND")
]
Example = Annotated[str, typer.Option(metavar="SHAPE", help=EXAMPLE)]
Layers = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME",
        help="Name or glob of layers to convert or, with --to crelu, auto for those that `examine` suggests; "
        "repeat the option for more. All layers by default.",
    ),
]
Tolerance = Annotated[
    float | None,
    typer.Option(
        metavar="X",
        help="Largest acceptable relative difference of the outputs; merge shares as many filters as it allows.",
    ),
]
Format = Annotated[
    str,
    one_of(
        EXPORTS,
        "--format",
        "safetensors: the weights alone; pt2: also a program for torch.export.load; onnx: also a graph for ONNX "
        "runtimes.",
    ),
]


def convert(
    network: Factory,
    to: Kind,
    example: Example,
    out: Out,
    checkpoint: Checkpoint = None,
    layers: Layers = None,
    tolerance: Tolerance = None,
    form: Format = "safetensors",
    force: Replace = False,
    unsafe: Unsafe = False,
    key: Key = None,
) -> None:
    """Convert a network and keep its function; write the result, and a record of the changes, into a directory.

    In Python, relucid.convert.load(directory, network) makes the same of a new
    instance of the network. conversion.json says what happened to every layer,
    and how far the outputs moved.
    """
    from relucid.cli.export import WRITERS
    from relucid.cli.network import build, example_of, origin
    from relucid.convert import ConversionError, UnchangedWarning
    from relucid.experiments._study import named

    change = named(to, CONVERSIONS, "conversion").call()
    file, write = named(form, WRITERS, "format")
    if form == "onnx" and find_spec("onnxscript") is None:
        raise ValueError(f"--format onnx needs onnxscript: {command('onnx')}")
    check_directory(out, FILES, force)
    options = _options(to, layers, tolerance)
    built = build(network, checkpoint, unsafe=unsafe, key=key).eval()
    first = example_of(example, built)
    with foreign("the network cannot be converted", ConversionError), warnings.catch_warnings():
        warnings.simplefilter("ignore", UnchangedWarning)
        converted = change(built, first, **options)
    if not converted.changed and to != "plain":
        typer.echo(converted.summary())
        raise ValueError(f"--to {to} changes no layer of this network; nothing is written")
    description = {
        "network": origin(network),
        "checkpoint": None if checkpoint is None else str(checkpoint),
        "conversion": to,
        "example": example,
        "options": options,
        **converted.to_dict(),
    }

    def fill(place: Path) -> None:
        _saved(converted, place)
        if write is not None:
            write(converted.model, first, place / file)
        (place / DESCRIPTION).write_text(json.dumps(description, indent=1) + "\n")

    write_directory(out, FILES, force, fill)
    typer.echo(converted.summary())
    typer.echo(f"Written to {out}: {', '.join(sorted(path.name for path in out.iterdir()))}", err=True)


def _options(to: str, layers: list[str] | None, tolerance: float | None) -> dict[str, Any]:
    """The options of a conversion that the user gave; refuse those that it does not have."""
    if layers and to not in WITH_LAYERS:
        raise ValueError(f"--layers is for {', '.join(WITH_LAYERS)}; {to} changes the whole network")
    options = {"layers": "auto" if layers == ["auto"] else layers, "tolerance": tolerance}
    return {name: value for name, value in options.items() if value is not None}


def _saved(converted: "Conversion", place: Path) -> None:
    """Write the weights and operations, from which `convert`, `examine` and Python go on."""
    from safetensors import SafetensorError

    try:
        converted.save(place)
    except SafetensorError as error:
        raise OSError(first_line(error)) from error
