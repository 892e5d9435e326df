"""``schema.migrate``: all or nothing, one at a time, and only where it may."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from sqlalchemy import create_engine, text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import create_async_engine

from sa_outbox import migrations, schema
from sa_outbox.errors import ConfigError, SchemaError
from sa_outbox.settings import Names
from tests.migration.snapshot import snapshot

if TYPE_CHECKING:
    from sqlalchemy import URL, Connection, Engine

DRIVERS = ["postgresql", "postgresql+asyncpg", "postgresql+psycopg", "postgresql+psycopg2"]


@pytest.mark.parametrize("drivername", DRIVERS)
def test_it_makes_the_same_tables_with_every_driver(url: URL, drivername: str) -> None:
    names = Names(schema="events")

    result = schema.transact(
        url.set(drivername=drivername), lambda connection: schema.migrate(connection, names)
    )

    assert result == (0, migrations.LATEST)
    assert schema.transact(url, lambda connection: schema.problems(connection, names)) == []


def test_it_does_nothing_the_second_time(connection: Connection) -> None:
    schema.migrate(connection, Names())
    before = snapshot(connection)

    assert schema.migrate(connection, Names()) == (migrations.LATEST, migrations.LATEST)
    assert snapshot(connection) == before


def test_the_callers_rollback_takes_everything_back(connection: Connection) -> None:
    schema.migrate(connection, Names())
    connection.rollback()

    assert schema.version(connection, Names()) == 0
    assert not any(snapshot(connection).values())


async def run_on_asyncpg(url: URL) -> tuple[int, int]:
    engine = create_async_engine(url.set(drivername="postgresql+asyncpg"))
    try:
        async with engine.begin() as connection:
            return await connection.run_sync(schema.migrate, Names())
    finally:
        await engine.dispose()


@pytest.mark.anyio
async def test_it_runs_on_an_async_connection_by_run_sync(url: URL) -> None:
    assert await run_on_asyncpg(url) == (0, migrations.LATEST)


def test_two_deploys_at_once_make_the_tables_once(address: str, engine: Engine) -> None:
    command = [sys.executable, "-m", "sa_outbox", "migrate", "--schema", "events"]
    environment = {"SA_OUTBOX_DATABASE_URL": address}
    # A third one that is in the middle of it, so that both of them have to wait for each other.
    with engine.begin() as third:
        schema.migrate(third, Names(schema="other"))
        deploys = [
            subprocess.Popen(
                command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
            )
            for _ in range(2)
        ]
        _both_wait(engine)
    told = sorted(deploy.communicate(timeout=50)[0].decode() for deploy in deploys)

    assert [deploy.returncode for deploy in deploys] == [0, 0], told
    assert "already at version 1" in told[0]
    assert "version 0 -> 1" in told[1]


def _both_wait(engine: Engine) -> None:
    """Return when two sessions wait for the lock; the test's time limit ends it otherwise."""
    waiting = text("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted")
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as observer:
        while observer.scalar(waiting) != 2:
            pass


def test_a_database_newer_than_the_library_is_left_alone(connection: Connection) -> None:
    schema.migrate(connection, Names())
    connection.execute(text("UPDATE outbox_meta SET schema_version = 99"))

    with pytest.raises(SchemaError, match="update sa_outbox"):
        schema.migrate(connection, Names())
    with pytest.raises(SchemaError, match="update sa_outbox"):
        schema.migrate(connection, Names(), 0)


@pytest.mark.parametrize("table", ["outbox", "outbox_listeners"])
def test_a_table_of_somebody_else_is_not_touched(connection: Connection, table: str) -> None:
    connection.execute(text(f"CREATE TABLE {table} (mine integer)"))

    with pytest.raises(SchemaError, match=f"{table} already exist"):
        schema.migrate(connection, Names())


def test_a_meta_table_of_somebody_else_is_not_touched(connection: Connection) -> None:
    connection.execute(text("CREATE TABLE outbox_meta (mine integer)"))

    with pytest.raises(SchemaError, match="not a table of sa_outbox"):
        schema.migrate(connection, Names())


def test_a_meta_table_without_its_row_is_an_error(connection: Connection) -> None:
    schema.migrate(connection, Names())
    connection.execute(text("DELETE FROM outbox_meta"))

    with pytest.raises(SchemaError, match="lost its one row"):
        schema.migrate(connection, Names())


def test_autocommit_is_refused(url: URL) -> None:
    engine = create_engine(url.set(drivername="postgresql+psycopg"), isolation_level="AUTOCOMMIT")
    with engine.connect() as connection, pytest.raises(ConfigError, match="AUTOCOMMIT"):
        schema.migrate(connection, Names())
    engine.dispose()


@pytest.mark.parametrize("level", ["REPEATABLE READ", "SERIALIZABLE"])
def test_a_snapshot_older_than_the_lock_is_refused(engine: Engine, level: str) -> None:
    with (
        engine.connect().execution_options(isolation_level=level) as connection,
        pytest.raises(ConfigError, match="READ COMMITTED"),
    ):
        schema.migrate(connection, Names())


def test_a_read_only_database_is_refused(connection: Connection) -> None:
    connection.execute(text("SET TRANSACTION READ ONLY"))

    with pytest.raises(SchemaError, match="read-only"):
        schema.migrate(connection, Names())


def test_an_unknown_version_is_refused(connection: Connection) -> None:
    with pytest.raises(ConfigError, match="version"):
        schema.migrate(connection, Names(), migrations.LATEST + 1)


def test_an_ordinary_role_needs_no_right_to_create_a_schema_that_is_there(
    connection: Connection,
) -> None:
    connection.execute(text("CREATE ROLE plain_migrator"))
    connection.execute(text("CREATE SCHEMA events AUTHORIZATION plain_migrator"))
    connection.execute(text("SET LOCAL ROLE plain_migrator"))

    schema.migrate(connection, Names(schema="events"))

    identifier = connection.scalar(text("SELECT system_identifier FROM events.outbox_meta"))
    assert identifier is not None
    with pytest.raises(DBAPIError, match="permission denied"):
        schema.migrate(connection, Names(schema="another"))


def test_a_role_that_may_not_know_the_server_leaves_its_identifier_open(
    connection: Connection,
) -> None:
    connection.execute(text("CREATE ROLE kept_out"))
    connection.execute(text("CREATE SCHEMA events AUTHORIZATION kept_out"))
    connection.execute(text("REVOKE EXECUTE ON FUNCTION pg_control_system() FROM PUBLIC"))
    connection.execute(text("SET LOCAL ROLE kept_out"))

    schema.migrate(connection, Names(schema="events"))

    assert connection.scalar(text("SELECT system_identifier FROM events.outbox_meta")) is None


def test_without_a_schema_the_tables_go_where_the_search_path_leads(
    connection: Connection,
) -> None:
    connection.execute(text("CREATE SCHEMA first"))
    schema.migrate(connection, Names())
    connection.execute(text("SET LOCAL search_path = first, public"))

    # Found further down the path: those are the ones that a bare name means.
    assert schema.migrate(connection, Names()) == (migrations.LATEST, migrations.LATEST)
    schema.migrate(connection, Names(), 0)
    assert schema.migrate(connection, Names()) == (0, migrations.LATEST)

    assert snapshot(connection, "first")["tables"]
    assert not snapshot(connection, "public")["tables"]


def test_two_outboxes_live_in_one_database(connection: Connection) -> None:
    schema.migrate(connection, Names())
    schema.migrate(connection, Names(prefix="second"))
    schema.migrate(connection, Names(schema="events"))
    schema.migrate(connection, Names(), 0)

    assert schema.version(connection, Names()) == 0
    assert schema.problems(connection, Names(prefix="second")) == []
    assert schema.problems(connection, Names(schema="events")) == []


def test_half_a_schema_can_be_taken_away(connection: Connection) -> None:
    schema.migrate(connection, Names())
    connection.execute(text("DROP TABLE outbox_inbox, outbox CASCADE"))

    schema.migrate(connection, Names(), 0)

    assert not any(snapshot(connection).values())


@pytest.mark.parametrize(
    ("address", "told"),
    [
        ("mysql://u:geheim@h/d", "PostgreSQL"),
        ("sqlite://", "PostgreSQL"),
        ("no address, geheim", "invalid database URL"),
        ("postgresql://u:geheim@h:port/d", "invalid database URL"),
        ("postgresql+nonsense://u:geheim@h/d", "not installed"),
        ("postgresql+pg8000://u:geheim@h/d", "not installed"),
    ],
)
def test_a_wrong_url_is_refused_without_repeating_it(address: str, told: str) -> None:
    with pytest.raises(ConfigError, match=told) as caught:
        schema.transact(address, lambda connection: schema.version(connection, Names()))
    assert "geheim" not in str(caught.value)


def test_the_parameters_of_libpq_are_understood(url: URL) -> None:
    asked = url.update_query_dict({"sslmode": "disable", "application_name": "deploy"})

    name = schema.transact(
        asked.render_as_string(hide_password=False).replace("postgresql://", "postgres://"),
        lambda connection: connection.scalar(text("SELECT current_setting('application_name')")),
    )

    assert name == "deploy"
