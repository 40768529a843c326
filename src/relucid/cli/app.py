"""The commands of `relucid`, and the messages for those that fail."""

import io
import os
import sqlite3
import sys
from typing import Annotated

import typer

from relucid import __version__
from relucid.cli.claims import claims
from relucid.cli.convert import convert
from relucid.cli.examine import examine
from relucid.cli.foreign import ForeignError
from relucid.cli.improve import improve
from relucid.cli.listing import list_
from relucid.cli.report import report
from relucid.cli.run import run
from relucid.cli.studies import import_, logs, show
from relucid.memory import keep_memory
from relucid.printing import printable

app = typer.Typer(pretty_exceptions_enable=False)
app.command("list")(list_)
app.command()(run)
app.command()(show)
app.command()(logs)
app.command("import")(import_)
app.command()(claims)
app.command()(report)
app.command()(examine)
app.command()(convert)
app.command()(improve)

LONGEST = 1000  # characters of an error message
FIRST = f"""\
relucid {__version__}: find out why a ReLU network stopped learning, and repair it

See what every layer has learned, which units are dead, and what would help:
  relucid examine my_module:build --checkpoint w.pt --data my_module:data

See whether a trained network can be made better, and get the better one:
  relucid improve my_module:build --checkpoint w.pt --data my_module:data -o DIR

Measure what the library does on your machine, in minutes:
  relucid run quickstart

my_module:build is a function that returns your network, my_module:data one that
returns training and test data. In a training loop of your own, no command is
needed: relucid.Watch(model).attach(optimizer) warns, relucid.convert.to_crelu
repairs. All commands: relucid --help
"""


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"relucid {__version__}")
        raise typer.Exit


@app.callback(invoke_without_command=True)
def relucid(
    context: typer.Context,
    version: Annotated[
        bool,
        typer.Option("--version", help="Show the version and exit.", callback=_print_version, is_eager=True),
    ] = False,
) -> None:
    """Understand and improve ReLU networks.

    Results go to standard output, everything else to standard error. The exit status is 0 on success, 1 on failure, 2
    if the command was not understood or leaves a choice open, and 130 after Ctrl-C.

    Pages and converted networks are written completely or not at all. Nothing is replaced without --force; links,
    devices, and directories that hold other files are never replaced.
    """
    if context.invoked_subcommand is None:
        typer.echo(FIRST, nl=False)


def start() -> None:
    """Run the command that the user typed; report an error in one sentence."""
    keep_memory()
    try:
        try:
            _replace_what_cannot_be_encoded()
            app(prog_name="relucid")
        finally:
            sys.stdout.flush()  # notice a full disk here, not when Python exits
    except BrokenPipeError:  # the reader, `head` for example, has seen enough
        _drop_output()
        sys.exit(1)
    except Exception as error:
        message = sentence(error)
        if message is None:
            raise
        _drop_output()
        lines = message[:LONGEST].splitlines()
        sys.exit("relucid: " + "\n".join(map(printable, lines)))


def sentence(error: Exception) -> str | None:
    """The message for the user; None if the error is a bug in relucid."""
    if isinstance(error, ForeignError | ValueError | TypeError) or type(error) is ImportError:
        return str(error)
    if isinstance(error, sqlite3.Error):
        return f"the store cannot be used: {error}; name another with --store"
    if isinstance(error, OSError):
        what = error.strerror or str(error)
        return what if error.filename is None else f"{error.filename}: {what}"
    # By the time one of these is raised, torch has been imported.
    from relucid.convert import ConversionError
    from relucid.experiments import StoreError

    return str(error) if isinstance(error, ConversionError | StoreError) else None


def _replace_what_cannot_be_encoded() -> None:
    """Print a question mark for what the terminal's encoding lacks: results are not lost for a character."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")


def _drop_output() -> None:
    """Discard output that cannot be written, so that Python does not try again on exit."""
    try:
        sys.stdout.flush()
    except OSError:
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115
