"""The commands of `relucid`, and what is said when one cannot be carried out."""

import sys

import typer

from relucid.cli import report, studies
from relucid.cli.claims import claims
from relucid.cli.convert import convert
from relucid.convert import ConversionError
from relucid.data import DamagedDataError, MissingDataError
from relucid.studies import StoreError

app = typer.Typer(
    help="Understand and improve ReLU networks.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
app.command("list")(studies.list_)
app.command()(studies.run)
app.command()(studies.show)
app.command()(studies.logs)
app.command("import")(studies.import_)
app.command()(claims)
app.command()(report.report)
app.command()(report.examine)
app.command()(convert)


def start() -> None:
    """Carry out the command that was typed; what is wrong with it is said in a sentence."""
    try:
        app()
    except (StoreError, MissingDataError, DamagedDataError, ConversionError, ValueError, TypeError) as error:
        sys.exit(f"relucid: {error}")
