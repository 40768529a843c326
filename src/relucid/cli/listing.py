"""list: the names of studies, models and data sets."""

import json
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.padding import Padding
from rich.table import Table as Grid

from relucid.cli.names import names
from relucid.paths import directory


def list_(
    only_models: Annotated[bool, typer.Option("--models", help="Only the models, one per line.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")] = False,
) -> None:
    """List the studies, the models and the data sets, and say which data sets are present."""
    known = names()
    there = {name: file is None or (directory() / file).exists() for name, file in known["data"].items()}
    if as_json:
        everything = {"studies": known["studies"], "models": known["models"], "data": there}
        typer.echo(json.dumps(known["models"] if only_models else everything, indent=1))
    elif only_models:
        typer.echo("\n".join(known["models"]))
    else:
        _show(there)


def _show(data: dict[str, bool]) -> None:
    """Print everything to the terminal: one line per study, the short names first."""
    console, known = Console(highlight=False), names()
    console.print("Data sets", style="bold")
    for label, wanted in ("present", True), ("missing", False):
        found = ", ".join(name for name, there in data.items() if there is wanted)
        console.print(Padding(f"{label}: {found or 'none'}", (0, 2)))
    console.print(
        f"  Looked for in {escape(str(directory()))}; set RELUCID_DATA to use another directory.",
        soft_wrap=True,
    )
    console.print("\nModels", style="bold")
    own = [name for name in known["models"] if "/" not in name]
    console.print(Padding("  ".join(own), (0, 2)))
    console.print(f"  and {len(known['models']) - len(own)} of the papers: relucid list --models")
    console.print("\nStudies, for relucid run; begin with quickstart", style="bold")
    grid = Grid.grid(padding=(0, 2))
    grid.add_column(no_wrap=True)
    for name in sorted(known["studies"], key=lambda name: (name != "quickstart", "/" in name)):
        grid.add_row(f"  {name}", escape(known["studies"][name]["title"]))
    console.print(grid)
