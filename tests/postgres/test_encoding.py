"""What SQL may write into the log, and in which encoding: refused where it is made."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from psycopg import sql
from sqlalchemy import URL, Engine, create_engine, text
from sqlalchemy.exc import IntegrityError

from sa_outbox import schema
from sa_outbox.doctor import examine
from sa_outbox.errors import SchemaError
from sa_outbox.settings import Names
from tests.support.server import administer

pytestmark = pytest.mark.matrix


@pytest.fixture
def ascii_engine(server_url: str, new_database: Callable[[], URL]) -> Iterator[Engine]:
    """Of a database that has no encoding."""
    url = new_database()
    change = sql.SQL("UPDATE pg_database SET encoding = 0 WHERE datname = {}")
    administer(server_url, change.format(sql.Literal(url.database)))
    given = {"client_encoding": "utf8"}
    engine = create_engine(url.set(drivername="postgresql+psycopg"), connect_args=given)
    yield engine
    engine.dispose()


def test_migrate_makes_no_tables_in_a_database_that_is_not_in_utf8(ascii_engine: Engine) -> None:
    with ascii_engine.begin() as connection, pytest.raises(SchemaError, match="UTF8"):
        schema.migrate(connection, Names())
    with ascii_engine.begin() as connection:
        assert connection.scalar(text("SELECT to_regclass('outbox')")) is None


def test_verify_and_the_doctor_name_the_encoding(ascii_engine: Engine) -> None:
    with ascii_engine.begin() as connection:
        codes = [each.code for each in schema.problems(connection, Names())]
        found = {each.code: each for each in examine(connection, Names())}

    assert "encoding" in codes
    assert "SQL_ASCII" in found["encoding"].what
    assert "ENCODING 'UTF8'" in found["encoding"].fix


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("run_at", "'infinity'"),
        ("run_at", "'-infinity'"),
        ("key", "repeat('x', 3000)"),
        ("tenant", "repeat('x', 3000)"),
        ("event_type", "repeat('x', 3000)"),
    ],
)
def test_sql_can_not_write_what_a_listener_could_not_settle(
    engine: Engine, column: str, value: str
) -> None:
    given = {"event_type": "'order.placed'", column: value}
    names, values = ", ".join(given), ", ".join(given.values())
    statement = (
        f"INSERT INTO outbox (event_id, payload, {names})"
        f" VALUES (gen_random_uuid(), '{{}}', {values})"
    )

    with engine.connect() as connection, pytest.raises(IntegrityError, match="violates check"):
        connection.execute(text(statement))
