"""The statements of the hot path are served by their indexes, on tables where that is a choice."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from sqlalchemy import Connection, Engine, TextClause, create_engine, text
from sqlalchemy.engine import URL

from sa_outbox.schema import migrate
from sa_outbox.settings import Names
from sa_outbox.sql import cursors, deliveries, horizon, leases, partitions, reading
from sa_outbox.tables import tables

TABLES = tables(Names())
ON = ("order.*", "payment.done")
ROWS = 60_000
FILL = (
    # Small partitions, so that most must be left alone.
    "UPDATE outbox_meta SET partition_size = 10000",
    "DROP TABLE outbox_p0, outbox_p1, outbox_p2, outbox_p3",
    *(
        f"CREATE TABLE outbox_p{number} PARTITION OF outbox"
        f" FOR VALUES FROM ({number * 10_000}) TO ({(number + 1) * 10_000})"
        for number in range(7)
    ),
    (
        "INSERT INTO outbox (event_id, event_type, key, payload)"
        " SELECT gen_random_uuid(), 'order.' || n % 50, 'k' || n % 1000, '{}'"
        f" FROM generate_series(1, {ROWS}) n"
    ),
    "INSERT INTO outbox_listeners (name) SELECT 'l' || n FROM generate_series(1, 2000) n",
    (
        "INSERT INTO outbox_deliveries"
        " (listener, position, event_id, event_type, key, state, due_at)"
        " SELECT 'l' || n % 20, n, gen_random_uuid(), 'order.x', 'k' || n % 500,"
        " CASE WHEN n % 10 = 0 THEN 'parked' ELSE 'behind' END,"
        " now() + make_interval(secs => n - 100) FROM generate_series(1, 20000) n"
    ),
    "ANALYZE",
)


@pytest.fixture(scope="module")
def filled(server_url: str, database_url: URL) -> Iterator[Engine]:
    from tests.support.server import temporary_database  # noqa: PLC0415 - a database of its own

    with temporary_database(server_url, "plans") as url:
        engine = create_engine(url.set(drivername="postgresql+psycopg"))
        with engine.begin() as connection:
            migrate(connection, Names())
            for statement in FILL:
                connection.execute(text(statement))
        yield engine
        engine.dispose()


@pytest.fixture
def connection(filled: Engine) -> Iterator[Connection]:
    with filled.connect() as connection:
        yield connection
        connection.rollback()


def plan(connection: Connection, statement: TextClause, **values: Any) -> dict[str, Any]:
    compiled = statement.compile(dialect=connection.dialect)
    explained = connection.exec_driver_sql(
        f"EXPLAIN (ANALYZE, FORMAT JSON) {compiled}", compiled.construct_params(values)
    )
    found: dict[str, Any] = explained.scalar_one()[0]["Plan"]
    return found


def nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for each in plan.get("Plans", ()):
        yield from nodes(each)


def scanned(plan: dict[str, Any]) -> list[str]:
    """Tables that were read from one end to the other. A node that never ran read nothing."""
    return [
        each["Relation Name"]
        for each in nodes(plan)
        if each["Node Type"] == "Seq Scan" and each["Actual Loops"]
    ]


def read(plan: dict[str, Any]) -> int:
    """Rows that were read from tables, also those that a filter threw away."""
    total = 0.0
    for each in nodes(plan):
        if "Relation Name" in each and "Scan" in each["Node Type"]:
            rows = each["Actual Rows"] + each.get("Rows Removed by Filter", 0)
            total += rows * each["Actual Loops"]
    return round(total)


def test_the_ceiling_is_the_end_of_an_index(connection: Connection) -> None:
    found = plan(connection, horizon.ceiling(TABLES))

    assert [each for each in scanned(found) if each != "outbox_rest"] == []
    assert read(found) <= 10


@pytest.mark.parametrize("build", [reading.read_final, reading.read_all])
def test_a_read_touches_its_batch_and_not_the_log(connection: Connection, build: Any) -> None:
    found = plan(connection, build(TABLES, ON), cursor=20_000, upper=ROWS, limit=500)

    assert [each for each in scanned(found) if each != "outbox_rest"] == []
    assert read(found) <= 1_100


def test_a_read_of_a_partition_touches_as_many_times_its_batch(connection: Connection) -> None:
    statement = reading.read_final(TABLES, ON, (3, 4))
    found = plan(connection, statement, cursor=20_000, upper=ROWS, limit=100)

    assert [each for each in scanned(found) if each != "outbox_rest"] == []
    assert read(found) <= 1_000


def test_what_partitions_are_apart_is_looked_up_and_not_the_log(connection: Connection) -> None:
    found = plan(
        connection,
        partitions.visible(TABLES),
        lows=[100, 30_000],
        highs=[102, 30_500],
        count=4,
        limit=1_000,
    )

    assert [each for each in scanned(found) if each != "outbox_rest"] == []
    assert read(found) <= 3_000


def test_a_read_with_gaps_looks_each_of_them_up(connection: Connection) -> None:
    lows, highs = [100, 5_000, 30_000], [102, 5_000, 30_010]
    found = plan(
        connection,
        reading.read_with_gaps(TABLES, ON),
        lows=lows,
        highs=highs,
        cursor=59_000,
        upper=ROWS,
        limit=500,
    )

    assert [each for each in scanned(found) if each != "outbox_rest"] == []
    assert read(found) <= 3_000


def test_what_is_due_is_found_by_its_index(connection: Connection) -> None:
    found = plan(connection, reading.read_due(TABLES), listener="l0", part=0, limit=10, taken=[])

    assert [each for each in scanned(found) if each != "outbox_rest"] == []
    assert read(found) <= 2_000


def test_the_next_due_time_is_found_by_its_index(connection: Connection) -> None:
    found = plan(connection, deliveries.next_due(TABLES), listener="l0", part=0, taken=[])

    assert scanned(found) == []


def test_the_cursor_moves_by_its_primary_key(connection: Connection) -> None:
    found = plan(
        connection,
        cursors.advance(TABLES),
        name="l7",
        part=0,
        token=0,
        old=0,
        revision=0,
        position=5,
        gaps="[]",
        duration=30.0,
    )

    assert scanned(found) == []


def test_leases_are_claimed_and_renewed_by_primary_key(connection: Connection) -> None:
    wanted = {"names": ["l1", "l2", "l3"], "parts": [0, 0, 0], "duration": 30.0}
    claim = plan(connection, leases.claim(TABLES), **wanted, owner="me")
    renew = plan(connection, leases.renew(TABLES), **wanted, tokens=[0, 0, 0])

    assert scanned(claim) == []
    assert scanned(renew) == []


def test_those_behind_a_key_are_found_by_their_index(connection: Connection) -> None:
    found = plan(connection, deliveries.promote(TABLES), listener="l0", keys=["k20", "k40"])

    assert scanned(found) == []
