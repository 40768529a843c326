"""The command-line reference, docs/cli.md, generated from the commands."""

from collections.abc import Iterator
from typing import Any

import typer

INTRODUCTION = """# Command line

`relucid` examines, converts and improves your own networks, and runs studies. `relucid COMMAND --help` prints what this
page says. `relucid --install-completion` makes TAB complete commands, options and the names of studies and models;
`relucid --version` prints the version.

Results go to standard output, everything else to standard error. The exit status is 0 on success, 1 on failure, 2 if
the command was not understood or leaves a choice open, and 130 after Ctrl-C. Pages and converted networks are written
completely or not at all. Nothing is replaced without `--force`; links, devices, and directories that hold other files
are never replaced.
"""


def reference(app: typer.Typer) -> str:
    """Write the page: every command with its arguments and options."""
    commands = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    return "\n".join([INTRODUCTION, *(_section(name, command) for name, command in commands.items())])


def _section(name: str, command: Any) -> str:
    arguments = [each for each in command.params if each.param_type_name == "argument"]
    options = [each for each in command.params if each.param_type_name == "option" and each.name != "help"]
    usage = " ".join(["relucid", name, *(_metavar(each) for each in arguments), *_required(options)])
    described = "\n\n".join(" ".join(part.split()) for part in command.help.split("\n\n"))
    rows = [*map(_row, arguments), *map(_row, options)]
    table = ["|   |   |", "|---|---|", *rows] if rows else []
    return "\n".join([f"## {name}", "", described, "", f"`{usage}`", "", *table, ""])


def _required(options: list[Any]) -> Iterator[str]:
    """The required options, then a placeholder for the others."""
    for option in options:
        if option.required:
            yield f"{option.opts[0]} {_value(option)}"
    yield "[OPTIONS]"


def _metavar(argument: Any) -> str:
    name = argument.metavar or argument.name.upper()
    return name if argument.required else f"[{name}]"


def _value(option: Any) -> str:
    """What stands for the value of an option: its own word for it, or else its name in capitals."""
    return str(option.metavar or option.opts[0].lstrip("-").upper())


def _row(parameter: Any) -> str:
    """One line of the table: an argument or option, and its help."""
    if parameter.param_type_name == "argument":
        written = f"`{_metavar(parameter)}`"
    else:
        value = "" if parameter.is_flag else f" {_value(parameter)}"
        written = ", ".join(f"`{name}{value}`" for name in parameter.opts)
    default = parameter.default
    said = "" if default in (None, False) or parameter.required else f" Default: `{default}`."
    return f"| {written} | {parameter.help}{said} |"
