"""What a handler knows of its event beside what was added."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from sqlalchemy.ext.asyncio import AsyncSession

from sa_outbox import Event, Outbox

from .conftest import ONCE, QUICK, Consuming, Database, Producer

pytestmark = [pytest.mark.anyio, pytest.mark.woken_by("poll")]


async def test_an_event_has_the_idempotency_key_that_it_was_added_with(
    outbox: Outbox, producer: Producer, consuming: Consuming
) -> None:
    seen: list[tuple[int, str | None]] = []

    @outbox.listener("billing", on="order.*")
    async def charge(event: Event[Any]) -> None:
        seen.append((event.payload["n"], event.idempotency_key))

    producer.add(0, idempotency_key="o-0")
    producer.add(1)
    producer.add(2, idempotency_key="o-0")  # a duplicate, which is not written
    async with consuming(outbox) as running:
        await running.done("billing", 2)

    assert seen == [(0, "o-0"), (1, None)]


async def test_a_dead_letter_keeps_it(
    outbox: Outbox, producer: Producer, consuming: Consuming, database: Database
) -> None:
    @outbox.listener("billing", on="order.*", retry=ONCE)
    async def charge(event: Event[Any]) -> None:
        raise LookupError("no")

    producer.add(0, idempotency_key="o-0")
    async with consuming(outbox) as running:
        await running.dead("billing")

    (dead,) = database.dead_letters("billing")
    assert '"idempotency_key": "o-0"' in str(dead.headers)


@pytest.mark.parametrize("takes", ["event", "batch", "session", "sync", "queue"])
async def test_every_kind_of_handler_knows_its_attempt(
    takes: str, outbox: Outbox, producer: Producer, consuming: Consuming
) -> None:
    seen: list[int] = []

    def note(event: Event[Any]) -> None:
        seen.append(event.attempt)
        if event.attempt < 3:
            raise LookupError("no")

    async def one(event: Event[Any]) -> None:
        note(event)

    async def with_session(event: Event[Any], session: AsyncSession) -> None:
        note(event)

    async def batch(events: Sequence[Event[Any]]) -> None:
        note(events[0])

    handlers: dict[str, Any] = {"batch": batch, "session": with_session, "sync": note}
    order: Any = "none" if takes == "queue" else "key"
    outbox.listener("billing", on="order.*", retry=QUICK, order=order)(handlers.get(takes, one))
    producer.add(0)
    async with consuming(outbox) as running:
        await running.done("billing")

    assert seen == [1, 2, 3]
