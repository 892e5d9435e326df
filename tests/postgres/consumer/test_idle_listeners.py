"""A listener with nothing to do is not behind, however many events of others there are."""

from __future__ import annotations

import itertools
from datetime import timedelta
from time import monotonic
from typing import Any

import anyio
import pytest
from click.testing import CliRunner
from sqlalchemy import URL
from sqlalchemy.ext.asyncio import AsyncEngine

from sa_outbox import Event, Outbox
from sa_outbox.cli import main
from sa_outbox.consumer import ConsumerSettings
from sa_outbox.consumer.upkeep.command import preview
from sa_outbox.dashboard.database import Database as DashboardDatabase
from sa_outbox.dashboard.history import History
from sa_outbox.dashboard.views.listener_state import standing
from sa_outbox.monitoring import families
from sa_outbox.monitoring.metrics import Metrics
from sa_outbox.observe import BacklogMeasured
from sa_outbox.operations.overview import ListenerOverview, overview
from tests.support import PATIENCE, comes_true

from .conftest import Consuming, Database, Producer, make_consumer

pytestmark = [pytest.mark.anyio, pytest.mark.woken_by("poll")]

FOREIGN = 6000
ORDERS = ["none", "key", "total"]


def seen(outbox: Outbox, database: Database, name: str = "mail") -> ListenerOverview:
    with database.engine.connect() as connection:
        found = overview(connection, outbox.tables)
    return next(each for each in found.listeners if each.name == name)


def add_foreign(database: Database, events: int = FOREIGN) -> None:
    database.rows(
        "INSERT INTO outbox (event_id, event_type, payload, created_at)"
        " SELECT gen_random_uuid(), 'order.placed', '{}', clock_timestamp() - interval '1 hour'"
        " FROM generate_series(1, :events)",
        events=events,
    )


def declare(outbox: Outbox, order: Any, got: list[int] | None = None) -> None:
    @outbox.listener("mail", on=["mail.*", "letter_sent"], order=order)
    async def send(event: Event[Any]) -> None:
        if got is not None:
            got.append(event.payload["n"])


@pytest.mark.parametrize("order", ORDERS)
async def test_six_thousand_events_of_others_are_passed_within_seconds(
    order: Any, outbox: Outbox, database: Database, producer: Producer, consuming: Consuming
) -> None:
    declare(outbox, order)
    metrics = Metrics(outbox)

    async with consuming(outbox, measure_interval=timedelta(milliseconds=100)) as running:
        running.consumer.observers.add(metrics)
        await running.listening()
        began = monotonic()
        add_foreign(database)
        producer.add(1, event_type="order.placed")  # who writes by hand notifies nobody
        await comes_true(lambda: database.listener("mail").last_processed_id == FOREIGN + 1)
        took = monotonic() - began
        found = seen(outbox, database)
        running.recorder.forget()
        (*_, measured) = await running.recorder.seen(BacklogMeasured, listener="mail", times=2)
        numbers = {family.name: values for family, values in metrics.numbers()}

    assert took < 10
    assert (found.lag_events, found.lag_seconds) == (0, None)
    assert (measured.events, measured.seconds) == (0, 0.0)
    assert numbers[families.BACKLOG.name]["mail",] == 0
    assert numbers[families.LAG.name]["mail",] == 0


@pytest.mark.usefixtures("saved_often")
async def test_status_dashboard_and_prune_agree_that_an_idle_queue_is_fine(
    outbox: Outbox, database: Database, producer: Producer, consuming: Consuming, migrated_url: URL
) -> None:
    """The events are two hours old: by any of them that counted, somebody would be called."""
    declare(outbox, "none")
    dashboard = DashboardDatabase(database.engine, outbox.tables)
    history = History(dashboard, clock=itertools.count(0, 10).__next__)

    async with consuming(outbox) as running:
        await running.listening()
        await history.look()
        add_foreign(database)
        producer.add(1, event_type="order.placed")
        await comes_true(lambda: database.listener("mail").last_processed_id == FOREIGN + 1)
        looked = await history.look()
        (listener,) = looked.listeners
        shown = standing(listener, looked)
        foreseen = await preview(outbox, migrated_url, ConsumerSettings())
        address = migrated_url.render_as_string(hide_password=False)
        words = ["status", "--check", "--database-url", address]
        status = await anyio.to_thread.run_sync(CliRunner().invoke, main, words)
    await dashboard.close()

    assert status.exit_code == 0, status.output
    assert shown.tone == "good"
    assert foreseen.held == ()
    (rate,) = history.rates()
    assert rate.written > 0
    assert rate.handled == {"mail": 0.0}, "what a cursor passes is not handled"


async def test_throughput_counts_what_was_handled(
    outbox: Outbox, database: Database, producer: Producer, async_engine: AsyncEngine
) -> None:
    declare(outbox, "none")
    dashboard = DashboardDatabase(database.engine, outbox.tables)
    history = History(dashboard, clock=itertools.count(0, 10).__next__)
    await make_consumer(outbox, async_engine)[0].drain()
    await history.look()
    add_foreign(database, 300)
    producer.add(1, 2, 3, event_type="mail.sent")
    await make_consumer(outbox, async_engine)[0].drain()
    await history.look()
    await dashboard.close()

    assert history.samples[-1].points["mail"].handled == 3


@pytest.mark.parametrize("order", ORDERS)
async def test_a_drain_leaves_no_cursor_behind_events_of_others(
    order: Any, outbox: Outbox, database: Database, async_engine: AsyncEngine
) -> None:
    declare(outbox, order)
    add_foreign(database, 10)
    consumer, _ = make_consumer(outbox, async_engine)
    await consumer.drain()

    assert database.listener("mail").last_processed_id == 10


@pytest.mark.woken_by("notify", "poll")
@pytest.mark.parametrize("order", ORDERS)
async def test_a_stream_of_others_events_costs_few_writes(
    order: Any,
    outbox: Outbox,
    database: Database,
    producer: Producer,
    consuming: Consuming,
    saved_often: float,
) -> None:
    """However many come by, the cursor is saved now and then; and it is saved."""
    declare(outbox, order)

    async with consuming(outbox) as running:
        await running.listening()
        with database.counting_writes("mail") as written:
            began, added = monotonic(), 0
            while monotonic() - began < 3 * saved_often or added < 20:
                producer.add(1, event_type="order.placed")
                added += 1
                await running.consumer.drain()
            await comes_true(lambda: database.listener("mail").last_processed_id == added)
            writes, took = written(), monotonic() - began

    assert 2 <= writes <= took / saved_often + 1


@pytest.mark.parametrize("order", ORDERS)
async def test_only_events_of_its_types_count_while_nobody_works_for_it(
    order: Any, outbox: Outbox, database: Database, producer: Producer, async_engine: AsyncEngine
) -> None:
    got: list[int] = []
    declare(outbox, order, got)
    await make_consumer(outbox, async_engine)[0].drain()
    add_foreign(database, 500)
    producer.add(1, event_type="letter_sent")
    producer.add(2, event_type="letterXsent")
    producer.add(3, event_type="mail.sent")

    found = seen(outbox, database)
    assert found.lag_events == 2
    assert found.lag_seconds is not None
    assert found.lag_seconds < PATIENCE, "those of an hour ago are others'"

    await make_consumer(outbox, async_engine)[0].drain()
    assert sorted(got) == [1, 3]
    assert seen(outbox, database).lag_events == 0


async def test_what_is_beyond_what_is_counted_is_told_by_the_share_of_its_types(
    outbox: Outbox, database: Database, async_engine: AsyncEngine
) -> None:
    declare(outbox, "none")
    await make_consumer(outbox, async_engine)[0].drain()
    database.rows(
        "INSERT INTO outbox (event_id, event_type, payload) SELECT gen_random_uuid(),"
        " CASE WHEN n % 4 = 0 THEN 'mail.sent' ELSE 'order.placed' END, '{}'"
        " FROM generate_series(1, 8000) AS n"
    )
    assert seen(outbox, database).lag_events == 2000


async def test_a_long_stretch_of_others_events_that_nobody_passes_is_not_taken_for_nothing(
    outbox: Outbox, database: Database, producer: Producer, async_engine: AsyncEngine
) -> None:
    declare(outbox, "none")
    await make_consumer(outbox, async_engine)[0].drain()
    add_foreign(database, 3000)
    producer.add(1, event_type="mail.sent")

    found = seen(outbox, database)
    assert found.lag_events == 1
    assert found.lag_seconds is not None


async def test_other_types_are_noted_when_a_program_that_declares_them_starts(
    notify: Any, outbox: Outbox, database: Database, async_engine: AsyncEngine
) -> None:
    declare(outbox, "none")
    await make_consumer(outbox, async_engine)[0].drain()
    assert database.listener("mail").event_types == ["letter_sent", "mail.*"]

    changed = Outbox(notify=notify)

    @changed.listener("mail", on="order.*", order="none")
    async def send(event: Event[Any]) -> None: ...

    await make_consumer(changed, async_engine)[0].drain()
    assert database.listener("mail").event_types == ["order.*"]
