"""Commands that are imported on use: no command loads what only others need."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

import click

from sa_outbox.policy.checks import did_you_mean

if TYPE_CHECKING:
    from collections.abc import Mapping


class LazyGroup(click.Group):
    """*sections* of the help, each with its commands: ``module:name`` in this package."""

    def __init__(
        self, *args: Any, sections: Mapping[str, Mapping[str, str]], **options: Any
    ) -> None:
        super().__init__(*args, **options)
        self._sections = sections
        self._commands_of = {
            name: place for section in sections.values() for name, place in section.items()
        }

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        return sorted(self._commands_of)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        longest = max(map(len, self._commands_of))
        for title, section in self._sections.items():
            with formatter.section(title):
                rows = [
                    # Padded, so that the texts of all sections begin in one column.
                    (name.ljust(longest), command.get_short_help_str(formatter.width - 6 - longest))
                    for name in section
                    if (command := self.get_command(ctx, name)) is not None
                ]
                formatter.write_dl(rows)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if name not in self._commands_of and not name.startswith("-"):
            near = did_you_mean(name, self._commands_of)
            raise click.UsageError(f"there is no command {name!r}{near}", ctx)
        return super().resolve_command(ctx, args)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self._commands_of:
            return super().get_command(ctx, cmd_name)
        module, _, name = self._commands_of[cmd_name].partition(":")
        command = getattr(import_module(f".{module}", __package__), name)
        assert isinstance(command, click.Command)  # noqa: S101 - for the type
        return command
