"""The audit: what happened to an event, written in the transaction in which it happened."""

from __future__ import annotations

from contextlib import suppress
from datetime import timedelta
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from sqlalchemy import Engine, text
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession

from sa_outbox import Event, Outbox, event_context
from sa_outbox.errors import ConfigError, NotDrained
from sa_outbox.settings import Notify
from tests.support import comes_true

from .conftest import QUICK, Consuming, Database, Producer, make_consumer

pytestmark = [pytest.mark.anyio, pytest.mark.woken_by("poll")]
ORDERS = pytest.mark.parametrize("order", ["total", "key", "none"])


WHO = event_context(
    tenant="acme",
    project_id="p1",
    actor_type="user",
    actor_id="u1",
    request_id="r1",
    correlation_id="c1",
)
CANCELLER = event_context(actor_type="api_key", actor_id="k2", request_id="r2")


def cancelled_by(row: Any) -> tuple[Any, ...]:
    whom = (row.tenant, row.project_id)
    return *whom, row.actor_type, row.actor_id, row.request_id, row.correlation_id


def recorded(database: Database) -> list[tuple[str, int | None]]:
    rows = database.rows("SELECT action, attempt FROM outbox_audit ORDER BY id")
    return [(row.action, row.attempt) for row in rows]


@pytest.fixture
def database(database: Database) -> Database:
    database.rows("TRUNCATE outbox_audit")
    return database


def failing_twice(outbox: Outbox, order: Any, *, with_session: bool) -> None:
    times = 0

    async def fail(event: Event[Any]) -> None:
        nonlocal times
        times += 1
        if times < 3:
            raise ValueError("password=secret")

    async def fail_in_session(event: Event[Any], session: AsyncSession) -> None:
        await fail(event)

    handler: Any = fail_in_session if with_session else fail
    outbox.listener("billing", on="order.*", order=order, retry=QUICK)(handler)


@ORDERS
@pytest.mark.parametrize("with_session", [False, True])
async def test_with_all_every_step_is_recorded(
    order: Any,
    with_session: bool,
    notify: Notify,
    engine: Engine,
    database: Database,
    consuming: Consuming,
) -> None:
    outbox = Outbox(notify=notify, audit="all")
    failing_twice(outbox, order, with_session=with_session)
    with WHO:
        Producer(outbox, engine).add(1)

    async with consuming(outbox) as running:
        await running.done("billing")

    assert recorded(database) == [
        ("enqueued", None),
        *[("started", 1), ("failed", 1), ("retried", 1)],
        *[("started", 2), ("failed", 2), ("retried", 2)],
        *[("started", 3), ("succeeded", 3)],
    ]
    who = "tenant, project_id, actor_type, actor_id, request_id, correlation_id, event_type"
    [row] = database.rows(f"SELECT DISTINCT {who} FROM outbox_audit")
    assert tuple(row) == ("acme", "p1", "user", "u1", "r1", "c1", "order.placed")
    assert "secret" not in str(database.rows("SELECT detail FROM outbox_audit"))


@ORDERS
async def test_with_exceptions_only_what_went_wrong_is(
    order: Any, notify: Notify, engine: Engine, database: Database, consuming: Consuming
) -> None:
    outbox = Outbox(notify=notify, audit="exceptions")

    @outbox.listener("billing", on="order.*", order=order, retry=QUICK)
    async def charge(event: Event[Any]) -> None:
        if event.payload["n"] == 2:
            raise ValueError("no")

    Producer(outbox, engine).add(1, 2, 3)
    async with consuming(outbox) as running:
        await running.dead("billing")

    assert recorded(database) == [
        *[("failed", 1), ("retried", 1), ("failed", 2), ("retried", 2)],
        *[("failed", 3), ("deadlettered", 3)],
    ]


async def test_a_cancellation_is_recorded(
    notify: Notify, engine: Engine, database: Database, consuming: Consuming
) -> None:
    outbox = Outbox(notify=notify, audit="exceptions")

    @outbox.listener("mailer", on="order.*", order="none")
    async def mail(event: Event[Any]) -> None:
        raise AssertionError("it was cancelled")

    async with consuming(outbox) as running:
        await running.listening()
    with WHO, outbox.sessionmaker(engine).begin() as session:
        event = session.add_event("order.placed", {})
    with CANCELLER, outbox.sessionmaker(engine).begin() as session:
        answers = outbox.cancel(session, event.event_id, reason="a mistake")

    assert answers == {"mailer": "cancelled"}
    [row] = database.rows("SELECT * FROM outbox_audit")
    assert (row.action, row.listener, row.detail) == (
        *("cancelled", "mailer"),
        {"reason": "a mistake"},
    )
    assert cancelled_by(row) == ("acme", "p1", "api_key", "k2", "r2", "c1")


async def test_it_is_recorded_for_whoever_cancels_not_for_whoever_added_the_event(
    engine: Engine, async_engine: AsyncEngine, database: Database, consuming: Consuming
) -> None:
    """By each that cancels; and by nobody if nobody says who it is."""
    outbox = Outbox(notify="off", audit="exceptions")

    @outbox.listener("mailer", on="order.*", order="none")
    async def mail(event: Event[Any]) -> None:
        raise AssertionError("it was cancelled")

    async with consuming(outbox) as running:
        await running.listening()
    with WHO, outbox.sessionmaker(engine).begin() as session:
        event = session.add_event("order.placed", {})
    with CANCELLER:
        async with outbox.async_sessionmaker(async_engine).begin() as other:
            await outbox.cancel(other, event.event_id)
    with engine.begin() as connection:
        outbox.cancel(connection, event.event_id)

    first, second = database.rows("SELECT * FROM outbox_audit ORDER BY id")
    assert cancelled_by(first) == ("acme", "p1", "api_key", "k2", "r2", "c1")
    assert cancelled_by(second) == ("acme", "p1", None, None, None, "c1")


ASKED: dict[str, list[tuple[str, int | None]]] = {
    "told and interrupted": [("started", 1), ("cancelled", 1)],
    "told and failed": [("started", 1), ("failed", 1), ("cancelled", 1)],
    "failed before it was told": [("started", 1), ("failed", 1), ("cancelled", 1)],
}


@pytest.mark.parametrize("how", ASKED)
@pytest.mark.parametrize("audit", ["exceptions", "all"])
async def test_so_is_one_of_an_event_that_runs(
    how: str, audit: Any, engine: Engine, database: Database, consuming: Consuming
) -> None:
    """By whoever runs it, with the reason; one that is cancelled is not said to be retried."""
    outbox = Outbox(notify="on" if how.startswith("told") else "off", audit=audit)
    begun, go_on = anyio.Event(), anyio.Event()

    @outbox.listener(
        "mailer", on="order.*", order="none", retry=QUICK, cancellable=how.endswith("interrupted")
    )
    async def mail(event: Event[Any]) -> None:
        begun.set()
        await (go_on.wait() if how.startswith("failed") else asked_for(event))
        raise ValueError("no")

    async def asked_for(event: Event[Any]) -> None:
        await comes_true(lambda: event.cancel_requested)
        await anyio.lowlevel.checkpoint()

    with WHO, outbox.sessionmaker(engine).begin() as session:
        event = session.add_event("order.placed", {})
    hour = timedelta(hours=1)
    async with consuming(outbox, lease_duration=hour) as running:
        await begun.wait()
        with CANCELLER, engine.begin() as connection:
            answer = outbox.cancel(connection, event.event_id, reason="a mistake")
        with event_context(actor_type="user", actor_id="late"), engine.begin() as connection:
            outbox.cancel(connection, event.event_id)
        assert answer == {"mailer": "requested"}
        go_on.set()
        await running.settled("mailer")

    expected = ASKED[how]
    if audit == "all":
        expected = [("enqueued", None), *expected]
    else:
        expected = [each for each in expected if each[0] != "started"]
    assert recorded(database) == expected
    *others, last = database.rows("SELECT * FROM outbox_audit ORDER BY id")
    assert last.detail == {"reason": "a mistake"}
    assert cancelled_by(last) == ("acme", "p1", "api_key", "k2", "r2", "c1")
    assert {each.actor_id for each in others} <= {"u1"}


@ORDERS
async def test_an_event_that_took_the_process_with_it_is_recorded_as_dead(
    order: Any, engine: Engine, database: Database
) -> None:
    outbox = Outbox(notify="off", audit="all")

    @outbox.listener("billing", on="order.*", order=order)
    async def charge(event: Event[Any]) -> None:
        raise SystemExit(3)

    Producer(outbox, engine).add(1, tenant="acme")
    consumer, _ = make_consumer(outbox, engine, max_crashes=1)
    with suppress(NotDrained):
        await consumer.drain()

    assert recorded(database) == [
        *[("enqueued", None), ("started", 1), ("failed", 1), ("deadlettered", 1)]
    ]
    [row] = database.rows("SELECT * FROM outbox_audit WHERE action = 'deadlettered'")
    assert (row.tenant, row.attempt, row.detail) == ("acme", 1, {"reason": "crashes"})


LOST = [
    # Of a process that handled a few events with care: 1 and 2 were being attempted.
    ('{"1": [], "2": []}', [(1, None), (2, None)]),
    # Of processes that handled nothing but event 1: in terms 7 and 8 they were not heard of again.
    ('{"1": ["7", "8"]}', [(1, "7"), (1, "8")]),
]


@pytest.mark.parametrize(("suspects", "lost"), LOST)
@pytest.mark.parametrize("queue", [False, True])
async def test_attempts_that_died_are_recorded_by_whoever_finds_out(
    queue: bool,
    suspects: str,
    lost: list[tuple[int, str | None]],
    engine: Engine,
    database: Database,
    consuming: Consuming,
) -> None:
    outbox = Outbox(notify="off", audit="all")

    @outbox.listener("billing", on="order.*", order="none" if queue else "key")
    async def charge(event: Event[Any]) -> None: ...

    async with consuming(outbox) as running:
        await running.listening()
    with WHO:
        Producer(outbox, engine).add(1, 2)
    died = f"locked_by = 'who died', lease_expires_at = clock_timestamp(), suspects = '{suspects}'"
    if queue:
        database.rows("UPDATE outbox_listeners SET last_processed_id = 2, revision = revision + 1")
        database.rows(
            "INSERT INTO outbox_ranges (listener, last_processed_id, gaps, lease_token)"
            " VALUES ('billing', 2, '[[1, 2]]', 8)"
        )
        database.rows(f"UPDATE outbox_ranges SET {died}")
    else:
        database.rows(f"UPDATE outbox_listeners SET lease_token = 8, {died}")
    async with consuming(outbox) as running:
        await running.done("billing", 2)

    rows = database.rows("SELECT * FROM outbox_audit WHERE action = 'started' ORDER BY id")
    numbers = {row.event_id: row.id for row in database.rows("SELECT event_id, id FROM outbox")}
    found = [row for row in rows if row.detail.get("outcome") == "unknown"]
    assert [(numbers[row.event_id], row.detail.get("term")) for row in found] == lost
    assert {(row.attempt, row.listener, row.project_id) for row in found} == {(1, "billing", "p1")}
    assert [row.detail for row in rows if row not in found] == [{"after_crash": True}] * 2


async def test_an_attempt_that_died_is_recorded_once_however_many_find_out(
    engine: Engine, database: Database, consuming: Consuming
) -> None:
    """The second process stops before it comes to the event, and what it found stays written."""
    outbox = Outbox(notify="off", audit="all")

    @outbox.listener("billing", on="order.*")
    async def charge(event: Event[Any]) -> None:
        raise SystemExit(3)

    async with consuming(outbox) as running:
        await running.listening()
    Producer(outbox, engine).add(1)
    for _ in range(3):
        async with consuming(outbox, max_crashes=3) as running:
            await running.stopped.wait()

    assert recorded(database) == [
        ("enqueued", None),
        *[("started", 1), ("started", 1)],  # of the first two, by the ones after them
        *[("started", 1), ("failed", 1), ("deadlettered", 1)],
    ]


async def test_an_event_given_up_for_attempts_that_died_was_not_started_once_more(
    engine: Engine, database: Database, consuming: Consuming
) -> None:
    outbox = Outbox(notify="off", audit="all")

    @outbox.listener("billing", on="order.*")
    async def charge(event: Event[Any]) -> None:
        raise AssertionError("it is given up")

    async with consuming(outbox) as running:
        await running.listening()
    Producer(outbox, engine).add(1)
    database.rows('UPDATE outbox_listeners SET suspects = \'{"1": ["7", "8"]}\'')
    async with consuming(outbox, max_crashes=2) as running:
        await running.dead("billing")

    assert recorded(database) == [
        ("enqueued", None),
        *[("started", 1), ("started", 1)],
        *[("failed", 1), ("deadlettered", 1)],
    ]


async def test_what_the_audit_can_not_say_of_the_dead_keeps_nobody_from_working(
    engine: Engine, database: Database, consuming: Consuming, caplog: pytest.LogCaptureFixture
) -> None:
    outbox = Outbox(notify="off", audit="all")

    @outbox.listener("billing", on="order.*")
    async def charge(event: Event[Any]) -> None: ...

    async with consuming(outbox) as running:
        await running.listening()
    Producer(outbox, engine).add(1)
    database.rows("UPDATE outbox_listeners SET suspects = '{\"1\": []}'")
    database.rows("ALTER TABLE outbox_audit ADD CONSTRAINT refused CHECK (NOT detail ? 'outcome')")
    try:
        async with consuming(outbox) as running:
            await running.done("billing")
    finally:
        database.rows("ALTER TABLE outbox_audit DROP CONSTRAINT refused")

    assert "are not in the audit" in caplog.text


async def test_the_event_of_a_cron_was_enqueued_too(engine: Engine, database: Database) -> None:
    outbox = Outbox(notify="off", audit="all")
    outbox.cron("* * * * *", "order.wanted", {}, time_zone="UTC", tenant="acme")

    @outbox.listener("billing", on="order.*")
    async def charge(event: Event[Any]) -> None: ...

    consumer, _ = make_consumer(outbox, engine)
    await consumer.drain()
    database.rows("UPDATE outbox_crons SET last_tick = clock_timestamp() - interval '1 hour'")
    await consumer.drain()

    assert recorded(database) == [("enqueued", None), ("started", 1), ("succeeded", 1)]
    assert database.value("SELECT DISTINCT tenant FROM outbox_audit") == "acme"


async def test_without_it_nothing_is_recorded(
    outbox: Outbox, producer: Producer, database: Database, consuming: Consuming
) -> None:
    failing_twice(outbox, "none", with_session=False)
    producer.add(1)
    async with consuming(outbox) as running:
        await running.done("billing")
    assert recorded(database) == []


async def test_an_event_that_is_rolled_back_was_never_enqueued(
    engine: Engine, database: Database
) -> None:
    sessions = Outbox(notify="off", audit="all").sessionmaker(engine)
    with sessions() as session:
        session.add_event("order.placed", {})
        session.flush()
        assert session.execute(text("SELECT action FROM outbox_audit")).scalars().all() == [
            "enqueued"
        ]
        session.rollback()
    assert recorded(database) == []


def test_another_word_is_refused() -> None:
    with pytest.raises(ConfigError, match='audit must be "off"'):
        Outbox(audit="some")  # type: ignore[arg-type]  # that is the point
