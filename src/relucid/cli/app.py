"""The commands of `relucid`, and what is said when one cannot be carried out."""

import os
import sqlite3
import sys
from typing import Annotated

import typer

from relucid import __version__
from relucid.cli.claims import claims
from relucid.cli.convert import convert
from relucid.cli.foreign import ForeignError
from relucid.cli.improve import improve
from relucid.cli.listing import list_
from relucid.cli.report import examine, report
from relucid.cli.studies import import_, logs, run, show

app = typer.Typer(no_args_is_help=True, pretty_exceptions_enable=False)
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

LONGEST = 1000  # characters of a sentence


def _tell_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"relucid {__version__}")
        raise typer.Exit


@app.callback()
def relucid(
    version: Annotated[
        bool,
        typer.Option("--version", help="Show the version and exit.", callback=_tell_version, is_eager=True),
    ] = False,
) -> None:
    """Understand and improve ReLU networks."""


def start() -> None:
    """Carry out the command that was typed; what is wrong with it is said in a sentence."""
    try:
        try:
            app(prog_name="relucid")
        finally:
            sys.stdout.flush()  # a full disk is known here, not when Python ends
    except BrokenPipeError:  # whoever read, `head` say, has seen enough
        _drop_output()
        sys.exit(1)
    except Exception as error:
        said = sentence(error)
        if said is None:
            raise
        _drop_output()
        sys.exit(f"relucid: {said[:LONGEST]}")


def sentence(error: Exception) -> str | None:
    """What an error says to the user; None if it is a fault of relucid's."""
    if isinstance(error, ForeignError | ValueError | TypeError):
        return str(error)
    if isinstance(error, sqlite3.Error):
        return f"the store cannot be used: {error}; name another with --store"
    if isinstance(error, OSError):
        what = error.strerror or str(error)
        return what if error.filename is None else f"{error.filename}: {what}"
    # Whoever raised one of these has waited for torch already.
    from relucid.convert import ConversionError
    from relucid.studies import StoreError

    return str(error) if isinstance(error, ConversionError | StoreError) else None


def _drop_output() -> None:
    """Forget what cannot be written, so that Python does not try again at its end."""
    try:
        sys.stdout.flush()
    except OSError:
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115
