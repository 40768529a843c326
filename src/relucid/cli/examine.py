"""examine: report what a user's network has learned."""

import json
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from relucid.cli.foreign import foreign
from relucid.cli.options import DATA, EXAMPLE, Checkpoint, Factory, Key, Overwrite, Unsafe, complete_network
from relucid.cli.output import writing

if TYPE_CHECKING:  # each command imports what it needs: --help need not wait for torch
    from torch import nn

    from relucid.inspect import Examination

CHECKPOINTS = (".pt", ".pth", ".ckpt", ".safetensors")

Example = Annotated[
    str | None, typer.Option(metavar="SHAPE", help=f"{EXAMPLE} By default the first batch of --data.")
]
Data = Annotated[str | None, typer.Option(metavar="FILE", help=DATA)]
Against = Annotated[
    str | None,
    typer.Option(
        metavar="NETWORK",
        help="Also report what changed from another network, or from an earlier checkpoint of this one.",
        autocompletion=complete_network,
    ),
]
JSON = Annotated[bool, typer.Option("--json", help="Print all measurements as JSON, for programs.")]
Page = Annotated[
    Path | None, typer.Option("--output", "-o", metavar="FILE", help="Also write a page: one HTML file.")
]


def examine(
    network: Factory,
    example: Example = None,
    data: Data = None,
    checkpoint: Checkpoint = None,
    against: Against = None,
    output: Page = None,
    as_json: JSON = False,
    force: Overwrite = False,
    unsafe: Unsafe = False,
    key: Key = None,
) -> None:
    """Report what a network has learned: which units are dead, paired or redundant, and what would improve it."""
    from relucid.cli.network import build
    from relucid.cli.tables import print_comparison, print_examination
    from relucid.report.examination import Provenance, examination_page
    from relucid.report.page import check, save

    if output is not None:
        check(output, force, "--force")
    if example is None and data is None:
        raise ValueError("examine needs inputs: pass their shape (--example 1,3,32,32), or --data")
    found, shape = _examined(build(network, checkpoint, unsafe=unsafe, key=key), example, data)
    changes = None
    if against is not None:
        earlier = Path(against).suffix in CHECKPOINTS
        other = build(network, Path(against), unsafe=unsafe) if earlier else build(against)
        changes = found.against(_examined(other, example, data)[0])
    if as_json:
        typer.echo(json.dumps(found.to_dict() | ({} if changes is None else {"changes": changes.to_dict()})))
    else:
        print_examination(found)
        if changes is not None:
            print_comparison(changes, str(against), network)
    if output is not None:
        subject = Provenance(network, None if checkpoint is None else str(checkpoint), shape, data)
        with writing(output):
            save(examination_page(found, subject), output)
        typer.echo(f"Written to {output}", err=True)


def _examined(built: "nn.Module", example: str | None, data: str | None) -> "tuple[Examination, str | None]":
    """The examination of a network, and the shape of one input if it is a tensor."""
    from torch import Tensor

    from relucid import inspect
    from relucid.cli.network import batches_of, example_of

    batches = None if data is None else batches_of(data)
    first: Any
    if example is not None:
        first = example_of(example, built)
    elif batches is not None:
        with foreign(f"{data} fails"):
            first, batches = _peek(batches)
        example = ",".join(map(str, (1, *first.shape[1:]))) if isinstance(first, Tensor) else None
    with foreign("the network fails on these inputs"), _bars() as report:
        return inspect.examine(
            built, first, batches, measures=inspect.EXTENDED_MEASURES, progress=report
        ), example


@contextmanager
def _bars() -> Iterator[Callable[[str, int, int | None], None]]:
    """Yield a function that draws a bar for each kind of step, if stderr is a terminal."""
    from rich.console import Console
    from rich.progress import Progress, TaskID

    tasks: dict[str, TaskID] = {}
    with Progress(console=Console(stderr=True), transient=True, disable=not sys.stderr.isatty()) as bars:

        def report(what: str, done: int, total: int | None) -> None:
            if what not in tasks:
                tasks[what] = bars.add_task(what, total=total)
            bars.update(tasks[what], completed=done)

        yield report


def _peek(batches: Iterable[Any]) -> tuple[Any, Iterable[Any]]:
    """The inputs of the first batch, without its labels, and all batches."""
    rest = iter(batches)
    for batch in rest:
        first = batch[0] if isinstance(batch, tuple | list) else batch
        if not hasattr(first, "__len__") or len(first):
            return first, chain([batch], rest)
    raise ValueError("--data has no inputs")
