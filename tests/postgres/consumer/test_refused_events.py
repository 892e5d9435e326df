"""One event that the database can't read, or of which it can't write what became of it: a dead
letter, and its neighbours are delivered. On every order; nothing loops, and no innocent is blamed.

All of them are written by SQL, past the constraints of the log: these may have been dropped, or be
not valid for what was there before.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, Literal, get_args

import pytest
from psycopg import sql
from sqlalchemy import URL, create_engine

from sa_outbox import Event, Outbox
from sa_outbox.observe import DatabaseAway, DeliverySettled
from sa_outbox.schema import inspection, migrate
from sa_outbox.settings import Names
from tests.support.server import administer

from .conftest import LATER, ONCE, Consuming, Database, Producer, RunUntil, make_consumer

pytestmark = [pytest.mark.anyio, pytest.mark.matrix, pytest.mark.woken_by("poll")]

Order = Literal["total", "key", "none"]
ORDERS = pytest.mark.parametrize("order", get_args(Order))
ENDLESS = "(SELECT jsonb_agg(CAST('1e131000' AS numeric)) FROM generate_series(1, 9000))"
"""Some kilobytes on disk; as text it is more than PostgreSQL can hold."""
LONG_KEY = "(SELECT string_agg(md5(CAST(n AS text)), '') FROM generate_series(1, 300) AS n)"
"""9,600 bytes that hardly compress: too many for an index."""
POISON = """
CREATE FUNCTION poison(jsonb) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
    IF $1 ? 'refuses' THEN
        RAISE 'this can not be text' USING ERRCODE = 'program_limit_exceeded';
    ELSIF $1 ? 'kills' THEN
        PERFORM pg_terminate_backend(pg_backend_pid());
        PERFORM pg_sleep(5);
    END IF;
    RETURN CAST(CAST($1 AS json) AS text);
END $$;
CREATE CAST (jsonb AS text) WITH FUNCTION poison(jsonb)
"""
HEALTHY = """
DROP CAST IF EXISTS (jsonb AS text);
DROP FUNCTION IF EXISTS poison(jsonb);
DROP FUNCTION IF EXISTS refuse() CASCADE
"""


class Handler:
    """Fails for *bad* numbers."""

    def __init__(self, *bad: int) -> None:
        self.bad = set(bad)
        self.calls: list[int] = []

    async def __call__(self, event: Event[Any]) -> None:
        n = event.payload.get("n", -1)
        self.calls.append(n)
        if n in self.bad:
            raise ValueError(f"no {n}")


@pytest.fixture
def database(unchecked: Database) -> Iterator[Database]:
    yield unchecked
    unchecked.rows(HEALTHY)


@pytest.fixture
def poisoned(database: Database) -> Database:
    """A payload with "refuses" can't be read; one with "kills" takes the connection with it."""
    database.rows(POISON)
    return database


def in_the_middle(producer: Producer, database: Database, **columns: str) -> int:
    """Thirty events, then the one of these *columns*, then thirty others. Returns its id."""
    for n in range(30):
        producer.add(n, key=f"k{n % 7}")
    database.write_raw(**columns)
    for n in range(30, 60):
        producer.add(n, key=f"k{n % 7}")
    found: int = database.value("SELECT max(id) - 30 FROM outbox")
    return found


@ORDERS
async def test_an_event_for_the_end_of_time_waits_and_stops_nobody(
    order: Order, outbox: Outbox, producer: Producer, database: Database, run_until: RunUntil
) -> None:
    handler = Handler()
    outbox.listener("billing", on="order.*", order=order)(handler)
    in_the_middle(producer, database, run_at="'infinity'")

    running = await run_until(done=60)

    assert running.recorder.of(DatabaseAway) == []
    assert Counter(handler.calls) == Counter(range(60))
    assert [row.state for row in database.deliveries("billing")] == ["scheduled"]


@ORDERS
@pytest.mark.parametrize("batch_size", [7, 500])
async def test_an_event_that_can_t_be_read_is_a_dead_letter_and_its_neighbours_are_delivered(
    order: Order,
    batch_size: int,
    outbox: Outbox,
    producer: Producer,
    poisoned: Database,
    run_until: RunUntil,
) -> None:
    handler = Handler()
    outbox.listener("billing", on="order.*", order=order, batch_size=batch_size)(handler)
    columns = {"payload": """'{"refuses": 1}'""", "key": "'k3'", "tenant": "'acme'"}
    position = in_the_middle(producer, poisoned, **columns)

    running = await run_until(done=60, dead=1)

    assert running.recorder.of(DatabaseAway) == []
    assert Counter(handler.calls) == Counter(range(60))
    (dead,) = poisoned.dead_letters("billing")
    assert (dead.position, dead.reason, dead.attempts) == (position, "refused", 0)
    assert (dead.key, dead.tenant, dead.payload) == ("k3", "acme", "null")
    assert "this can not be text" in dead.errors[-1]["message"]
    assert "not copied in full: payload" in dead.errors[-1]["message"]


@ORDERS
async def test_many_that_can_t_be_read_are_found_one_by_one(
    order: Order, outbox: Outbox, producer: Producer, poisoned: Database, consuming: Consuming
) -> None:
    handler = Handler()
    outbox.listener("billing", on="order.*", order=order)(handler)
    for n in range(8):
        producer.add(n)
        poisoned.write_raw(payload="""'{"refuses": 1}'""")

    async with consuming(outbox) as running:
        await running.done("billing", 8)
        await running.dead("billing", 8)
        producer.add(8)
        await running.done("billing", 9)

    assert Counter(handler.calls) == Counter(range(9))
    dead = [row.position for row in poisoned.dead_letters("billing")]
    assert sorted(dead) == list(range(2, 17, 2))


@ORDERS
async def test_one_that_ends_the_connection_whenever_it_is_read_is_found_too(
    order: Order, outbox: Outbox, producer: Producer, poisoned: Database, run_until: RunUntil
) -> None:
    handler = Handler()
    outbox.listener("billing", on="order.*", order=order, batch_size=20)(handler)
    position = in_the_middle(producer, poisoned, payload="""'{"kills": 1}'""")

    await run_until(done=60, dead=1)

    assert set(handler.calls) == set(range(60))  # some twice, as after any lost connection
    (dead,) = poisoned.dead_letters("billing")
    assert (dead.position, dead.reason, dead.payload) == (position, "refused", "null")


@ORDERS
async def test_a_delivery_that_is_due_and_can_t_be_read_is_a_dead_letter(
    order: Order, outbox: Outbox, producer: Producer, database: Database, consuming: Consuming
) -> None:
    """It could be when it was set aside."""
    handler = Handler()
    outbox.listener("billing", on="order.*", order=order)(handler)
    soon = "clock_timestamp() + interval '1 hour'"
    producer.add(0)
    database.write_raw(run_at=soon, payload="""'{"refuses": 1}'""")
    database.write_raw(run_at=soon, payload="""'{"n": 1}'""")
    async with consuming(outbox) as running:
        await running.done("billing")
        await running.consumer.drain()
    assert len(database.deliveries("billing")) == 2

    database.rows(POISON)
    database.rows("UPDATE outbox_deliveries SET due_at = clock_timestamp()")
    async with consuming(outbox) as running:
        await running.done("billing")
        await running.dead("billing")

    assert handler.calls == [0, 1]
    assert [row.position for row in database.dead_letters("billing")] == [2]
    assert database.deliveries("billing") == []


async def test_a_range_that_was_left_is_taken_over_without_the_event_that_can_t_be_read(
    outbox: Outbox, producer: Producer, poisoned: Database, consuming: Consuming
) -> None:
    handler = Handler()
    outbox.listener("billing", on="order.*", order="none")(handler)
    async with consuming(outbox) as running:
        await running.consumer.drain()
    position = in_the_middle(producer, poisoned, payload="""'{"refuses": 1}'""")
    poisoned.rows("UPDATE outbox_listeners SET last_processed_id = 61")
    poisoned.rows(
        "INSERT INTO outbox_ranges (listener, last_processed_id, gaps)"
        " VALUES ('billing', 61, '[[1, 61]]')"
    )

    async with consuming(outbox) as running:
        await running.done("billing", 60)
        await running.dead("billing")

    assert Counter(handler.calls) == Counter(range(60))
    assert [row.position for row in poisoned.dead_letters("billing")] == [position]
    assert poisoned.rows("SELECT * FROM outbox_ranges") == []


@ORDERS
async def test_a_failed_event_that_can_t_be_parked_is_a_dead_letter(
    order: Order, outbox: Outbox, producer: Producer, database: Database, run_until: RunUntil
) -> None:
    """Its key is too long for the index. Those of its key that wait behind it are handled."""
    handler = Handler(-1)
    retry = ONCE if order == "total" else LATER  # there nothing is parked
    outbox.listener("billing", on="order.*", order=order, retry=retry)(handler)
    columns = {"key": LONG_KEY, "payload": """'{"n": -1}'"""}
    position = in_the_middle(producer, database, **columns)
    for n in (60, 61):
        database.write_raw(key=LONG_KEY, payload=f"""'{{"n": {n}}}'""")

    running = await run_until(done=62, dead=1)

    assert running.recorder.of(DatabaseAway) == []
    assert Counter(handler.calls) == Counter([-1, *range(62)])
    (dead,) = database.dead_letters("billing")
    assert (dead.position, dead.attempts) == (position, 1)
    assert dead.payload == '{"n": -1}'
    if order != "total":
        assert dead.reason == "refused"
        assert "index row" in dead.errors[-1]["message"]


@ORDERS
async def test_a_scheduled_event_that_can_t_be_set_aside_is_a_dead_letter(
    order: Order, outbox: Outbox, producer: Producer, database: Database, run_until: RunUntil
) -> None:
    handler = Handler()
    outbox.listener("billing", on="order.*", order=order)(handler)
    later = "clock_timestamp() + interval '1 hour'"
    position = in_the_middle(producer, database, key=LONG_KEY, run_at=later)
    database.write_raw(run_at=later)

    running = await run_until(done=60, dead=1)

    assert running.recorder.of(DatabaseAway) == []
    assert Counter(handler.calls) == Counter(range(60))
    (dead,) = database.dead_letters("billing")
    assert (dead.position, dead.reason, dead.attempts) == (position, "refused", 0)
    assert [row.state for row in database.deliveries("billing")] == ["scheduled"]


async def test_a_listener_of_other_types_never_meets_it(
    outbox: Outbox, producer: Producer, poisoned: Database, run_until: RunUntil
) -> None:
    handler = Handler()
    outbox.listener("billing", on="order.*")(handler)
    in_the_middle(producer, poisoned, event_type="'mail.sent'", payload="""'{"kills": 1}'""")

    running = await run_until(done=60)

    assert running.recorder.of(DatabaseAway) == []
    assert poisoned.dead_letters("billing") == []


REFUSING = """
CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN RAISE 'not here' USING ERRCODE = '{code}'; END $$;
CREATE TRIGGER refuse BEFORE INSERT ON {table} FOR EACH ROW WHEN ({when})
    EXECUTE FUNCTION refuse()
"""
LETTING = "DROP FUNCTION refuse() CASCADE"


async def test_a_right_that_is_missing_is_no_event_s_fault(
    outbox: Outbox, producer: Producer, database: Database, consuming: Consuming
) -> None:
    """The database says no, to whatever is parked: nothing is given up, and it is done later."""
    handler = Handler(0)
    outbox.listener("billing", on="order.*", retry=LATER)(handler)
    database.rows(REFUSING.format(table="outbox_deliveries", code="42501", when="true"))
    producer.add(0, key="a")

    async with consuming(outbox) as running:
        await running.recorder.seen(DatabaseAway, times=2)
        database.rows(LETTING)
        await running.settled("billing", outcome="retry")

    assert database.dead_letters("billing") == []
    assert [row.state for row in database.deliveries("billing")] == ["parked"]


async def test_a_dead_letter_that_is_refused_in_full_is_written_without_what_can_be_left_out(
    outbox: Outbox, producer: Producer, database: Database, consuming: Consuming
) -> None:
    handler = Handler(0)
    outbox.listener("billing", on="order.*", retry=ONCE)(handler)
    table, when = "outbox_dead_letters", "NEW.payload <> 'null'"
    database.rows(REFUSING.format(table=table, code="P0001", when=when))
    producer.add(0, 1, 2, key="a")

    async with consuming(outbox) as running:
        await running.done("billing", 2)
        await running.dead("billing")
        database.rows(LETTING)

    assert Counter(handler.calls) == Counter([0, 1, 2])
    (dead,) = database.dead_letters("billing")
    assert (dead.position, dead.payload, dead.key) == (1, "null", "a")
    assert "not here" in dead.errors[-1]["message"]


async def test_what_can_t_be_settled_at_all_is_not_given_up(
    outbox: Outbox, producer: Producer, database: Database, consuming: Consuming
) -> None:
    handler = Handler(0)
    outbox.listener("billing", on="order.*", retry=ONCE)(handler)
    table = "outbox_dead_letters"
    database.rows(REFUSING.format(table=table, code="P0001", when="true"))
    producer.add(0, key="a")

    async with consuming(outbox) as running:
        await running.recorder.seen(DatabaseAway, times=2)
        database.rows(LETTING)
        await running.dead("billing")

    assert [row.reason for row in database.dead_letters("billing")] == ["attempts"]


@pytest.mark.long
async def test_a_text_that_the_server_can_t_hold_is_a_dead_letter(
    outbox: Outbox, producer: Producer, database: Database, consuming: Consuming
) -> None:
    """2.5 kB on disk, more than 1 GB as text. A queue finds it as it finds others, above: once is
    enough for a text that keeps a core busy for seconds."""
    handler = Handler()
    outbox.listener("billing", on="order.*")(handler)
    producer.add(0)
    database.write_raw(payload=ENDLESS)
    producer.add(1)

    async with consuming(outbox) as running:
        # Each read of it has the server make a text of 1 GB, until it is found out.
        seen, slow = running.recorder.seen, 100.0
        await seen(DeliverySettled, listener="billing", outcome="done", times=2, within=slow)
        await seen(DeliverySettled, listener="billing", outcome="dead", within=slow)

    assert sorted(handler.calls) == [0, 1]
    assert [row.payload for row in database.dead_letters("billing")] == ["null"]


async def test_a_key_that_is_no_utf_8_is_a_dead_letter(
    server_url: str, new_database: Callable[[], URL], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither migrate nor a consumer works with such a database any more; some did before."""
    monkeypatch.setattr(inspection, "ENCODING", "SQL_ASCII")
    url = new_database()
    in_utf_8 = {"client_encoding": "utf8"}
    engine = create_engine(url.set(drivername="postgresql+psycopg"), connect_args=in_utf_8)
    with engine.begin() as connection:
        migrate(connection, Names())
    engine.dispose()
    change = sql.SQL("UPDATE pg_database SET encoding = 0 WHERE datname = {}")
    administer(server_url, change.format(sql.Literal(url.database)))
    handler, outbox = Handler(), Outbox(notify="off")
    outbox.listener("billing", on="order.*")(handler)
    database = Database(engine)
    database.write_raw(payload="""'{"n": 0}'""")
    database.write_raw(payload="""'{"n": 1}'""", key="convert_from('\\xff41', 'SQL_ASCII')")
    database.write_raw(payload="""'{"n": 2}'""")

    consumer, recorder = make_consumer(outbox, url.set(drivername="postgresql+asyncpg"))
    await consumer.drain()

    assert recorder.of(DatabaseAway) == []
    assert handler.calls == [0, 2]
    (dead,) = database.dead_letters("billing")
    assert (dead.position, dead.key, dead.payload) == (2, r"\377A", '{"n": 1}')
    engine.dispose()
