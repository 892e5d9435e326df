"""All commands of ``sa-outbox``."""

from __future__ import annotations

from collections.abc import Iterator

import click


def commands_of(group: click.Group, *words: str) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """Each command in *group*, at any depth, with the words that call it after *words*."""
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        if isinstance(command, click.Group):
            yield from commands_of(command, *words, name)
        else:
            yield (*words, name), command
