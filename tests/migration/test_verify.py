"""``schema.verify`` finds each thing that can be wrong, and its advice fixes it."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

import pytest
from sqlalchemy import create_engine, event, insert, text

from sa_outbox import migrations, schema
from sa_outbox.database.rights import WRITTEN
from sa_outbox.database.tables import tables
from sa_outbox.errors import SchemaError
from sa_outbox.settings import Names

if TYPE_CHECKING:
    from sqlalchemy import URL, Connection

pytestmark = pytest.mark.matrix

NAMES = Names(schema="events")


@pytest.fixture
def migrated(connection: Connection) -> Connection:
    schema.migrate(connection, NAMES)
    return connection


def only_problem(connection: Connection, names: Names = NAMES) -> schema.Problem:
    [problem] = schema.problems(connection, names)
    return problem


def execute(connection: Connection, *statements: str) -> None:
    for statement in statements:
        connection.execute(text(statement))


def add(connection: Connection) -> None:
    row = {"event_id": uuid.uuid4(), "event_type": "t", "payload": {}}
    connection.execute(insert(tables(NAMES).outbox).values(row).inline())


def test_nothing_is_wrong_after_migrate(migrated: Connection) -> None:
    assert schema.problems(migrated, NAMES) == []
    schema.verify(migrated, NAMES)


def test_missing_tables_are_told_with_the_exact_command(url: URL) -> None:
    engine = create_engine(url.set(drivername="postgresql+psycopg"))
    with engine.connect() as connection, pytest.raises(SchemaError) as caught:
        schema.verify(connection, Names(schema="events", prefix="ob"))
    engine.dispose()

    [told] = caught.value.problems
    assert told in str(caught.value)
    assert "There is no outbox named 'ob' in schema 'events'" in told
    assert told.endswith(
        f"sa-outbox migrate --database-url postgresql://{url.username}@{url.host}:{url.port}"
        f"/{url.database} --schema events --prefix ob"
    )
    assert url.password is None or str(url.password) not in str(caught.value)


def test_a_search_path_that_leads_nowhere_is_told(connection: Connection) -> None:
    execute(connection, "SET LOCAL search_path = nowhere")
    assert "any schema of the search_path" in only_problem(connection, Names()).what


def test_the_command_has_a_placeholder_when_the_address_is_not_known() -> None:
    assert schema.migrate_command(Names()) == "sa-outbox migrate --database-url URL"


def test_a_missing_table_is_told(migrated: Connection) -> None:
    execute(migrated, "DROP TABLE events.outbox_inbox")
    problem = only_problem(migrated)
    assert problem.what == "Table outbox_inbox is missing"
    assert problem.fix.endswith("sa-outbox migrate --sql --schema events")


def test_a_missing_view_is_told(migrated: Connection) -> None:
    execute(migrated, "DROP VIEW events.outbox_backlog")
    problem = only_problem(migrated)
    assert problem.what == "View outbox_backlog is missing"
    assert problem.fix.endswith("sa-outbox migrate --sql --schema events")


def test_a_table_in_the_place_of_the_view_is_told(migrated: Connection) -> None:
    execute(migrated, "DROP VIEW events.outbox_backlog", "CREATE TABLE events.outbox_backlog ()")
    assert only_problem(migrated).what == "outbox_backlog is not the view that sa_outbox creates"


def test_every_missing_table_is_told_at_once(migrated: Connection) -> None:
    execute(migrated, "DROP TABLE events.outbox_inbox, events.outbox, events.outbox_meta CASCADE")
    assert [problem.what for problem in schema.problems(migrated, NAMES)] == [
        "Table outbox_meta is missing",
        "Table outbox is missing",
        "Table outbox_inbox is missing",
        "View outbox_backlog is missing",
    ]


def test_a_missing_column_is_told(migrated: Connection) -> None:
    execute(migrated, "ALTER TABLE events.outbox_audit DROP COLUMN detail, DROP COLUMN attempt")
    assert only_problem(migrated).what == "Table outbox_audit has no column attempt, detail"


def test_a_table_of_another_kind_is_told(migrated: Connection) -> None:
    execute(
        migrated,
        "ALTER TABLE events.outbox_audit RENAME TO was_audit",
        "CREATE VIEW events.outbox_audit AS SELECT * FROM events.was_audit",
    )
    assert "not the kind of table" in only_problem(migrated).what


def test_a_log_that_is_not_partitioned_is_told(migrated: Connection) -> None:
    execute(
        migrated,
        "DROP TABLE events.outbox CASCADE",
        "CREATE TABLE events.outbox (id bigint GENERATED ALWAYS AS IDENTITY, event_id uuid,"
        " event_type text, key text, tenant text, payload jsonb, headers jsonb,"
        " run_at timestamptz, priority smallint, created_at timestamptz)",
        "CREATE VIEW events.outbox_backlog AS SELECT 1 AS one",
    )
    assert "not the kind of table" in only_problem(migrated).what


def test_an_older_version_is_told_with_the_command(
    migrated: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sa_outbox.schema.inspection.LATEST", 8)
    monkeypatch.setattr("sa_outbox.schema.inspection.OLDEST_SUPPORTED", 7)
    problem = only_problem(migrated)
    assert "have version 1; this release needs 7 or 8" in problem.what
    assert problem.fix.startswith("sa-outbox migrate --database-url postgresql://")


def test_the_version_before_the_latest_is_accepted(
    migrated: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sa_outbox.schema.inspection.LATEST", 2)
    assert schema.problems(migrated, NAMES) == []


def test_a_newer_version_is_accepted_if_it_says_that_it_works_with_this_one(
    migrated: Connection,
) -> None:
    latest = migrations.LATEST
    execute(migrated, f"UPDATE events.outbox_meta SET schema_version = {latest + 3}")
    assert schema.problems(migrated, NAMES) == []


def test_a_newer_version_that_does_not_work_with_this_one_is_told(migrated: Connection) -> None:
    latest = migrations.LATEST
    execute(
        migrated,
        f"UPDATE events.outbox_meta SET schema_version = {latest + 3},"
        f" compatible_since = {latest + 2}",
    )
    problem = only_problem(migrated)
    assert f"this one knows up to {latest}" in problem.what
    assert problem.fix == "update the package sa_outbox"


def test_a_lost_version_is_told(migrated: Connection) -> None:
    execute(migrated, "DELETE FROM events.outbox_meta")
    assert only_problem(migrated).what == "outbox_meta has lost its one row"


def test_a_table_earlier_in_the_search_path_is_told(connection: Connection) -> None:
    schema.migrate(connection, Names())
    execute(connection, "CREATE TEMPORARY TABLE outbox (id bigint)")
    problem = only_problem(connection, Names())
    assert problem.what == "Another table named outbox comes first in the search_path"

    execute(connection, "DROP TABLE pg_temp.outbox")
    assert schema.problems(connection, Names()) == []


# The rest: break it, see that exactly this is told, do what is said, see that all is well.

BREAKAGES = {
    "ids that may be chosen": (
        ["ALTER TABLE events.outbox ALTER COLUMN id SET GENERATED BY DEFAULT"],
        "outbox.id is not GENERATED ALWAYS",
    ),
    "ids that are not drawn": (
        ["ALTER TABLE events.outbox ALTER COLUMN id DROP IDENTITY"],
        "outbox.id is not GENERATED ALWAYS",
    ),
    "a cached sequence": (
        ["ALTER SEQUENCE events.outbox_id_seq CACHE 10"],
        'Sequence "events"."outbox_id_seq" has CACHE 10',
    ),
    "a sequence that goes in steps": (
        ["ALTER SEQUENCE events.outbox_id_seq INCREMENT 2"],
        "does not count up by one",
    ),
    "a sequence that starts again": (
        ["ALTER SEQUENCE events.outbox_id_seq CYCLE"],
        "does not count up by one",
    ),
    "a sequence that was set back": (
        ["ALTER SEQUENCE events.outbox_id_seq RESTART"],
        "is at 0, behind event 3",
    ),
    "a sequence that was set back a little": (
        ["SELECT setval('events.outbox_id_seq', 2)"],
        "is at 2, behind event 3",
    ),
    "no default partition": (
        ["DROP TABLE events.outbox_rest"],
        "outbox has no default partition",
    ),
}


@pytest.mark.parametrize(("statements", "told"), BREAKAGES.values(), ids=BREAKAGES.keys())
def test_what_reading_without_loss_stands_on_is_verified_and_fixed(
    migrated: Connection, statements: list[str], told: str
) -> None:
    for _ in range(3):
        add(migrated)
    execute(migrated, *statements)

    problem = only_problem(migrated)
    assert told in problem.what

    execute(migrated, problem.fix.partition(";")[0])
    assert schema.problems(migrated, NAMES) == []
    add(migrated)


def test_a_cursor_ahead_of_the_sequence_is_told(migrated: Connection) -> None:
    add(migrated)
    execute(
        migrated,
        "INSERT INTO events.outbox_listeners (name, last_processed_id) VALUES ('at it', 1)",
        "INSERT INTO events.outbox_listeners (name, last_processed_id) VALUES ('ahead', 70)",
    )

    problem = only_problem(migrated)
    assert problem.what.startswith("Listener 'ahead' is at 70, but the last id drawn is 1")

    execute(migrated, problem.fix.partition(";")[0])
    assert schema.problems(migrated, NAMES) == []


def test_a_listener_that_moves_on_meanwhile_is_not_ahead(migrated: Connection) -> None:
    """Between the look at the sequence and the one at the cursors, events are added and handled."""
    moved: list[str] = []

    def move_on(connection: Connection, _cursor: object, statement: str, *_: object) -> None:
        if "last_value" in statement and not moved:
            moved.append(statement)
            add(connection)
            execute(
                connection,
                "INSERT INTO events.outbox_listeners (name, last_processed_id)"
                " SELECT 'at it', max(id) FROM events.outbox",
            )

    event.listen(migrated, "after_cursor_execute", move_on)

    assert schema.problems(migrated, NAMES) == []
    assert moved


def test_rights_that_are_missing_are_told_with_their_grants(migrated: Connection) -> None:
    execute(migrated, 'CREATE ROLE "the ""shop"', 'SET LOCAL ROLE "the ""shop"')

    found = schema.problems(migrated, NAMES)

    assert [problem.fix for problem in found] == [
        'GRANT USAGE ON SCHEMA "events" TO "the ""shop";',
        f'GRANT INSERT ({", ".join(WRITTEN)}) ON "events"."outbox" TO "the ""shop";',
        'GRANT SELECT ON "events"."outbox_meta" TO "the ""shop";',
    ]
    execute(migrated, "RESET ROLE", *(problem.fix for problem in found))
    execute(migrated, 'SET LOCAL ROLE "the ""shop"')
    assert schema.problems(migrated, NAMES) == []
    add(migrated)


def test_a_read_only_session_is_told(migrated: Connection) -> None:
    execute(migrated, "SET TRANSACTION READ ONLY")
    problem = only_problem(migrated)
    assert "read-only" in problem.what
    assert "default_transaction_read_only = off" in problem.fix


def test_a_standby_is_told(migrated: Connection) -> None:
    # A function of this name in front of the real one: the catalog answers as a standby's does.
    execute(
        migrated,
        "CREATE FUNCTION events.pg_is_in_recovery() RETURNS boolean LANGUAGE sql AS 'SELECT true'",
        "SET LOCAL search_path = events, pg_catalog",
    )
    problem = only_problem(migrated)
    assert "standby" in problem.what
    assert "primary" in problem.fix


def test_everything_wrong_is_told_at_once(migrated: Connection) -> None:
    execute(
        migrated,
        "DROP TABLE events.outbox_rest, events.outbox_inbox",
        "ALTER SEQUENCE events.outbox_id_seq CACHE 5",
    )

    with pytest.raises(SchemaError) as caught:
        schema.verify(migrated, NAMES)

    assert len(caught.value.problems) == 3
    assert all(problem in str(caught.value) for problem in caught.value.problems)
    assert all("To fix it: " in problem for problem in caught.value.problems)
