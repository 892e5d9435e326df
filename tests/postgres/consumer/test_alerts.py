"""Alerts as events: one for each dead letter, in its transaction, and none for an alert."""

from __future__ import annotations

from typing import Any

import pytest

from sa_outbox import Event, Outbox
from sa_outbox.consumer.services import horizon_reader
from sa_outbox.errors import ConfigError, InvalidEvent
from sa_outbox.observe import HorizonHeld
from tests.support import comes_true

from .conftest import ONCE, Consuming, Database, Producer

pytestmark = pytest.mark.anyio

SECRET = "4111-1111-1111-1111"


class Declined(Exception):
    code = "declined"


@pytest.mark.parametrize("order", ["key", "none"])
async def test_a_dead_letter_adds_an_alert_that_a_listener_gets(
    order: Any, engine: Any, consuming: Consuming, database: Database
) -> None:
    outbox = Outbox(alerts="on")
    alerts: list[Event[Any]] = []

    @outbox.listener("billing", on="order.placed", retry=ONCE, order=order)
    async def bill(event: Event[Any]) -> None:
        raise Declined(SECRET)

    @outbox.listener("on-call", on="outbox.*")
    async def call(event: Event[Any]) -> None:
        alerts.append(event)

    async with consuming(outbox) as running:
        Producer(outbox, engine).add(1, tenant="acme", key=SECRET, headers={"card": SECRET})
        await running.dead("billing")
        await running.done("on-call")

    (alert,), (dead,) = alerts, database.dead_letters("billing")
    assert alert.event_type == "outbox.dead_lettered"
    assert alert.tenant == "acme"
    assert alert.headers == {"causation_id": str(dead.event_id), "causation_depth": 1}
    assert alert.payload == {
        "listener": "billing",
        "event_id": str(dead.event_id),
        "event_type": "order.placed",
        "position": dead.position,
        "reason": dead.reason,
        "attempts": 1,
        "error_code": "declined",
    }


async def test_an_alert_that_fails_adds_none_and_a_chain_of_them_ends(
    engine: Any, consuming: Consuming, database: Database
) -> None:
    outbox = Outbox(alerts="on", notify="off")

    @outbox.listener("billing", on="order.placed", retry=ONCE)
    async def bill(event: Event[Any]) -> None:
        raise ValueError

    @outbox.listener("everything", on="*", retry=ONCE)
    async def fail(event: Event[Any]) -> None:
        raise ValueError

    producer = Producer(outbox, engine)
    producer.add(1)
    database.write_raw(headers="""'{"causation_depth": 100}'""")
    database.write_raw(headers="""'[]'""")
    async with consuming(outbox) as running:
        # Three events and the alerts of two of them, for each listener: that of the first one, and
        # of the one whose headers can't be read. At the end of a chain there is none.
        await running.dead("everything", 7)
        await running.consumer.drain()

    counted = "SELECT event_type, count(*) FROM outbox GROUP BY event_type ORDER BY 1"
    assert [tuple(row) for row in database.rows(counted)] == [
        ("order.placed", 3),
        ("outbox.dead_lettered", 4),
    ]


async def test_there_are_none_unless_they_are_asked_for(
    engine: Any, consuming: Consuming, database: Database
) -> None:
    outbox = Outbox(notify="off")

    @outbox.listener("billing", on="order.placed", retry=ONCE)
    async def bill(event: Event[Any]) -> None:
        raise ValueError

    async with consuming(outbox) as running:
        Producer(outbox, engine).add(1)
        await running.dead("billing")

    assert database.value("SELECT count(*) FROM outbox") == 1


def test_nobody_else_adds_such_events(engine: Any) -> None:
    with pytest.raises(InvalidEvent, match="reserved for the outbox"):
        Producer(Outbox(notify="off"), engine).add(1, event_type="outbox.dead_lettered")
    with pytest.raises(ConfigError, match="alerts must be"):
        Outbox(alerts="sometimes")  # type: ignore[arg-type]


async def test_an_orphaned_listener_adds_one_alert_however_many_processes_see_it(
    engine: Any, consuming: Consuming, database: Database
) -> None:
    outbox = Outbox(alerts="on", notify="off")
    alerts = listen_to_alerts(outbox)
    database.rows("INSERT INTO outbox_listeners (name, last_processed_id) VALUES ('old', 0)")

    async with consuming(outbox), consuming(outbox) as running:
        await running.consumer.drain()
    async with consuming(outbox) as running:
        await running.consumer.drain()

    assert [(each.event_type, each.payload) for each in alerts] == [
        ("outbox.listener_orphaned", {"listener": "old", "position": 0})
    ]


async def test_a_transaction_that_holds_the_horizon_adds_one_alert_until_it_is_told_again(
    engine: Any, consuming: Consuming, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(horizon_reader, "HELD_AFTER_SECONDS", 0.1)
    outbox = Outbox(alerts="on", notify="off")
    alerts = listen_to_alerts(outbox)
    producer = Producer(outbox, engine)

    async with consuming(outbox) as running:
        with producer.open() as writer:
            writer.add_event("order.placed", {"n": 1})
            writer.flush()
            pid = writer.connection().exec_driver_sql("SELECT pg_backend_pid()").scalar_one()
            producer.add(2)
            await running.recorder.seen(HorizonHeld, times=3)
            await comes_true(lambda: len(alerts) == 1)
            database.rows("UPDATE outbox_idempotency_keys SET expires_at = clock_timestamp()")
            await comes_true(lambda: len(alerts) == 2)

    for alert in alerts:
        assert alert.event_type == "outbox.horizon_stalled"
        assert alert.payload["pid"] == pid
        assert alert.payload["seconds"] >= 0.1
        assert {*alert.payload} == {"pid", "application_name", "seconds", "transaction"}


def listen_to_alerts(outbox: Outbox) -> list[Event[Any]]:
    alerts: list[Event[Any]] = []

    @outbox.listener("on-call", on="outbox.*")
    async def call(event: Event[Any]) -> None:
        alerts.append(event)

    return alerts
