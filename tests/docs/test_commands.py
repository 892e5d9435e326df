"""docs/settings.md names every command and every environment variable of the command line."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import click

from sa_outbox.cli import COMMANDS, main
from sa_outbox.consume.command import command as consume
from sa_outbox.consume.options import variable
from sa_outbox.settings import ConsumerSettings

PAGE = (Path(__file__).parent.parent.parent / "docs" / "settings.md").read_text()
OF_SETTINGS = {variable(name) for name in ConsumerSettings.__dataclass_fields__}
"""One line says how all of them are named."""


def commands(found: click.Command) -> Iterator[click.Command]:
    yield found
    if isinstance(found, click.Group):
        context = click.Context(found)
        for name in found.list_commands(context):
            each = found.get_command(context, name)
            assert each is not None
            yield from commands(each)


def test_every_command_is_in_the_table_and_no_other() -> None:
    rows = re.findall(r"^\| (`sa-outbox .*?) \|", PAGE, re.MULTILINE)
    named = {name for row in rows for name in re.findall(r"`sa-outbox ([a-z-]+)", row)}
    assert named == COMMANDS.keys()


def test_every_environment_variable_is_in_the_table() -> None:
    variables = {
        each
        for found in (*commands(main), consume)
        for parameter in found.params
        for each in (
            [parameter.envvar] if isinstance(parameter.envvar, str) else parameter.envvar or ()
        )
    }
    assert len(variables) > 20
    assert sorted(each for each in variables - OF_SETTINGS if f"`{each}`" not in PAGE) == []
