"""An idle queue takes what is new before the look, if no id is missing and nobody was quicker."""

from __future__ import annotations

from typing import Any

import pytest
from sqlalchemy import text

from sa_outbox import Event, Outbox
from sa_outbox.consumer.queue.claim import RangeClaimer
from sa_outbox.consumer.queue.selection import Selection
from sa_outbox.consumer.queue.urgency import Chooser
from sa_outbox.sql.queue import claims

from .conftest import Consuming, Database, Producer

# Nothing is offered but after a notification.
pytestmark = [pytest.mark.anyio, pytest.mark.woken_by("notify")]

ADD = (
    "INSERT INTO outbox (event_id, event_type, payload)"
    " VALUES (gen_random_uuid(), 'order.placed', '{\"n\": 1}') RETURNING id"
)
TAKEN_BY_ANOTHER = (
    "UPDATE outbox_listeners SET last_processed_id = :id, revision = revision + 1"
    " WHERE name = 'mailer'"
)


@pytest.fixture(autouse=True)
def offers(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, bool]]:
    """How many events a queue was offered, and whether it took some."""
    noted: list[tuple[int, bool]] = []
    offered = RangeClaimer.offered

    async def note(self: RangeClaimer, rows: Any) -> Any:
        taken = await offered(self, rows)
        noted.append((len(rows), taken is not None))
        return taken

    monkeypatch.setattr(RangeClaimer, "offered", note)
    return noted


def queue(outbox: Outbox) -> list[int]:
    got: list[int] = []

    @outbox.listener("mailer", on="order.*", order="none")
    async def mail(event: Event[Any]) -> None:
        got.append(event.payload["n"])

    return got


async def test_what_is_offered_to_an_idle_queue_is_taken_once(
    outbox: Outbox,
    producer: Producer,
    database: Database,
    consuming: Consuming,
    offers: list[tuple[int, bool]],
) -> None:
    got = queue(outbox)
    added = 0

    async with consuming(outbox) as running:
        await running.listening()
        while (1, True) not in offers and added < 100:  # none comes while it looks for itself
            producer.add(added)
            added += 1
            await running.done("mailer", added)
            await running.consumer.drain()

    assert (1, True) in offers
    assert got == list(range(added))
    assert database.rows("SELECT FROM outbox_ranges") == []


async def test_a_queue_that_has_taken_everything_reads_nothing_after_the_next_look(
    outbox: Outbox,
    producer: Producer,
    consuming: Consuming,
    offers: list[tuple[int, bool]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    read: list[int] = []
    choose = Chooser.choose

    async def note(self: Chooser, *given: Any, **options: Any) -> Selection:
        read.append(len(offers))
        return await choose(self, *given, **options)

    got = queue(outbox)
    async with consuming(outbox) as running:
        await running.listening()
        await running.consumer.drain()
        monkeypatch.setattr(Chooser, "choose", note)
        while (1, True) not in offers and len(offers) < 100:
            read.clear()
            producer.add(len(offers))
            await running.done("mailer", len(offers) + 1)
            await running.consumer.drain()  # after a snapshot that shows the event

    assert len(got) == len(offers)
    assert (offers[-1], read) == ((1, True), [])


async def test_what_another_process_has_taken_is_not_taken_from_an_offer(
    outbox: Outbox, producer: Producer, database: Database, consuming: Consuming
) -> None:
    got = queue(outbox)

    async with consuming(outbox) as running:
        await running.listening()
        with database.engine.begin() as connection:
            taken = connection.execute(text(ADD)).scalar_one()
            connection.execute(text(TAKEN_BY_ANOTHER), {"id": taken})
        producer.add(2)  # both are offered
        await running.done("mailer")
        await running.consumer.drain()

    assert got == [2]


async def test_an_offer_with_a_hole_is_left_to_the_look(
    outbox: Outbox,
    producer: Producer,
    database: Database,
    consuming: Consuming,
    offers: list[tuple[int, bool]],
) -> None:
    got = queue(outbox)

    async with consuming(outbox) as running:
        await running.listening()
        with database.engine.begin() as connection:
            connection.execute(text(ADD))
            producer.add(2)
            await running.done("mailer")
        await running.consumer.drain()

    assert got == [2, 1]
    assert (1, True) not in offers


async def test_from_a_queue_that_was_paused_meanwhile_nothing_is_taken(
    outbox: Outbox, database: Database, consuming: Consuming
) -> None:
    queue(outbox)
    async with consuming(outbox) as running:
        await running.consumer.drain()
    revision = database.listener("mailer").revision
    values = {"name": "mailer", "duration": 30.0, "revision": revision, "position": 1}
    values |= {"gaps": "[]", "upper": 1, "taken": "[[1, 1]]", "durable": True, "owner": "one"}
    with database.engine.begin() as connection:
        connection.execute(text("UPDATE outbox_listeners SET paused_at = clock_timestamp()"))
        taken = connection.execute(claims.take(outbox.tables), values).all()

    assert taken == []
    assert database.rows("SELECT FROM outbox_ranges") == []
