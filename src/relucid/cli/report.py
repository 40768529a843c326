"""report and examine: the commands that make a page."""

import json
from collections.abc import Iterable
from itertools import chain
from pathlib import Path
from typing import Annotated, Any

import typer
from torch import Tensor

from relucid import inspect, papers
from relucid import studies as engine
from relucid.cli.network import Checkpoint, Factory, Inputs, Shape, Unsafe, batches_of, build, example_of
from relucid.cli.studies import Directory, Name, ScaleName

Force = Annotated[bool, typer.Option("--force", help="Overwrite the page if it exists.")]


def report(
    study: Name,
    output: Annotated[Path, typer.Option("-o", "--output", help="Where to write the page.")] = Path(
        "page.html"
    ),
    scale: ScaleName = None,
    store: Directory = None,
    force: Force = False,
) -> None:
    """Write the page of a study: one HTML file with its findings, tables and figures."""
    from relucid.report.page import check, save
    from relucid.report.study import study_page

    check(output, force)
    where = store or engine.default_store()
    results = engine.Store(where, create=False)
    table = engine.table(papers.find(study), scale, store=where)
    save(study_page(table, results, study), output)
    results.close()
    typer.echo(f"Written to {output}: {len(table.runs)} runs", err=True)


def examine(
    factory: Factory,
    example: Shape | None = None,
    data: Inputs | None = None,
    checkpoint: Checkpoint = None,
    output: Annotated[Path | None, typer.Option("-o", "--output", help="Write a page, too.")] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print all that was measured, for programs.")
    ] = False,
    force: Force = False,
    unsafe: Unsafe = False,
) -> None:
    """Tell what a network has learned: which units are dead, paired or redundant, and what would improve it."""
    from relucid.report.examination import Subject, examination_page
    from relucid.report.page import check, save

    if output is not None:
        check(output, force)
    network = build(factory, checkpoint, unsafe=unsafe)
    batches = None if data is None else batches_of(data, network)
    if example is not None:
        first = example_of(example, network)
    elif batches is not None:
        first, batches = _peek(batches)
    else:
        raise ValueError("say what goes into the network: --example 1,3,32,32, or --data with inputs")
    try:
        found = inspect.examine(network, first, batches)
    except RuntimeError as error:
        raise ValueError(f"the network does not take these inputs: {str(error).splitlines()[0]}") from error
    if as_json:
        typer.echo(json.dumps(found.to_dict()))
    else:
        found.show()
    if output is not None:
        if example is None and isinstance(first, Tensor):
            example = ",".join(map(str, (1, *first.shape[1:])))
        subject = Subject(factory, None if checkpoint is None else str(checkpoint), example, data)
        save(examination_page(found, subject), output)
        typer.echo(f"Written to {output}", err=True)


def _peek(batches: Iterable[Any]) -> tuple[Any, Iterable[Any]]:
    """The inputs of the first batch, without labels after them, and all batches."""
    rest = iter(batches)
    for batch in rest:
        return batch[0] if isinstance(batch, tuple | list) else batch, chain([batch], rest)
    raise ValueError("--data has no inputs")
