"""The reference is what the docstrings and the commands say, and leaves nothing out."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from difflib import unified_diff
from functools import cache
from pathlib import Path

import click
import griffe
import pytest

from docs.make_reference import texts
from docs.make_reference.contents import FOLDER, PAGES
from docs.make_reference.names import described_on, members
from docs.make_reference.prose import markdown
from sa_outbox.cli import main as command_line
from sa_outbox.consume.command import command as consume

from .test_code_blocks import PAGES as PROSE
from .test_code_blocks import blocks

made = cache(texts)
ERRORS = (FOLDER.parent / "errors.md").read_text()


def test_the_reference_is_what_the_docstrings_and_the_commands_say() -> None:
    written = {page.name: page.read_text() for page in FOLDER.glob("*.md")}

    assert written.keys() == made().keys(), "run: make reference"
    for name, text in made().items():
        change = unified_diff(written[name].splitlines(), text.splitlines(), "written", "now")
        assert "\n".join(change) == "", "run: make reference"


def shown() -> Iterator[tuple[str, griffe.Object]]:
    for page in PAGES:
        for _, names in described_on(page):
            for found in names:
                yield found.path, found
                if isinstance(found, griffe.Class):
                    for each in members(found):
                        if each.name not in page.without:
                            yield f"{found.path}.{each.name}", each


def test_every_name_in_the_reference_says_what_it_promises() -> None:
    silent = [
        path
        for path, found in shown()
        if found.docstring is None
        and (found.is_class or found.is_function or "property" in found.labels)
        and found.name != "__version__"
    ]

    assert silent == []


def imported(page: Path) -> Iterator[str]:
    """What the page's program imports from us, but for errors: they have a page of their own."""
    for block in blocks(page):
        if block.language == "python":
            for node in ast.walk(ast.parse("\n".join(block.lines))):
                if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("sa_outbox"):
                    yield from (each.name for each in node.names if each.name not in ERRORS)


@pytest.mark.parametrize("page", PROSE, ids=lambda page: page.stem)
def test_what_the_pages_import_is_in_the_reference(page: Path) -> None:
    everything = "\n".join(made().values())
    # Modules, and what a hidden part of a page looks into.
    modules = {"schema", "migrations", "prometheus", "traces", "event_types"}

    missing = [name for name in imported(page) if f"## `{name}`" not in everything]

    assert {*missing} <= modules


@pytest.mark.parametrize(
    ("docstring", "expected"),
    [
        ("Raises :class:`ConfigError`.", "Raises `ConfigError`."),
        ("``a`` and ``b\nc``", "`a` and `b c`"),
        (
            "So::\n\n    one()\n\n    two()\n\nThat.",
            "So:\n\n```python\none()\n\ntwo()\n```\n\nThat.",
        ),
        ("First.\n\n::\n\n    one()", "First.\n\n```python\none()\n```"),
    ],
)
def test_a_docstring_becomes_markdown(docstring: str, expected: str) -> None:
    assert markdown(docstring) == expected


def tree(
    command: click.Command, context: click.Context
) -> Iterator[tuple[click.Command, click.Context]]:
    yield command, context
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            found = command.get_command(context, name)
            assert found is not None
            yield from tree(found, click.Context(found, info_name=name, parent=context))


def root(command: click.Command, name: str) -> click.Context:
    """With its own settings: a command keeps the help option it was first asked for."""
    return click.Context(command, info_name=name, **command.context_settings)


COMMANDS = [
    *(("commands.md", *each) for each in tree(command_line, root(command_line, "sa-outbox"))),
    ("consume.md", consume, root(consume, "python -m sa_outbox.consume")),
]


@pytest.mark.parametrize(
    ("page", "command", "context"), COMMANDS, ids=[each[2].command_path for each in COMMANDS]
)
def test_every_command_and_option_is_in_the_reference(
    page: str, command: click.Command, context: click.Context
) -> None:
    if isinstance(command, click.Group) and not command.invoke_without_command:
        return  # it does nothing without one of its commands, which have sections of their own
    _, found, rest = made()[page].partition(f"\n## `{context.command_path}`\n")
    section = rest.split("\n## ")[0]
    rows = dict(re.findall(r"^\| `(.+?)` \| (.*) \|$", section, re.MULTILINE))
    options = [each for each in command.params if isinstance(each, click.Option)]

    assert found, "no section"
    for option in options:
        texts = [
            text for names, text in rows.items() if option.opts[0] in re.split(r"[ ,]+", names)
        ]
        assert texts, f"{option.opts} is not in the table"
        assert option.help, f"{option.opts} has no help text"
