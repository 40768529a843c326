"""improve: examine, convert and train a user's network further, compare, and hand back the best."""

import shlex
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from relucid.cli.foreign import foreign
from relucid.cli.options import (
    Address,
    Backend,
    Checkpoint,
    Directory,
    Factory,
    Jobs,
    Quiet,
    Unsafe,
    completing,
)
from relucid.cli.output import check_directory, write_directory

if TYPE_CHECKING:
    from relucid.studies.improve import Improvement, Project

TRIES = ("crelu", "merge", "geometric", "heavy-ball")


def improve(
    network: Factory,
    data: Annotated[
        str,
        typer.Option(
            help="MODULE:FUNCTION that returns two data sets, loaders, or pairs of inputs and targets: one to train "
            "on, and one to test on that the network has not seen; the name of a built-in set; or a folder with "
            "folders train and test, each with one folder of images per class. A single data set, folder of images or "
            ".csv file is split in two."
        ),
    ],
    out: Annotated[Path, typer.Option("--out", "-o", help="Directory for the network and the page.")],
    checkpoint: Checkpoint = None,
    target: Annotated[str | None, typer.Option(help="Column of a .csv file to predict.")] = None,
    tries: Annotated[
        list[str] | None,
        typer.Option(
            "--try",
            help=f"Conversion to try: {', '.join(TRIES)}; repeat the option for more. By default those that the "
            "findings suggest.",
            autocompletion=completing(TRIES),
        ),
    ] = None,
    loss: Annotated[
        str | None,
        typer.Option(help="cross_entropy, bce, mse or mae, or MODULE:FUNCTION of outputs and targets."),
    ] = None,
    epochs: Annotated[int, typer.Option(min=1, help="Epochs of further training.")] = 30,
    lr: Annotated[float, typer.Option(min=1e-12, help="Learning rate of Adam.")] = 1e-3,
    batch_size: Annotated[int, typer.Option(min=1, help="Examples per step.")] = 64,
    seeds: Annotated[int, typer.Option(min=2, max=10**4, help="Number of repetitions.")] = 8,
    jobs: Jobs = None,
    backend: Backend = "local",
    address: Address = None,
    store: Directory = None,
    dry_run: Annotated[
        bool,
        typer.Option(
            "--dry-run", help="Say what would be tried and, from a few batches, how long it takes; then stop."
        ),
    ] = False,
    quiet: Quiet = False,
    force: Annotated[bool, typer.Option("--force", help="Replace an earlier result.")] = False,
    unsafe: Unsafe = False,
) -> None:
    """Improve a network: examine it, convert it, train it further alongside fair controls, compare, return the best.

    Writes network.pt2, which torch.export.load loads without relucid and
    without your code, weights.safetensors, improvement.json and page.html.
    Finished runs are kept: the same command resumes.
    """
    from relucid.cli.network import build
    from relucid.report.handover import FILES, fill
    from relucid.studies.improve import project
    from relucid.studies.subject import RECIPE, subject

    check_directory(out, FILES, force)
    built = build(network, checkpoint, unsafe=unsafe)
    given = _data(data)
    changes: dict[str, Any] = {"epochs": epochs, "lr": lr, "batch_size": batch_size}
    with foreign(f"{network} cannot be improved"):
        whole = subject(
            built, given, target=target, loss=_loss(loss), recipe=replace(RECIPE, **changes), name=network
        )
        tried = project(whole, tries or None, seeds)
    _print_project(tried, quiet)
    if dry_run:
        _print_time(tried, store, jobs)
        return
    found = _run(tried, store, quiet, {"jobs": jobs, "backend": backend, "address": address})
    write_directory(out, FILES, force, partial(fill, found, command=shlex.join(["relucid", *sys.argv[1:]])))
    typer.echo(found.headline())
    typer.echo(f"Written to {out}: {', '.join(FILES)}", err=True)


def _data(name: str) -> Any:
    """Call the user's function for its data; return any other name as it is."""
    from relucid.cli.network import produced
    from relucid.data.given import BUILT_IN

    if name in BUILT_IN or ":" not in name or Path(name).exists():
        return name
    return produced(name)


def _loss(name: str | None) -> Any:
    """A loss by name, or the user's own function."""
    from relucid.cli.network import imported
    from relucid.train.measure import LOSSES

    if name is None or name in LOSSES:
        return name
    if ":" not in name:
        raise ValueError(
            f"there is no loss {name}: name one of {', '.join(LOSSES)}, or a MODULE:FUNCTION of your own"
        )
    found = imported(name)
    if not callable(found):
        raise TypeError(f"{name} is not a function of outputs and targets")
    return found


def _print_project(tried: "Project", quiet: bool) -> None:
    """Report the findings, what will be tried, what will not, and why not to take the errors at face value."""
    if tried.subject.caution:
        typer.echo(f"Warning: {tried.subject.caution}", err=True)
    for what, why in tried.left_out.items():
        typer.echo(f"{what} is left out: {why}", err=True)
    if not quiet:
        for finding in tried.examination.findings:
            typer.echo(finding.sentence)
        typer.echo(f"To be trained further and compared: {', '.join(tried.starts)}")


def _print_time(tried: "Project", store: Path | None, jobs: int | None) -> None:
    """Report how many runs there are to do, and how long they would take."""
    from relucid import studies as engine
    from relucid.cli.forecast import Fleet, forecast
    from relucid.studies.estimate import Estimate

    results = engine.Store(store or engine.default_store(), create=False)
    seconds, planned = tried.seconds(), engine.plan(tried.study)
    each = {run.key: seconds[row] for row in tried.starts for run in engine.plan(tried.study, only=row)}
    missing = [run for run in planned if (done := results.get(run.key)) is None or done.state == "failed"]
    results.close()
    expected = Estimate(
        missing, [each[run.key] for run in missing], "a few batches of each; starting and writing come on top"
    )
    typer.echo(f"{len(planned)} runs, {len(missing)} still to do: {forecast(expected, Fleet(jobs))}.")


def _run(tried: "Project", store: Path | None, quiet: bool, where_to: dict[str, Any]) -> "Improvement":
    """Execute the missing runs, and draw the conclusion."""
    from relucid import studies as engine
    from relucid.cli.progress import progress, stopping
    from relucid.cli.tables import print_table

    where = store or engine.default_store()
    with stopping():
        with progress(engine.plan(tried.study), where, retry=True, quiet=quiet) as report:
            engine.run(tried.study, store=where, retry=True, report=report, **where_to)
        found = tried.concluded(where)
    if not quiet:
        print_table(found.table, "improve", store)
    return found
