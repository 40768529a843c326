"""convert: a network of the user's own, changed in one of our ways, its function kept."""

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from relucid.cli.network import Checkpoint, Factory, Inputs, Shape, Unsafe, batches_of, build, example_of
from relucid.cli.output import check_directory, write_directory
from relucid.convert import Conversion, fuse, to_crelu, to_geometric, to_heavy_ball
from relucid.studies.study import named

CONVERSIONS: dict[str, Callable[..., Conversion]] = {
    "crelu": to_crelu,
    "merge": partial(to_crelu, mode="merge"),
    "geometric": to_geometric,
    "heavy-ball": to_heavy_ball,
    "plain": fuse,
}
FILES = ("weights.safetensors", "conversion.json")
WITH_LAYERS = ("crelu", "merge", "geometric")


def convert(
    factory: Factory,
    to: Annotated[str, typer.Option(help=f"{', '.join(CONVERSIONS)}.")],
    example: Shape,
    out: Annotated[Path, typer.Option("--out", "-o", help="Directory for the result.")],
    checkpoint: Checkpoint = None,
    data: Inputs | None = None,
    layers: Annotated[
        list[str] | None,
        typer.Option(help="Names or globs of layers, or auto; again for more. All, by default."),
    ] = None,
    tolerance: Annotated[float | None, typer.Option(help="Largest relative difference of outputs.")] = None,
    budget: Annotated[float | None, typer.Option(help="The same for merge, which fills it.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace an existing result.")] = False,
    unsafe: Unsafe = False,
) -> None:
    """Change a network, keep its function: writes weights.safetensors and conversion.json into a directory.

    The same conversion in Python has the network itself: relucid.convert.to_crelu(model, example).model loads these
    weights. With --data, merge fits what reads the merged channels to what it computed before.
    """
    change = named(to, CONVERSIONS, "conversion")
    check_directory(out, FILES, force)
    if layers and to not in WITH_LAYERS:
        raise ValueError(f"--layers is for {', '.join(WITH_LAYERS)}; {to} changes the whole network")
    if (budget is not None or data is not None) and to != "merge":
        raise ValueError("--budget and --data are for merge; the other conversions change no output")
    said = {"layers": "auto" if layers == ["auto"] else layers, "tolerance": tolerance, "budget": budget}
    options: dict[str, Any] = {name: value for name, value in said.items() if value is not None}
    network = build(factory, checkpoint, unsafe=unsafe).eval()
    batches = {} if data is None else {"data": batches_of(data, network)}
    converted = change(network, example_of(example, network), **options, **batches)
    description = {
        "network": factory,
        "checkpoint": None if checkpoint is None else str(checkpoint),
        "conversion": to,
        "example": example,
        "data": data,
        "options": options,
        **converted.to_dict(),
    }
    write_directory(out, FILES, force, partial(_write, converted, description))
    typer.echo(converted.summary())
    typer.echo(f"Written to {out}: weights.safetensors, conversion.json", err=True)


def _write(converted: Conversion, description: dict[str, Any], out: Path) -> None:
    """Fill a directory with the weights and what was done to them."""
    from safetensors.torch import save_model

    save_model(converted.model, str(out / "weights.safetensors"))
    (out / "conversion.json").write_text(json.dumps(description, indent=1) + "\n")
