"""Arguments and options that several commands share, and their shell completion.

What follows a command is completed at once; the names of studies and models are imported first, with torch.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:  # each command imports what it needs: --help need not wait for torch
    from relucid.train import Machine

# Names for help texts, which need not wait for torch; a test compares them with the packages.
EXECUTORS = ("local", "ray", "dask")
EXPORTS = ("safetensors", "pt2", "onnx")
PRECISIONS = ("32", "bf16-mixed", "16-mixed")
FORMATS = ("csv", "json", "latex", "markdown")


def complete_study(incomplete: str) -> list[tuple[str, str]]:
    """Complete the name of a study, with its title, or a file that may hold a study."""
    from relucid.experiments._catalog import built_in

    known = [(study.name, study.title) for study in built_in().values()]
    return [each for each in known if each[0].startswith(incomplete)] + _files(incomplete)


def complete_network(incomplete: str) -> list[tuple[str, str]]:
    """Complete the name of a model, or a file that may build a network."""
    from relucid.models import names

    known = [(name, "a built-in model") for name in names() if name.startswith(incomplete)]
    return known + [(f"{name}:", "then a function that builds a network") for name, _ in _files(incomplete)]


def completing(known: Sequence[str]) -> Callable[[str], list[str]]:
    """A function that completes these names."""
    return lambda incomplete: [name for name in known if name.startswith(incomplete)]


def machine_of(workers: int | None, precision: str | None, compiled: bool, **where: Any) -> "Machine":
    """The machine that a user asks for."""
    from relucid.train import Engine, Machine

    if precision is not None and precision not in PRECISIONS:
        raise ValueError(f"--precision {precision}: expected {', '.join(PRECISIONS)}")
    exact: Any = "32-true" if precision == "32" else precision
    engine = Engine(compile=True) if compiled else None
    return Machine(workers=workers, precision=exact, engine=engine, **where)


def one_of(names: Sequence[str], option: str, says: str, metavar: str = "NAME") -> Any:
    """An option that takes one of these names."""
    return typer.Option(option, metavar=metavar, help=says, autocompletion=completing(names))


def _files(incomplete: str) -> list[tuple[str, str]]:
    start = Path(incomplete) if incomplete.endswith("/") else Path(incomplete).parent
    found = (str(path) for path in sorted(start.glob("*.py")))
    return [(name, "a file") for name in found if name.startswith(incomplete)]


StudyName = Annotated[
    str,
    typer.Argument(
        metavar="STUDY",
        help="Name of a study (see `relucid list`), or a file of your own: path/to/my_study.py.",
        autocompletion=complete_study,
    ),
]
ScaleName = Annotated[
    str | None,
    one_of(
        ("smoke", "small", "cpu", "full"),
        "--scale",
        "Scale of the study: smoke, small, cpu or full (not every study has all four); usually small by default.",
        "SCALE",
    ),
]
Jobs = Annotated[
    int | None,
    typer.Option(
        min=1, max=10**4, metavar="N", help="Runs at a time; by default one per core.", show_default=False
    ),
]
ExecutorName = Annotated[str, one_of(EXECUTORS, "--executor", f"Where to run: {', '.join(EXECUTORS)}.")]
Address = Annotated[
    str | None,
    typer.Option(metavar="ADDRESS", help="Address of the Ray or Dask cluster.", show_default=False),
]
Workers = Annotated[
    int | None,
    typer.Option(
        min=0, metavar="N", show_default=False,
        help="Processes per run that read examples; by default up to 4 where images are decoded, 0 for data in memory.",
    ),
]  # fmt: skip
PrecisionName = Annotated[
    str | None,
    one_of(
        PRECISIONS, "--precision",
        f"Precision of training: {', '.join(PRECISIONS)}. Runs of different precision are not compared.",
    ),
]  # fmt: skip
Compile = Annotated[
    bool, typer.Option("--compile", help="Compile networks with torch.compile, which takes a C++ compiler.")
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Only report problems.")]
Only = Annotated[str | None, typer.Option(metavar="ROW", help="Only this row of the table.")]
Seeds = Annotated[int | None, typer.Option(min=1, max=10**6, metavar="N", help="Only this many seeds.")]
Directory = Annotated[
    Path | None,
    typer.Option(
        "--store",
        metavar="DIRECTORY",
        help="Directory of the results; by default $RELUCID_STORE, or else ./runs.",
    ),
]
Factory = Annotated[
    str,
    typer.Argument(
        metavar="NETWORK",
        help="A function that builds the network: my_package.my_module:build, or path/to/my_file.py:build. Or the "
        "name of a model (see `relucid list --models`): resnet20, or resnet20:100 for 100 outputs instead of 10. "
        "Or a directory that `relucid convert` made from such a model; if you built the network yourself, name your "
        "function here and the directory as --checkpoint.",
        autocompletion=complete_network,
    ),
]
Checkpoint = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="Weights of the network: a .pt, .pth, .ckpt or .safetensors file."),
]
Unsafe = Annotated[
    bool,
    typer.Option(
        "--unsafe-pickle", help="Load a checkpoint even if it may run code: only for files you trust."
    ),
]
Key = Annotated[
    str | None,
    typer.Option(
        metavar="NAME", help="Which weights of a checkpoint that has several, as ema or agent.policy."
    ),
]
Out = Annotated[Path, typer.Option("--out", "-o", metavar="DIRECTORY", help="Directory for the result.")]
Replace = Annotated[bool, typer.Option("--force", help="Replace an earlier result.")]
Overwrite = Annotated[bool, typer.Option("--force", help="Overwrite the page if it exists.")]
EXAMPLE = "Shape of an input, such as 1,3,32,32, filled with random numbers, or int:1,16, with integers."
DATA = (
    "Inputs: a .npy, .pt or .safetensors file, a folder of images, a built-in set, or MODULE:FUNCTION that returns "
    "batches."
)
