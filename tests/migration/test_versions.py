"""The tables a migration makes are those the package believes in."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

import pytest
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from sqlalchemy import insert, select, text
from sqlalchemy.exc import DBAPIError, IntegrityError

from sa_outbox import migrations, schema
from sa_outbox.database.tables import RESOLUTIONS, STATES, Tables, tables
from sa_outbox.migrations.identifiers import MAX_PREFIX_BYTES
from sa_outbox.settings import Names
from tests.migration.snapshot import snapshot

if TYPE_CHECKING:
    from sqlalchemy import Connection

pytestmark = pytest.mark.matrix

LONGEST = "p" * MAX_PREFIX_BYTES


def add(connection: Connection, found: Tables, **values: object) -> None:
    row = {"event_id": uuid.uuid4(), "event_type": "t", "payload": {}, **values}
    connection.execute(insert(found.outbox).values(row))


@pytest.mark.parametrize("prefix", ["outbox", "Mixed_Case", LONGEST])
def test_all_migrations_make_what_the_metadata_describes(
    connection: Connection, prefix: str
) -> None:
    migrated, described = Names(schema="a", prefix=prefix), Names(schema="b", prefix=prefix)
    connection.execute(text("CREATE SCHEMA b"))

    schema.migrate(connection, migrated)
    tables(described).metadata.create_all(connection)

    left = snapshot(connection, "a", prefix=prefix, partitions=False)
    right = snapshot(connection, "b", prefix=prefix, partitions=False)
    assert len(left["tables"]) == len(tables(migrated).metadata.tables)
    assert left == right


@pytest.mark.parametrize("schema_name", [None, "events"])
def test_alembic_sees_no_difference_between_migrations_and_metadata(
    connection: Connection, schema_name: str | None
) -> None:
    names = Names(schema=schema_name)
    schema.migrate(connection, names)
    metadata = tables(names).metadata
    ours = {table.name for table in metadata.tables.values()}
    context = MigrationContext.configure(
        connection,
        opts={
            "include_schemas": schema_name is not None,
            "include_name": lambda name, kind, _: kind != "table" or name in ours,
        },
    )

    assert compare_metadata(context, metadata) == []


@pytest.mark.parametrize("schema_name", [None, "events"])
def test_every_step_down_and_up_again_leads_to_the_same_tables(
    connection: Connection, schema_name: str | None
) -> None:
    names = Names(schema=schema_name)
    where = schema_name or "public"
    schema.migrate(connection, names)
    whole = snapshot(connection, where)

    for version in range(migrations.LATEST, 0, -1):
        schema.migrate(connection, names, version)
        before = snapshot(connection, where)

        assert schema.migrate(connection, names, version - 1) == (version, version - 1)
        assert schema.version(connection, names) == version - 1
        assert schema.migrate(connection, names, version) == (version - 1, version)
        assert snapshot(connection, where) == before

        schema.migrate(connection, names, version - 1)

    assert not any(snapshot(connection, where).values())
    schema.migrate(connection, names)
    assert snapshot(connection, where) == whole


def test_no_name_is_cut_off_with_the_longest_prefix(connection: Connection) -> None:
    schema.migrate(connection, Names(schema="long", prefix=LONGEST))
    schema.migrate(connection, Names(schema="short", prefix="o"))

    def suffixes(where: str, prefix: str) -> set[str]:
        found = snapshot(connection, where, prefix=prefix)
        named = {str(row[0]) for row in found["tables"]} | {
            str(row[1]) for what in ("constraints", "indexes", "sequences") for row in found[what]
        }
        return {name.removeprefix(prefix) for name in named}

    assert suffixes("long", LONGEST) == suffixes("short", "o")


def test_every_constraint_and_index_is_named_after_its_table(connection: Connection) -> None:
    schema.migrate(connection, Names())
    found = snapshot(connection)
    partitions = {row[0] for row in found["partitions"]}
    for table, name, *_ in found["constraints"] + found["indexes"]:
        inherited = table in partitions and str(name).endswith("_check")
        assert str(name).startswith("outbox_" if inherited else f"{table}_")
        assert str(name).endswith(("_pkey", "_check", "_idx"))


def test_the_first_partitions_hold_a_million_ids_each(connection: Connection) -> None:
    schema.migrate(connection, Names())

    assert snapshot(connection)["partitions"] == [
        ("outbox_p0", "outbox", "FOR VALUES FROM (MINVALUE) TO ('1000000')"),
        ("outbox_p1", "outbox", "FOR VALUES FROM ('1000000') TO ('2000000')"),
        ("outbox_p2", "outbox", "FOR VALUES FROM ('2000000') TO ('3000000')"),
        ("outbox_p3", "outbox", "FOR VALUES FROM ('3000000') TO ('4000000')"),
        ("outbox_rest", "outbox", "DEFAULT"),
    ]
    size = connection.scalar(select(tables(Names()).meta.c.partition_size))
    assert size == 1_000_000


def test_an_insert_beyond_the_last_partition_lands_in_the_rest(connection: Connection) -> None:
    schema.migrate(connection, Names())
    found = tables(Names())
    add(connection, found)
    connection.execute(text("SELECT setval('outbox_id_seq', 999999)"))
    add(connection, found)
    connection.execute(text("SELECT setval('outbox_id_seq', 3999999)"))
    add(connection, found)
    connection.execute(text("SELECT setval('outbox_id_seq', 9223372036854775806)"))
    add(connection, found)

    rows = connection.execute(text("SELECT id, CAST(tableoid AS regclass)::text FROM outbox"))

    assert sorted(map(tuple, rows)) == [
        (1, "outbox_p0"),
        (1_000_000, "outbox_p1"),
        (4_000_000, "outbox_rest"),
        (9223372036854775807, "outbox_rest"),
    ]


def test_an_id_can_not_be_chosen(connection: Connection) -> None:
    schema.migrate(connection, Names())
    with pytest.raises(DBAPIError, match="GENERATED ALWAYS"):
        add(connection, tables(Names()), id=7)


def test_the_log_fills_in_what_is_not_given(connection: Connection) -> None:
    schema.migrate(connection, Names())
    found = tables(Names())
    add(connection, found)

    row = connection.execute(select(found.outbox)).one()

    assert (row.id, row.headers, row.priority) == (1, {}, 0)
    assert (row.key, row.tenant, row.run_at) == (None, None, None)
    assert row.created_at.tzinfo is not None


def test_meta_has_exactly_one_row(connection: Connection) -> None:
    schema.migrate(connection, Names())
    meta = tables(Names()).meta

    row = connection.execute(select(meta)).one()
    assert (row.schema_version, row.epoch) == (migrations.LATEST, 1)
    server = connection.scalar(text("SELECT system_identifier FROM pg_control_system()"))
    assert row.system_identifier == server

    values = {"schema_version": 1, "compatible_since": 1, "partition_size": 1}
    with pytest.raises(IntegrityError), connection.begin_nested():
        connection.execute(insert(meta).values(values))
    with pytest.raises(IntegrityError), connection.begin_nested():
        connection.execute(insert(meta).values(singleton=False, **values))


def test_deliveries_and_dead_letters_refuse_unknown_words(connection: Connection) -> None:
    schema.migrate(connection, Names())
    found = tables(Names())
    event = {"event_id": uuid.uuid4(), "event_type": "t", "position": 1, "listener": "l"}
    dead = {**event, "payload": {}, "event_created_at": text("now()"), "reason": "r"}
    now = text("now()")

    for position, state in enumerate(STATES):
        row = {**event, "position": position, "state": state, "due_at": now}
        connection.execute(insert(found.deliveries).values(row))
    for resolution in RESOLUTIONS:
        row = {**dead, "resolution": resolution, "resolved_at": now}
        connection.execute(insert(found.dead_letters).values(row))

    for table, row in (
        (found.deliveries, {**event, "state": "failed"}),
        (found.deliveries, {**event, "position": 9, "state": "parked", "due_at": None}),
        (found.dead_letters, {**dead, "resolution": "lost", "resolved_at": now}),
        (found.dead_letters, {**dead, "resolution": "fixed"}),
        (found.listeners, {"name": "l", "partition": 1, "partition_count": 1}),
    ):
        with pytest.raises(IntegrityError), connection.begin_nested():
            connection.execute(insert(table).values(row))
