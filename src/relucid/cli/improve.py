"""improve: examine, convert and train a user's network further, compare, and return the best."""

import shlex
import sys
from dataclasses import replace
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from relucid.cli.foreign import foreign
from relucid.cli.options import (
    EXAMPLE,
    Address,
    Checkpoint,
    Compile,
    Directory,
    ExecutorName,
    Factory,
    Jobs,
    Key,
    PrecisionName,
    Quiet,
    Replace,
    Unsafe,
    Workers,
    completing,
    machine_of,
)
from relucid.cli.output import check_directory, write_directory
from relucid.conversions import IMPROVING
from relucid.printing import printable

if TYPE_CHECKING:
    from relucid._improve import Improvement, Project

LOSSES = ("cross_entropy", "bce", "mse", "mae")
METRICS = ("error", "rmse", "loss", "f1", "auc")
OPTIMIZERS = ("adam", "sgd", "nesterov")
AUGMENTATIONS = ("flip", "crop")
of_our_recipe = partial(typer.Option, rich_help_panel="Our recipe")
of_your_training = partial(typer.Option, rich_help_panel="Your own training")

Data = Annotated[
    str,
    typer.Option(
        help="MODULE:FUNCTION that returns two data sets, loaders, or pairs of inputs and targets: one to train "
        "on, and one to test on that the network has not seen; the name of a built-in set; or a folder with "
        "folders train and test, each with one folder of images per class. A single data set, folder of images or "
        ".csv file is split in two. With --train and --metric, whatever these two take."
    ),
]
Target = Annotated[str | None, typer.Option(help="Column of a .csv file to predict.")]
Size = Annotated[
    int | None, typer.Option(min=1, help="Size to which the images of a folder are scaled and cut.")
]
Tries = Annotated[
    list[str] | None,
    typer.Option(
        "--try",
        help=f"Conversion to try: {', '.join(IMPROVING)}; repeat the option for more. By default those that the "
        "findings suggest.",
        autocompletion=completing(IMPROVING),
    ),
]
MetricName = Annotated[
    str | None,
    typer.Option(
        help=f"What decides: {', '.join(METRICS)}, or MODULE:FUNCTION of a network and data that returns a number, "
        "or a dict of numbers, the first of which is the primary metric.",
        autocompletion=completing(METRICS),
    ),
]
Higher = Annotated[bool, typer.Option("--higher", help="Higher values of your own metric are better.")]
Repetitions = Annotated[int, typer.Option(min=2, max=10**4, help="Number of repetitions.")]
DryRun = Annotated[
    bool,
    typer.Option(
        "--dry-run", help="Say what would be tried and, from a few batches, how long it takes; then stop."
    ),
]
Train = Annotated[
    str | None,
    of_your_training(
        help="MODULE:FUNCTION of a network, data and a seed that trains the network and returns it."
    ),
]
Example = Annotated[
    str | None, of_your_training(help=f"{EXAMPLE} Needed if --data are of a kind of their own.")
]
LossName = Annotated[
    str | None, of_our_recipe(help=f"{', '.join(LOSSES)}, or MODULE:FUNCTION of outputs and targets.")
]
Epochs = Annotated[int, of_our_recipe(min=1, help="Epochs of further training.")]
Optimizer = Annotated[str, of_our_recipe(help=f"{', '.join(OPTIMIZERS)}.")]
Rate = Annotated[float, of_our_recipe(min=1e-12, help="Learning rate.")]
Decay = Annotated[float, of_our_recipe(min=0, help="Weight decay.")]
Steps = Annotated[
    list[float] | None,
    of_our_recipe(
        help="Epoch, or share of training if below 1, at which the rate is divided by 10; repeat it for more."
    ),
]
Augment = Annotated[
    list[str] | None,
    of_our_recipe(help=f"Augmentation of images: {', '.join(AUGMENTATIONS)}; repeat it for more."),
]
BatchSize = Annotated[int, of_our_recipe(min=1, help="Examples per step.")]


def improve(
    network: Factory,
    data: Data,
    out: Annotated[Path, typer.Option("--out", "-o", help="Directory for the network and the page.")],
    checkpoint: Checkpoint = None,
    target: Target = None,
    size: Size = None,
    tries: Tries = None,
    metric: MetricName = None,
    higher: Higher = False,
    train: Train = None,
    example: Example = None,
    loss: LossName = None,
    epochs: Epochs = 30,
    optimizer: Optimizer = "adam",
    lr: Rate = 1e-3,
    weight_decay: Decay = 0.0,
    step: Steps = None,
    augment: Augment = None,
    batch_size: BatchSize = 64,
    seeds: Repetitions = 8,
    jobs: Jobs = None,
    executor: ExecutorName = "local",
    address: Address = None,
    workers: Workers = None,
    precision: PrecisionName = None,
    compiled: Compile = False,
    store: Directory = None,
    dry_run: DryRun = False,
    quiet: Quiet = False,
    force: Replace = False,
    unsafe: Unsafe = False,
    key: Key = None,
) -> None:
    """Improve a network: examine it, convert it, train it further alongside fair controls, compare, return the best.

    Writes network.pt2, which torch.export.load loads without relucid and
    without your code, weights.safetensors, improvement.json and page.html.
    Finished runs are kept: the same command resumes.
    """
    from relucid._improve import RECIPE, project, task
    from relucid._improve._handover import FILES, fill
    from relucid.cli.network import build, data_of, example_of, function_of
    from relucid.train.platform import check

    check_directory(out, FILES, force)
    make = partial(build, network, checkpoint, unsafe=unsafe, key=key)
    built = make()
    machine = machine_of(workers, precision, compiled)
    if train and (workers is not None or precision or compiled):
        raise ValueError(
            "--workers, --precision and --compile are for our recipe: your own --train decides them"
        )
    check(machine)
    recipe = replace(
        RECIPE, epochs=epochs, optimizer=optimizer, lr=lr, weight_decay=weight_decay, steps=tuple(step or ()),
        augment=tuple(augment or ()), batch_size=batch_size, precision=machine.precision or RECIPE.precision,
    )  # fmt: skip
    named: dict[str, Any] = {
        "train": train and function_of(train, (), "training"),
        "metric": metric and function_of(metric, METRICS, "metric"),
        "loss": loss and function_of(loss, LOSSES, "loss"),
        "example": None if example is None else example_of(example, built),
    }
    given = data_of(data)
    with foreign(f"{network} cannot be improved"):
        whole = task(
            make, given, higher=higher, target=target, size=size, recipe=recipe, name=network, **named
        )
        tried = project(whole, tries or None, seeds, store)
    _print_project(tried, quiet)
    if dry_run:
        _print_time(tried, jobs)
        return
    where = {"jobs": jobs, "executor": executor, "address": address, "machine": machine}
    improvement = _run(tried, quiet, where)
    write_directory(
        out,
        FILES,
        force,
        partial(fill, improvement, command=printable(shlex.join(["relucid", *sys.argv[1:]]))),
    )
    typer.echo("\n".join(map(printable, improvement.lines())))
    typer.echo(f"Written to {out}: {', '.join(FILES)}", err=True)


def _print_project(tried: "Project", quiet: bool) -> None:
    """Report what will be done, what will not, and why not to take the results at face value."""
    for caution in tried.cautions:
        typer.echo(f"Warning: {caution}", err=True)
    for what, why in tried.left_out.items():
        typer.echo(printable(f"{what} is left out: {why}"), err=True)
    if not quiet:
        for sentence in tried.examination.sentences():
            typer.echo(printable(sentence))
        better = "higher" if tried.task.metric.higher else "lower"
        typer.echo(tried.task.training)
        typer.echo(printable(f"Judged by: {tried.column} ({better} is better)."))
        typer.echo(printable(f"Compared: {'; '.join(tried.study.rows)}."))


def _print_time(tried: "Project", jobs: int | None) -> None:
    """Report how many runs there are to do, and how long they would take."""
    from relucid.experiments._executors import cores

    missing, seconds = {run.key for run in tried.missing()}, tried.seconds()
    how_long = "how long depends on your training"
    if seconds is not None:
        left = {
            planned.run.key: seconds[planned.row]
            for planned in tried.study.plan()
            if planned.run.key in missing
        }
        workers = max(1, min(jobs or cores(), len(left)))
        time = timedelta(seconds=round(sum(left.values()) / workers))
        how_long = (
            f"about {time} with {workers} at a time, by a few batches of each; starting them comes on top"
        )
    typer.echo(f"{len(tried.runs)} runs, {len(missing)} still to do: {how_long}.")


def _run(tried: "Project", quiet: bool, where: dict[str, Any]) -> "Improvement":
    """Execute the missing runs, and draw the conclusion."""
    from relucid.cli.progress import progress, stopping

    with stopping(), progress({run.key for run in tried.missing()}, quiet) as report:
        return tried.run(report=report, **where)
