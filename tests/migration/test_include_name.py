"""``schema.include_name`` hides our tables from a user's autogenerate, and nothing else."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from sa_outbox import schema
from sa_outbox.database.tables import tables
from sa_outbox.errors import ConfigError
from sa_outbox.settings import Names
from tests.migration.snapshot import snapshot

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from sa_outbox.schema.autogenerate import IncludeName, Kind, Parents


def shows(include: IncludeName, name: str, in_schema: str | None = None) -> bool:
    return include(name, "table", {"schema_name": in_schema})


@pytest.mark.parametrize("schema_name", [None, "events", "public"])
@pytest.mark.parametrize("prefix", ["outbox", "ob_1"])
def test_every_table_and_partition_of_ours_is_hidden(
    connection: Connection, schema_name: str | None, prefix: str
) -> None:
    schema.migrate(connection, Names(schema=schema_name, prefix=prefix))
    include = schema.include_name(schema=schema_name, prefix=prefix)
    seen_as = None if schema_name == "public" else schema_name

    found = snapshot(connection, schema_name or "public", prefix=prefix)["tables"]

    assert len(found) == len(tables(Names()).metadata.tables) + 5
    for name, *_ in found:
        assert not shows(include, str(name), seen_as)
    # A view: Alembic asks about views as about tables.
    assert not shows(include, f"{prefix}_backlog", seen_as)


@pytest.mark.parametrize("name", ["outbox_p4", "outbox_p123456", "outbox_alembic_version"])
def test_what_is_made_later_is_hidden_too(name: str) -> None:
    assert not shows(schema.include_name(), name)


@pytest.mark.parametrize(
    "name",
    ["orders", "outbox_notes", "outbox_p", "outbox_p1_old", "outbox_px", "my_outbox", "Outbox"],
)
def test_a_table_that_is_merely_named_alike_is_shown(name: str) -> None:
    assert shows(schema.include_name(), name)


def test_a_table_of_our_name_in_another_schema_is_shown() -> None:
    assert shows(schema.include_name(), "outbox", "sales")
    assert shows(schema.include_name(schema="events"), "outbox")
    assert shows(schema.include_name(schema="events"), "outbox", "sales")
    assert not shows(schema.include_name(schema="events"), "outbox", "events")


def test_the_schema_that_alembic_has_no_name_for_can_be_named() -> None:
    include = schema.include_name(schema="app", default_schema="app")
    assert not shows(include, "outbox", None)
    assert shows(schema.include_name(schema="app"), "outbox", None)


def test_schemas_and_what_is_inside_tables_are_shown() -> None:
    include = schema.include_name(schema="events")
    assert include("events", "schema", {})
    assert include(None, "schema", {})
    assert include("outbox", "column", {"schema_name": "events", "table_name": "orders"})
    assert include("outbox", "index", {"schema_name": "events", "table_name": "orders"})


def test_the_users_own_function_is_asked_about_everything_else() -> None:
    asked: list[str | None] = []

    def mine(name: str | None, type_: Kind, parent_names: Parents) -> bool:
        asked.append(name)
        return name != "legacy"

    include = schema.include_name(also=mine)

    assert not shows(include, "outbox")
    assert not shows(include, "legacy")
    assert shows(include, "orders")
    assert asked == ["legacy", "orders"]


def test_a_wrong_name_is_refused_at_once() -> None:
    with pytest.raises(ConfigError):
        schema.include_name(prefix="a b")
