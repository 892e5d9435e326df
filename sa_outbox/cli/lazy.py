"""Commands that are imported on use: no command loads what only others need."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from collections.abc import Mapping


class LazyGroup(click.Group):
    def __init__(self, *args: Any, commands_of: Mapping[str, str], **options: Any) -> None:
        super().__init__(*args, **options)
        self._commands_of = commands_of

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        return sorted(self._commands_of)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self._commands_of:
            return super().get_command(ctx, cmd_name)
        module, _, name = self._commands_of[cmd_name].partition(":")
        command = getattr(import_module(f".{module}", __package__), name)
        assert isinstance(command, click.Command)  # noqa: S101 - for the type
        return command
