"""Tables of the pages that repeat what the code declares: they say the same."""

from __future__ import annotations

import dataclasses
import inspect
import re
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import click
import pytest

from sa_outbox import Outbox, RetryPolicy, observe
from sa_outbox.cli.grants import grants
from sa_outbox.consume.command import command
from sa_outbox.consume.exit_codes import Exit
from sa_outbox.database.rights import KINDS
from sa_outbox.declare.listener import Listener, ListenerOptions, RelayOptions
from sa_outbox.logs import LINES
from sa_outbox.observe import Observation
from sa_outbox.policy.retry import PRESETS

DOCS = Path(__file__).parents[2] / "docs"
_ROW = re.compile(r"^\|(?P<cells>.+)\|$", re.MULTILINE)
_NAME = re.compile(r"`(\w+)`")
_OPTION = re.compile(r"`(--[\w-]+)[^`]*`")


def rows(page: str, heading: str) -> Iterator[list[str]]:
    """The rows of the first table below *heading*, without its head."""
    _, found, after = (DOCS / page).read_text().partition(f"\n{heading}\n")
    assert found, f"{page} has no {heading!r}"
    table = after[after.index("\n|") + 1 :].partition("\n\n")[0]
    for number, row in enumerate(_ROW.finditer(table)):
        if number > 1:
            yield [cell.strip() for cell in row["cells"].split(" | ")]


def bare(cell: str) -> str:
    return cell.strip("`")


def default_of(field: dataclasses.Field[Any]) -> object:
    if field.default_factory is not dataclasses.MISSING:
        return field.default_factory()
    return field.default


def read(cell: str) -> object:
    """The value that a page shows, as Python would write it."""
    return eval(bare(cell), {"timedelta": timedelta, "RetryPolicy": RetryPolicy})


class TestRoles:
    def test_each_kind_of_role_is_in_the_table_of_the_page(self) -> None:
        told = [row[0] for row in rows("security.md", "## Roles of the database")]

        assert told == [*KINDS]

    def test_each_kind_of_role_is_in_the_help_of_the_command(self) -> None:
        shown = click.Context(grants).get_help()

        assert re.findall(r"^ +([a-z-]+)  +[a-z]", shown, re.MULTILINE) == [*KINDS]

    def test_who_may_add_events_is_not_said_to_be_unable_to(self) -> None:
        adding = [name for name, kind in KINDS.items() if "INSERT" in kind.tables.get("", {})]
        unable = {row[0]: row[2] for row in rows("security.md", "## Roles of the database")}

        assert "operator" in adding
        assert [name for name in adding if re.search(r"\badd\b", unable[name])] == []


class TestHandlers:
    def test_the_options_of_a_listener_are_those_of_the_decorator(self) -> None:
        told = [bare(row[0]) for row in rows("handlers.md", "## Options")]

        own = [*inspect.signature(Outbox.listener).parameters][1:]  # without self
        fields = [each.name for each in dataclasses.fields(Listener)]

        assert own.pop() == "options"
        assert told == own + [each for each in fields if each in ListenerOptions.__optional_keys__]

    def test_the_options_of_a_listener_have_their_defaults(self) -> None:
        told = {bare(row[0]): row[1] for row in rows("handlers.md", "## Options")}
        fields = {each.name: each for each in dataclasses.fields(Listener) if each.init}

        for name in told.keys() - {"name", "on"}:
            assert read(told[name]) == default_of(fields[name]), name
        assert fields.keys() - told.keys() == {"handler", "categories", "members", "forwarding"}

    def test_the_options_of_a_relay_are_those_of_the_method(self) -> None:
        told = {name for row in rows("relays.md", "## Options") for name in _NAME.findall(row[0])}
        own = {*inspect.signature(Outbox.relay).parameters} - {"self", "name", "relay", "options"}

        assert told == own | RelayOptions.__optional_keys__

    def test_the_fields_of_a_retry_policy_have_their_defaults(self) -> None:
        told = {bare(row[0]): read(row[1]) for row in rows("handlers.md", "## Retries")}

        assert told == {each.name: each.default for each in dataclasses.fields(RetryPolicy)}

    def test_the_presets_have_their_figures(self) -> None:
        told = {
            bare(row[0]): (read(row[1]), read(row[2])) for row in rows("handlers.md", "### Presets")
        }

        assert told == {name: (each.attempts, each.maximum) for name, each in PRESETS.items()}


class TestConsuming:
    def test_every_observation_is_told_with_its_level(self) -> None:
        told = {bare(row[0]): row[1] for row in rows("consuming.md", "## Observations")}

        assert told == {cls.__name__: level for cls, (level, _) in LINES.items()}

    def test_every_observation_is_a_line_of_the_log(self) -> None:
        there = {
            each
            for each in vars(observe).values()
            if inspect.isclass(each) and issubclass(each, Observation) and each is not Observation
        }

        assert there == set(LINES)

    def test_every_exit_code_is_told(self) -> None:
        told = {row[0] for row in rows("consuming.md", "### Exit codes")}

        assert {str(int(each)) for each in Exit} <= told

    def test_every_option_is_told_with_its_variables(self) -> None:
        settings = {
            bare(name) for name in re.findall(r"^### (`\w+`)$", settings_of_a_consumer(), re.M)
        }
        told = {
            option: row[1]
            for row in rows("consuming.md", "## The command")
            for option in _OPTION.findall(row[0])
        }
        options = {
            each.opts[0]: each
            for each in command.params
            if isinstance(each, click.Option) and each.name not in {*settings, "version", "help"}
        }

        assert told.keys() == options.keys()
        for name, option in options.items():
            variables = [option.envvar] if isinstance(option.envvar, str) else option.envvar
            assert variables
            assert [f"`{each}`" in told[name] for each in variables] == [True] * len(variables)


def settings_of_a_consumer() -> str:
    _, _, after = (DOCS / "settings.md").read_text().partition("\n## `ConsumerSettings`\n")
    return re.split(r"\n## ", after, maxsplit=1)[0]


class TestSchema:
    @pytest.mark.parametrize("name", ["outbox", "listeners", "deliveries"])
    def test_every_column_is_told(self, name: str) -> None:
        table = getattr(Outbox().tables, name)
        titles = re.findall(rf"^### `{table.name}`.*$", (DOCS / "schema.md").read_text(), re.M)
        told = {
            column
            for title in titles
            for row in rows("schema.md", title)
            for column in re.findall(r"`(\w+)`", row[0])
        }

        # Of a delivery: copied from its event, and the times of the row.
        copied = {"event_id", "event_type", "key", "tenant", "partition"}
        times = {"created_at", "updated_at"}
        assert told <= set(table.c.keys())
        assert set(table.c.keys()) - told <= times | (copied if name == "deliveries" else set())


@pytest.mark.parametrize("page", sorted(DOCS.glob("*.md")), ids=lambda page: page.name)
def test_rows_of_a_table_have_as_many_cells_as_its_head(page: Path) -> None:
    columns = 0
    for number, line in enumerate(page.read_text().splitlines(), 1):
        cells = len(re.findall(r"(?<!\\)\|", line)) if line.startswith("|") else 0
        assert not columns or not cells or cells == columns, f"{page.name}:{number}"
        columns = cells
