import re
from pathlib import Path

import typer

from relucid.cli.app import app
from relucid.cli.reference import reference

PAGE = Path(__file__).parents[2] / "docs" / "cli.md"


def test_the_page_says_what_the_commands_say():
    assert PAGE.read_text() == reference(app), "run python docs/pages.py"


def test_every_command_and_option_is_on_the_page():
    text = PAGE.read_text()
    for name, command in typer.main.get_command(app).commands.items():
        section = text.partition(f"\n## {name}\n")[2].partition("\n## ")[0]
        for parameter in command.params:
            assert parameter.name == "help" or parameter.help in section


def test_every_option_that_takes_a_value_shows_one():
    for name, command in typer.main.get_command(app).commands.items():
        section = PAGE.read_text().partition(f"\n## {name}\n")[2].partition("\n## ")[0]
        options = [
            each for each in command.params if each.param_type_name == "option" and each.name != "help"
        ]
        for option in options:
            shown = re.search(rf"\| `{option.opts[0]}( \S+)?`", section)
            assert (shown[1] is None) == option.is_flag, option.opts[0]
        assert "None" not in section
