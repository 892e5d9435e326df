"""The pages of the commands: what each does, its arguments, its options with their variables."""

from __future__ import annotations

import inspect
import re
from typing import TYPE_CHECKING

import click

from sa_outbox.cli import main as command_line
from sa_outbox.consume.command import command as consume

if TYPE_CHECKING:
    from collections.abc import Iterator


def command_pages() -> dict[str, str]:
    return {
        "commands.md": _page(
            "sa-outbox",
            "The commands for operators and deployments. How they are used: "
            "[operating](../operating.md).",
            command_line,
        ),
        "consume.md": _page(
            "python -m sa_outbox.consume",
            "The consumer as a process; `sa-outbox consume` does the same. How it is used: "
            "[consuming](../consuming.md).",
            consume,
        ),
    }


def _page(name: str, about: str, command: click.Command) -> str:
    context = click.Context(command, info_name=name, **command.context_settings)
    parts = [f"# {name}", about]
    for found, at in _all(command, context):
        parts += _described(found, at)
    return "\n\n".join(parts) + "\n"


def _all(
    command: click.Command, context: click.Context
) -> Iterator[tuple[click.Command, click.Context]]:
    if not isinstance(command, click.Group) or command.invoke_without_command:
        yield command, context
    if not isinstance(command, click.Group):
        return
    for name in command.list_commands(context):
        found = command.get_command(context, name)
        if found is not None and not found.hidden:
            yield from _all(found, click.Context(found, info_name=name, parent=context))


def _described(command: click.Command, context: click.Context) -> list[str]:
    usage = " ".join([context.command_path, *command.collect_usage_pieces(context)])
    # click keeps a command's help option as the first context had it: a test may have been that.
    known = command.get_help_option_names(context)
    names = ", ".join(name for name in context.help_option_names if name in known)
    records = [each.get_help_record(context) for each in command.get_params(context)]
    records = [(names, each[1]) if each and "--help" in each[0] else each for each in records]
    rows = [record for record in records if record is not None]  # what is hidden has none
    parts = [f"## `{context.command_path}`", f"```text\n{usage}\n```", _text(command.help or "")]
    if rows:
        lines = [f"| `{_cell(name)}` | {_cell(_prose(text))} |" for name, text in rows]
        parts.append("\n".join(["| option | |", "| --- | --- |", *lines]))
    if command.epilog:
        parts.append(_text(command.epilog))
    return parts


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _prose(text: str) -> str:
    """With the words that are values or variables as code, so that none is taken for markup."""
    return re.sub(r"(?<!`)(\S*\[[^\]]*\]|<[^>]*>|\S*\*\S*)", r"`\1`", text)


def _text(help_text: str) -> str:
    """Paragraphs; those that click leaves as they are (after ``\\b``) as blocks."""
    parts = []
    for paragraph in inspect.cleandoc(help_text).split("\n\n"):
        lines = paragraph.strip("\n").splitlines()
        if lines and lines[0].strip() == "\b":
            parts.append("```text\n" + "\n".join(lines[1:]) + "\n```")
        elif lines:
            parts.append(_prose(" ".join(lines)))
    return "\n\n".join(parts)
