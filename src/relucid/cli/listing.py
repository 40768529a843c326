"""list: the names of studies, models and data sets."""

import json
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.padding import Padding
from rich.table import Table as Grid


def list_(
    only_models: Annotated[bool, typer.Option("--models", help="Only the models, one per line.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")] = False,
) -> None:
    """List the studies, the models and the data sets, and say which data sets are present."""
    from relucid import models

    if only_models:
        typer.echo(json.dumps(models.names(), indent=1) if as_json else "\n".join(models.names()))
        return
    from relucid.data import present
    from relucid.experiments._catalog import built_in

    studies = built_in()
    if as_json:
        listed = {name: {"title": each.title, "scales": [*each.scales]} for name, each in studies.items()}
        typer.echo(json.dumps({"studies": listed, "models": models.names(), "data": present()}, indent=1))
    else:
        _show({name: each.title for name, each in studies.items()}, models.names(), present())


def _show(studies: dict[str, str], models: list[str], data: dict[str, bool]) -> None:
    """Print everything to the terminal: one line per study, the short names first."""
    from relucid.data import directory

    console = Console(highlight=False)
    console.print("Data sets", style="bold")
    for label, wanted in ("present", True), ("missing", False):
        found = ", ".join(name for name, there in data.items() if there is wanted)
        console.print(Padding(f"{label}: {found or 'none'}", (0, 2)))
    console.print(
        f"  Looked for in {escape(str(directory()))}; set RELUCID_DATA to use another directory.",
        soft_wrap=True,
    )
    console.print("\nModels", style="bold")
    own = [name for name in models if "/" not in name]
    console.print(Padding("  ".join(own), (0, 2)))
    console.print(f"  and {len(models) - len(own)} of the papers: relucid list --models")
    console.print("\nStudies, for relucid run; begin with quickstart", style="bold")
    grid = Grid.grid(padding=(0, 2))
    grid.add_column(no_wrap=True)
    for name in sorted(studies, key=lambda name: (name != "quickstart", "/" in name)):
        grid.add_row(f"  {name}", escape(studies[name]))
    console.print(grid)
