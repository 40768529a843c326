"""convert: a network of the user's own, changed in one of our ways, its function kept."""

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from relucid.cli.foreign import first_line, foreign
from relucid.cli.names import names
from relucid.cli.options import DATA, EXAMPLE, Checkpoint, Factory, Unsafe, completing
from relucid.cli.output import check_directory, write_directory

if TYPE_CHECKING:
    from relucid.convert import Conversion

FILES = ("weights.safetensors", "conversion.json")
WITH_LAYERS = ("crelu", "merge", "geometric")


def conversions() -> "dict[str, Callable[..., Conversion]]":
    """What `--to` can name."""
    from relucid.convert import fuse, to_crelu, to_geometric, to_heavy_ball

    return {
        "crelu": to_crelu,
        "merge": partial(to_crelu, mode="merge"),
        "geometric": to_geometric,
        "heavy-ball": to_heavy_ball,
        "plain": fuse,
    }


def convert(
    network: Factory,
    to: Annotated[
        str,
        typer.Option(
            help=f"What to make of it: {', '.join(names()['conversions'])}.",
            autocompletion=completing(names()["conversions"]),
        ),
    ],
    example: Annotated[str, typer.Option(help=EXAMPLE)],
    out: Annotated[Path, typer.Option("--out", "-o", help="Directory for the result.")],
    checkpoint: Checkpoint = None,
    data: Annotated[
        str | None, typer.Option(help=f"{DATA} For merge, which fits the layers that read to them.")
    ] = None,
    layers: Annotated[
        list[str] | None,
        typer.Option(
            help="Name or glob of layers to convert, or auto for those that `examine` suggests; repeat it for "
            "more. All layers by default."
        ),
    ] = None,
    tolerance: Annotated[
        float | None, typer.Option(help="Largest relative difference of the outputs that is accepted.")
    ] = None,
    budget: Annotated[
        float | None, typer.Option(help="For merge: merge until the outputs differ by this much, relatively.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace an earlier result.")] = False,
    unsafe: Unsafe = False,
) -> None:
    """Change a network and keep its function: writes weights.safetensors and conversion.json into a directory.

    The same conversion in Python gives the network itself: relucid.convert.to_crelu(model, example).model loads these
    weights. With --data, merge fits what reads the merged channels to what it computed before.
    """
    from relucid.cli.network import batches_of, build, example_of
    from relucid.convert import ConversionError
    from relucid.studies.study import named

    change = named(to, conversions(), "conversion")
    check_directory(out, FILES, force)
    if layers and to not in WITH_LAYERS:
        raise ValueError(f"--layers is for {', '.join(WITH_LAYERS)}; {to} changes the whole network")
    if (budget is not None or data is not None) and to != "merge":
        raise ValueError("--budget and --data are for merge; the other conversions change no output")
    said = {"layers": "auto" if layers == ["auto"] else layers, "tolerance": tolerance, "budget": budget}
    options: dict[str, Any] = {name: value for name, value in said.items() if value is not None}
    built = build(network, checkpoint, unsafe=unsafe).eval()
    first = example_of(example, built)
    batches = {} if data is None else {"data": batches_of(data, built)}
    with foreign("the network cannot be converted", ConversionError):
        converted = change(built, first, **options, **batches)
    description = {
        "network": network,
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


def _write(converted: "Conversion", description: dict[str, Any], out: Path) -> None:
    """Fill a directory with the weights and what was done to them."""
    from safetensors import SafetensorError
    from safetensors.torch import save_model

    try:
        save_model(converted.model, str(out / "weights.safetensors"))
    except SafetensorError as error:
        raise OSError(first_line(error)) from error
    (out / "conversion.json").write_text(json.dumps(description, indent=1) + "\n")
