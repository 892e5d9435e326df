"""The statements of the hot path are served by their indexes, on tables where that is a choice."""

from __future__ import annotations

import json
from collections.abc import Iterator
from hashlib import md5
from typing import Any
from uuid import UUID

import pytest
from sqlalchemy import Connection, Engine, TextClause, create_engine, text
from sqlalchemy.engine import URL

from sa_outbox.database.tables import tables
from sa_outbox.schema import migrate
from sa_outbox.settings import Names
from sa_outbox.sql.listener import cursors, deliveries, leases, renewal
from sa_outbox.sql.log import horizon, listener_partitions, reads
from sa_outbox.sql.people import causation, choices, overview, records, searches
from sa_outbox.sql.queue import claims

pytestmark = pytest.mark.matrix

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
    (
        "INSERT INTO outbox_dead_letters (listener, position, event_id, event_type, payload,"
        " event_created_at, reason, error_fingerprint) SELECT 'l' || n % 20, n,"
        " gen_random_uuid(), 'order.x', '1', now(), 'attempts', 'f' || n % 300"
        " FROM generate_series(1, 20000) n"
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
        with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            connection.execute(text("VACUUM outbox_dead_letters"))  # so that an index is enough
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
        if each["Node Type"] == "Seq Scan"
        and each["Actual Loops"]
        and each["Relation Name"] != "outbox_id_seq"  # one row
    ]


def read(plan: dict[str, Any]) -> int:
    """Rows that were read from tables, also those that a filter threw away."""
    total = 0.0
    for each in nodes(plan):
        if each.get("Relation Name", "pg_").startswith("pg_"):
            continue
        if "Scan" in each["Node Type"]:
            rows = each["Actual Rows"] + each.get("Rows Removed by Filter", 0)
            total += rows * each["Actual Loops"]
    return round(total)


@pytest.mark.parametrize(
    ("build", "values"), [(horizon.ceiling, {}), (horizon.read, {"position": 20_000})]
)
def test_the_ceiling_is_the_end_of_an_index(
    connection: Connection, build: Any, values: dict[str, int]
) -> None:
    found = plan(connection, build(TABLES), **values)

    assert [each for each in scanned(found) if each.startswith("outbox_p")] == []
    assert read(found) <= 10


@pytest.mark.parametrize("where", [None, '{"kind": "nobody"}'])
@pytest.mark.parametrize("build", [reads.read_final, reads.read_all])
def test_a_read_touches_its_batch_and_not_the_log(
    connection: Connection, build: Any, where: str | None
) -> None:
    """Also if no event meets its filter."""
    found = plan(connection, build(TABLES, ON, where=where), cursor=20_000, upper=ROWS, limit=500)

    assert [each for each in scanned(found) if each != "outbox_rest"] == []
    assert read(found) <= 1_100


@pytest.mark.parametrize("where", [[], ['{"kind": "nobody"}', '{"n": 1}']])
def test_the_first_few_above_the_cursor_are_the_end_of_an_index(
    connection: Connection, where: list[str]
) -> None:
    found = plan(connection, reads.first_few(TABLES, ON, where), cursor=20_000, limit=32)

    assert [each for each in scanned(found) if each != "outbox_rest"] == []
    assert read(found) <= 100


@pytest.mark.parametrize("build", [reads.read_final, reads.read_all, reads.read_with_gaps])
def test_a_read_without_a_filter_compares_no_payload(build: Any) -> None:
    for carefully in (False, True):
        plain = str(build(TABLES, ON, carefully=carefully))
        filtered = str(build(TABLES, ON, where="{}", carefully=carefully))

        assert "payload @>" not in plain
        assert "payload @>" in filtered
    assert "payload @>" not in str(reads.first_few(TABLES, ON))


def test_ids_that_nobody_drew_are_looked_for_above_the_sequence(connection: Connection) -> None:
    found = plan(connection, horizon.undrawn(TABLES), most=1_000)

    assert [each for each in scanned(found) if each != "outbox_rest"] == []
    assert read(found) <= 10


def test_a_read_of_a_partition_touches_as_many_times_its_batch(connection: Connection) -> None:
    statement = reads.read_final(TABLES, ON, (3, 4))
    found = plan(connection, statement, cursor=20_000, upper=ROWS, limit=100)

    assert [each for each in scanned(found) if each != "outbox_rest"] == []
    assert read(found) <= 1_000


def test_what_partitions_are_apart_is_looked_up_and_not_the_log(connection: Connection) -> None:
    found = plan(
        connection,
        listener_partitions.visible(TABLES),
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
        reads.read_with_gaps(TABLES, ON),
        lows=lows,
        highs=highs,
        cursor=59_000,
        upper=ROWS,
        limit=500,
    )

    assert [each for each in scanned(found) if each != "outbox_rest"] == []
    assert read(found) <= 3_000


def test_what_is_due_is_found_by_its_index(connection: Connection) -> None:
    found = plan(connection, reads.read_due(TABLES), listener="l0", part=0, limit=10, taken=[])

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
        owner="me",
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
    renew = plan(connection, renewal.renew(TABLES), **wanted, tokens=[0, 0, 0], owner="me")

    assert scanned(claim) == []
    assert scanned(renew) == []


def test_those_behind_a_key_are_found_by_their_index(connection: Connection) -> None:
    found = plan(connection, deliveries.promote(TABLES), listener="l0", keys=["k20", "k40"])

    assert scanned(found) == []


GAPS = [(1 + 20 * number, 10 + 20 * number) for number in range(1_000)]
"""Of a queue: the ids that others were taken ahead of."""
UNTAKEN = ",".join(f"[{low},{high}]" for low, high in GAPS)


def filters(plan: dict[str, Any]) -> list[str]:
    """What is computed for each row that is read."""
    return [each["Filter"] for each in nodes(plan) if "Filter" in each]


@pytest.mark.parametrize(
    ("build", "options"), [(claims.read_urgent, {}), (claims.turns, {"window": 200_000})]
)
def test_a_queue_s_gaps_are_read_once_and_not_for_each_event(
    connection: Connection, build: Any, options: dict[str, int]
) -> None:
    bounds = {"cursor": GAPS[-1][1], "first": 1, "untaken": f"{{{UNTAKEN}}}", "limit": 100}
    bounds["upper"] = ROWS
    found = plan(connection, build(TABLES, ["*"]), **bounds, **options)

    assert any("@>" in each for each in filters(found)), "nobody asks whether an event was taken"
    assert [each for each in filters(found) if UNTAKEN[:20] in each] == []
    assert "InitPlan" in {each.get("Parent Relationship") for each in nodes(found)}


def test_where_a_queue_stands_is_computed_once_and_not_for_each_event(
    connection: Connection,
) -> None:
    connection.execute(
        text("UPDATE outbox_listeners SET last_processed_id = :at, gaps = :gaps WHERE name = 'l7'"),
        {"at": GAPS[-1][1], "gaps": json.dumps(GAPS)},
    )
    found = plan(connection, claims.state(TABLES), name="l7", held=[])

    of_the_log = [each for each in nodes(found) if each.get("Alias", "").startswith("o_")]
    assert of_the_log
    assert [each for each in filters(found) if "gaps" in each or "range_agg" in each] == []
    assert "gaps" not in " ".join(each.get("Index Cond", "") for each in of_the_log)


def test_the_overview_reads_a_few_rows_for_each_listener_and_not_the_log(
    connection: Connection,
) -> None:
    connection.execute(text("DELETE FROM outbox_listeners WHERE name >= 'l2'"))
    connection.execute(
        text(
            "UPDATE outbox_listeners SET last_processed_id = 59990,"
            " payload_filter = CASE WHEN name < 'l15' THEN CAST('{\"n\": 1}' AS jsonb) END"
        )
    )
    listeners = connection.execute(text("SELECT count(*) FROM outbox_listeners")).scalar_one()

    for build in (overview.cursors, overview.deliveries):
        found = plan(connection, overview.clause(build(Names(), most=20)))
        assert not any(each.startswith("outbox_p") for each in scanned(found))
        assert "outbox_deliveries" not in scanned(found)
        assert read(found) <= listeners * 60


def test_a_page_of_events_reads_its_window(connection: Connection) -> None:
    statement = searches.events(TABLES, ["key"])
    found = plan(connection, statement, key="nobody", lower=30_001, upper=31_000, limit=50)

    assert [each for each in scanned(found) if each != "outbox_rest"] == []
    assert read(found) <= 1_000


def test_events_that_were_chosen_are_looked_up_and_not_the_log(connection: Connection) -> None:
    found = plan(connection, claims.read_chosen(TABLES), ids=list(range(100, ROWS, 60)))

    assert [each for each in scanned(found) if each != "outbox_rest"] == []
    assert read(found) <= 1_100


def test_whether_tenants_differ_ends_at_the_first_that_does(connection: Connection) -> None:
    connection.execute(text("UPDATE outbox SET tenant = 'other' WHERE id = 150"))
    bounds = {"cursor": 100, "first": 101, "untaken": "{}", "window": 200_000, "upper": ROWS}
    found = plan(connection, claims.differ(TABLES, ["*"]), **bounds)

    assert read(found) < ROWS / 2  # one of six partitions


def test_dead_letters_are_counted_by_error_from_an_index_alone(connection: Connection) -> None:
    """Of the table it reads one row for each group that is shown; a filter by error, its page. Rows
    this small are read as fast without it."""
    connection.execute(text("SET LOCAL enable_seqscan = off"))
    connection.execute(text("SET LOCAL enable_bitmapscan = off"))
    found = plan(connection, searches.dead_letter_groups(TABLES, ["open"]), limit=50)

    assert scanned(found) == []
    fetched = [
        each for each in nodes(found) if each["Node Type"] in ("Index Scan", "Bitmap Heap Scan")
    ]
    assert sum(each["Actual Rows"] * each["Actual Loops"] for each in fetched) == 50
    page = searches.dead_letters(TABLES, ["open", "fingerprint"])
    found = plan(connection, page, fingerprint="f7", beyond=2**62, limit=20)
    assert read(found) <= 21


AUDITED = (
    (
        "INSERT INTO outbox_audit (action, event_id, event_type, listener, actor_id, attempt)"
        " SELECT 'failed', md5((n % 3000)::text)::uuid, 'order.x', 'l' || n % 20, 'u' || n % 50, 1"
        " FROM generate_series(1, 30000) n"
    ),
    "ANALYZE outbox_audit",
)


@pytest.mark.parametrize("given", [("actor",), ("event_id",), ()])
def test_a_page_of_the_audit_reads_what_it_may_examine(
    connection: Connection, given: tuple[str, ...]
) -> None:
    for statement in AUDITED:
        connection.execute(text(statement))
    values: dict[str, Any] = {"actor": "u1", "event_id": UUID(md5(b"7").hexdigest())}
    bounds = {"before": 2**62, "limit": 51} | ({} if "event_id" in given else {"examined": 1000})

    found = plan(
        connection, records.found(TABLES, given), **bounds, **{each: values[each] for each in given}
    )

    assert scanned(found) == []
    assert read(found) <= 1000


@pytest.mark.parametrize("build", [records.durations, records.examined, records.last_examined])
def test_durations_read_the_newest_records(connection: Connection, build: Any) -> None:
    for statement in AUDITED:
        connection.execute(text(statement))
    bounds = {"before": 2**62} if build is records.last_examined else {}
    bounds |= {"limit": 200} if build is records.durations else {}

    found = plan(connection, build(TABLES), examined=1000, **bounds)

    assert scanned(found) == []
    assert read(found) <= 1000


@pytest.mark.parametrize("table", [TABLES.outbox, TABLES.dead_letters, TABLES.audit])
def test_what_there_is_to_filter_by_is_read_from_the_newest_rows(
    connection: Connection, table: Any
) -> None:
    for statement in AUDITED:
        connection.execute(text(statement))

    found = plan(connection, choices.values_of(table, "event_type"), examined=1000, most=200)

    assert scanned(found) == []
    assert read(found) <= 1100  # a few more from the partition above


def test_what_an_event_caused_is_searched_for_in_its_window(connection: Connection) -> None:
    found = plan(
        connection,
        causation.of_tree(TABLES),
        position=20_000,
        examined=1000,
        tree="0123456789ab:",
        limit=41,
    )

    assert scanned(found) == []
    assert read(found) <= 1000
