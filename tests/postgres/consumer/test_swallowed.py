"""A rule or trigger on the log that swallows events which the consumer adds itself: a cron's are
added once it is gone, and a lost alert is reported and delays no dead letter."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import URL, Engine
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.pool import NullPool

from sa_outbox import Event, Outbox
from sa_outbox.observe import (
    AlertsSwallowed,
    ConsumerAsleep,
    DatabaseAway,
    DatabaseBack,
    LeaseDropped,
    Place,
    Ticked,
)
from tests.support.proxy import Proxy
from tests.support.swallowing import SWALLOWING, swallowed_by

from .conftest import ONCE, Consuming, Database, Producer
from .test_lost_leases import TAKEN

pytestmark = [pytest.mark.anyio, pytest.mark.woken_by("notify")]

swallowing = pytest.mark.parametrize("what", SWALLOWING)


def make_due(database: Database, *names: str) -> datetime:
    """The crons of every hour ticked last an hour and a half ago; returns the tick that is due."""
    due = datetime.now(UTC).replace(second=0, microsecond=0) - timedelta(minutes=30)
    for name in names:
        database.rows(
            "INSERT INTO outbox_crons (name, last_tick) VALUES (:name, :at)",
            name=name,
            at=due - timedelta(hours=1),
        )
    return due


@contextmanager
def commits_refused(database: Database, *, times: int) -> Iterator[None]:
    """So often a COMMIT that bears a dead letter fails as if it met another one. The sequence
    ``commits`` counts them all."""
    database.rows("CREATE SEQUENCE commits")
    database.rows(
        "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS"
        f" $$BEGIN IF nextval('commits') <= {times} THEN RAISE serialization_failure; END IF;"
        " RETURN NULL; END$$"
    )
    database.rows(
        "CREATE CONSTRAINT TRIGGER refuses AFTER INSERT ON outbox_dead_letters"
        " DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION refuse()"
    )
    try:
        yield
    finally:
        database.rows("DROP FUNCTION refuse() CASCADE")
        database.rows("DROP SEQUENCE commits")


def last_ticks(database: Database) -> dict[str, datetime]:
    return {row.name: row.last_tick for row in database.rows("SELECT * FROM outbox_crons")}


def types(database: Database) -> list[str]:
    return [row.event_type for row in database.rows("SELECT event_type FROM outbox ORDER BY id")]


@swallowing
async def test_a_swallowed_tick_is_added_when_the_log_takes_it_again(
    what: str, outbox: Outbox, database: Database, consuming: Consuming
) -> None:
    due = make_due(database, "sweep")
    outbox.cron(f"{due.minute} * * * *", "sweep", time_zone="UTC")
    got: list[Event[Any]] = []

    @outbox.listener("sweeper", on="sweep")
    async def sweep(event: Event[Any]) -> None:
        got.append(event)

    with swallowed_by(what, database.engine):
        async with consuming(outbox) as running:
            away = await running.recorder.seen(DatabaseAway, where=Place("crons"), times=2)
            assert last_ticks(database)["sweep"] == due - timedelta(hours=1)
            assert running.recorder.of(Ticked) == []
    assert {each.error for each in away} == {"NotWritten"}
    assert away[1].retry_in > away[0].retry_in

    async with consuming(outbox) as running:
        await running.done("sweeper")

    assert [each.headers["tick"] for each in got] == [due.isoformat()]
    assert last_ticks(database)["sweep"] == due


async def test_it_is_added_by_the_consumer_that_runs_and_nothing_else_waits_for_it(
    outbox: Outbox, producer: Producer, database: Database, consuming: Consuming
) -> None:
    due = make_due(database, "sweep", "watch")
    outbox.cron(f"{due.minute} * * * *", "sweep", time_zone="UTC")
    outbox.cron(f"{due.minute} * * * *", "keep", name="watch", time_zone="UTC")

    @outbox.listener("billing", on="*")
    async def charge(event: Event[Any]) -> None: ...

    with ExitStack() as until_now:
        until_now.enter_context(swallowed_by("a trigger", database.engine))
        async with consuming(outbox) as running:
            await running.recorder.seen(DatabaseAway, where=Place("crons"), times=2)
            producer.add(1, event_type="keep")
            await running.done("billing", 2)
            until_now.close()
            await running.recorder.seen(DatabaseBack, where=Place("crons"))
            await running.done("billing", 3)

    assert types(database) == ["keep", "keep", "sweep"]
    assert len(running.recorder.of(Ticked, name="watch")) == 1


async def test_a_consumer_that_owes_a_tick_does_not_fall_asleep(
    outbox: Outbox, database: Database, consuming: Consuming
) -> None:
    due = make_due(database, "sweep")
    outbox.cron(f"{due.minute} * * * *", "sweep", time_zone="UTC")

    @outbox.listener("sweeper", on="sweep")
    async def sweep(event: Event[Any]) -> None: ...

    with ExitStack() as until_now:
        until_now.enter_context(swallowed_by("a trigger", database.engine))
        async with consuming(outbox, idle_after=timedelta(milliseconds=200)) as running:
            # The pauses double: after the sixth, it has had nothing else to do for three seconds.
            await running.recorder.seen(DatabaseAway, where=Place("crons"), times=6)
            assert running.recorder.of(ConsumerAsleep) == []
            until_now.close()
            await running.done("sweeper")
            await running.recorder.seen(ConsumerAsleep)


@swallowing
@pytest.mark.parametrize("order", ["key", "total", "none"])
@pytest.mark.parametrize("with_session", [False, True])
async def test_a_swallowed_alert_is_reported_and_the_event_is_a_dead_letter_all_the_same(
    what: str,
    order: Any,
    with_session: bool,
    engine: Any,
    database: Database,
    consuming: Consuming,
) -> None:
    outbox = Outbox(alerts="on")

    if with_session:

        @outbox.listener("billing", on="order.placed", retry=ONCE, order=order)
        async def bill(event: Event[Any], session: AsyncSession) -> None:
            raise ValueError(event.payload["n"])
    else:

        @outbox.listener("billing", on="order.placed", retry=ONCE, order=order)
        async def bill_without(event: Event[Any]) -> None:
            raise ValueError(event.payload["n"])

    Producer(outbox, engine).add(1, 2, 3)
    with swallowed_by(what, engine):
        async with consuming(outbox) as running:
            await running.dead("billing", 3)

    assert sum(each.alerts for each in running.recorder.of(AlertsSwallowed)) == 3
    assert [each.reason for each in database.dead_letters("billing")] == ["attempts"] * 3
    assert types(database) == ["order.placed"] * 3


async def test_swallowed_alerts_are_reported_once_however_often_they_are_tried(
    engine: Engine, database: Database, consuming: Consuming
) -> None:
    outbox = Outbox(alerts="on")

    @outbox.listener("billing", on="order.placed", retry=ONCE)
    async def bill(event: Event[Any]) -> None:
        raise ValueError(event.payload["n"])

    Producer(outbox, engine).add(1)
    with swallowed_by("a trigger", engine), commits_refused(database, times=2):
        async with consuming(outbox) as running:
            await running.dead("billing")
            assert database.value("SELECT last_value FROM commits") == 3

    assert [each.alerts for each in running.recorder.of(AlertsSwallowed)] == [1]


async def test_they_are_reported_if_only_the_answer_to_the_commit_is_lost(
    engine: Engine, database: Database, migrated_url: URL, consuming: Consuming
) -> None:
    outbox = Outbox(alerts="on")
    with Proxy(migrated_url) as proxy:

        @outbox.listener("billing", on="order.placed", retry=ONCE)
        async def bill(event: Event[Any]) -> None:
            proxy.cut_at(b"COMMIT\x00", before=False)
            raise ValueError(event.payload["n"])

        proxy.open()
        through = create_async_engine(
            migrated_url.set(drivername="postgresql+asyncpg", port=proxy.port), poolclass=NullPool
        )
        Producer(outbox, engine).add(1)
        with swallowed_by("a trigger", engine), commits_refused(database, times=0):
            async with consuming(outbox, engine=through) as running:
                await running.dead("billing")
                assert proxy.still_to_cut == 0
                assert database.value("SELECT last_value FROM commits") == 1

    assert [each.alerts for each in running.recorder.of(AlertsSwallowed)] == [1]


async def test_what_is_rolled_back_with_the_lease_is_not_reported(
    engine: Engine, database: Database, consuming: Consuming
) -> None:
    outbox = Outbox(alerts="on")

    @outbox.listener("billing", on="order.placed", retry=ONCE)
    async def bill(event: Event[Any]) -> None:
        database.rows(TAKEN)
        raise ValueError(event.payload["n"])

    Producer(outbox, engine).add(1)
    with swallowed_by("a trigger", engine):
        async with consuming(outbox) as running:
            await running.recorder.seen(LeaseDropped)

    assert running.recorder.of(AlertsSwallowed) == []


@swallowing
async def test_a_swallowed_alert_of_an_orphan_is_reported_and_added_by_the_next_consumer(
    what: str, engine: Any, database: Database, consuming: Consuming
) -> None:
    outbox = Outbox(alerts="on")

    @outbox.listener("on-call", on="outbox.*")
    async def call(event: Event[Any]) -> None: ...

    database.rows("INSERT INTO outbox_listeners (name, last_processed_id) VALUES ('old', 0)")
    with swallowed_by(what, engine):
        async with consuming(outbox) as running:
            await running.recorder.seen(AlertsSwallowed)
    async with consuming(outbox) as running:
        await running.done("on-call")

    assert types(database) == ["outbox.listener_orphaned"]
