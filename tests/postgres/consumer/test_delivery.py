"""Who gets which events."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import anyio
import pytest
from sqlalchemy.ext.asyncio import AsyncSession

from sa_outbox import Event, Outbox
from sa_outbox.consumer import Consumer
from sa_outbox.errors import ConfigError
from sa_outbox.observe import BatchRead, CaughtUp
from tests.support.shop import OrderPlaced

from .conftest import Consuming, Database, Producer

pytestmark = [pytest.mark.anyio, pytest.mark.matrix]


async def test_every_listener_gets_every_event_once(
    outbox: Outbox, producer: Producer, consuming: Consuming
) -> None:
    got: list[tuple[str, int]] = []

    @outbox.listener("billing", on="order.*")
    async def charge(event: Event[Any]) -> None:
        got.append(("billing", event.payload["n"]))

    @outbox.listener("mail", on="order.*", order="total")
    async def write(event: Event[Any], session: AsyncSession) -> None:
        got.append(("mail", event.payload["n"]))

    async with consuming(outbox) as running:
        producer.add(1, 2, 3)
        producer.add(4)
        await running.done("billing", 4)
        await running.done("mail", 4)

    assert Counter(got) == Counter((name, n) for name in ("billing", "mail") for n in (1, 2, 3, 4))


async def test_an_event_comes_with_all_that_was_said_of_it(
    outbox: Outbox, producer: Producer, consuming: Consuming
) -> None:
    got: list[Event[Any]] = []

    @outbox.listener("billing", on="order.*")
    async def charge(event: Event[Any]) -> None:
        got.append(event)

    with producer.open() as session:
        added = session.add_event(
            "order.placed",
            {"n": 1},
            key="customer-1",
            tenant="acme",
            headers={"request_id": "r"},
            priority=3,
        )

    async with consuming(outbox) as running:
        await running.done("billing")

    [event] = got
    assert (event.event_id, event.event_type, event.payload) == (
        added.event_id,
        "order.placed",
        {"n": 1},
    )
    assert (event.key, event.tenant, event.priority) == ("customer-1", "acme", 3)
    assert (event.headers["request_id"], event.position) == ("r", 1)
    assert event.created_at is not None


async def test_a_typed_handler_gets_its_class(
    outbox: Outbox, producer: Producer, consuming: Consuming
) -> None:
    got: list[OrderPlaced] = []

    @outbox.listener("billing")
    async def charge(event: Event[OrderPlaced]) -> None:
        got.append(event.payload)

    async with consuming(outbox) as running:
        with producer.open() as session:
            session.add_event(OrderPlaced(order_id=7))
        await running.done("billing")

    assert got == [OrderPlaced(order_id=7)]


async def test_an_event_of_a_transaction_that_rolled_back_is_never_delivered(
    outbox: Outbox, producer: Producer, consuming: Consuming
) -> None:
    got: list[int] = []

    @outbox.listener("billing", on="order.*")
    async def charge(event: Event[Any]) -> None:
        got.append(event.payload["n"])

    async with consuming(outbox) as running:
        with producer.open() as session:
            session.add_event("order.placed", {"n": 1})
            session.flush()
            session.rollback()
        producer.add(2)
        await running.done("billing")

    assert got == [2]


@pytest.mark.parametrize(
    ("on", "expected"),
    [
        ("order.placed", ["order.placed"]),
        ("order.*", ["order.placed", "order.paid", "order.item.added"]),
        ("*.paid", ["order.paid", "invoice.paid"]),
        ("*", ["order.placed", "order.paid", "order.item.added", "invoice.paid", "order_x.placed"]),
        (("invoice.*", "order.placed"), ["order.placed", "invoice.paid"]),
        ("order_*", ["order_x.placed"]),
    ],
    ids=str,
)
async def test_a_listener_gets_the_types_it_asked_for(
    on: str | Sequence[str],
    expected: list[str],
    outbox: Outbox,
    producer: Producer,
    consuming: Consuming,
) -> None:
    got: list[str] = []

    @outbox.listener("some", on=on)
    async def note(event: Event[Any]) -> None:
        got.append(event.event_type)

    async with consuming(outbox) as running:
        for event_type in (
            "order.placed",
            "order.paid",
            "order.item.added",
            "invoice.paid",
            "order_x.placed",
        ):
            producer.add(1, event_type=event_type)
        await running.consumer.drain()

    assert got == expected


async def test_events_of_other_types_move_the_cursor(
    outbox: Outbox, producer: Producer, database: Database, consuming: Consuming
) -> None:
    @outbox.listener("billing", on="order.paid")
    async def charge(event: Event[Any]) -> None: ...

    producer.add(1, 2, 3)

    async with consuming(outbox) as running:
        await running.recorder.seen(CaughtUp, position=3)

    assert database.listener("billing").last_processed_id == 3


async def test_a_new_listener_gets_the_old_log(
    outbox: Outbox, producer: Producer, consuming: Consuming
) -> None:
    got: list[int] = []

    @outbox.listener("billing", on="order.*")
    async def charge(event: Event[Any]) -> None: ...

    producer.add(1, 2, 3)
    async with consuming(outbox) as running:
        await running.done("billing", 3)

    @outbox.listener("mail", on="order.*")
    async def write(event: Event[Any]) -> None:
        got.append(event.payload["n"])

    async with consuming(outbox) as running:
        await running.done("mail", 3)

    assert got == [1, 2, 3]


@pytest.mark.parametrize("order", ["total", "key"])
@pytest.mark.parametrize("batch_size", [1, 2, 7])
async def test_a_backlog_larger_than_a_batch_is_delivered_whole(
    order: Any, batch_size: int, outbox: Outbox, producer: Producer, consuming: Consuming
) -> None:
    got: list[int] = []

    @outbox.listener("billing", on="order.*", order=order, batch_size=batch_size)
    async def charge(event: Event[Any]) -> None:
        got.append(event.payload["n"])

    producer.add(*range(50))

    async with consuming(outbox) as running:
        await running.done("billing", 50)

    assert got == list(range(50))


async def test_a_batch_handler_gets_several_events_at_once(
    outbox: Outbox, producer: Producer, consuming: Consuming
) -> None:
    got: list[list[int]] = []

    @outbox.listener("billing", on="order.*", batch_size=20)
    async def charge(events: Sequence[Event[Any]]) -> None:
        got.append([event.payload["n"] for event in events])

    producer.add(*range(50))

    async with consuming(outbox) as running:
        await running.done("billing", 50)

    assert [n for batch in got for n in batch] == list(range(50))
    assert max(len(batch) for batch in got) == 20


async def test_while_a_batch_is_handled_the_next_is_read_and_no_more(
    outbox: Outbox, producer: Producer, consuming: Consuming
) -> None:
    producer.add(*range(20))
    may_end = anyio.Event()
    got: list[list[int]] = []

    @outbox.listener("search", on="order.*", batch_size=4)
    async def index(events: Sequence[Event[Any]]) -> None:
        got.append([event.payload["n"] for event in events])
        await may_end.wait()

    async with consuming(outbox) as running:
        await running.recorder.seen(BatchRead, listener="search", times=2)
        await anyio.wait_all_tasks_blocked()
        read = [each.events for each in running.recorder.of(BatchRead, listener="search")]
        begun = [*got]
        may_end.set()
        await running.done("search", 20)

    assert read == [4, 4]
    assert begun == [[0, 1, 2, 3]]
    assert [n for batch in got for n in batch] == [*range(20)]


async def test_a_sync_handler_runs_beside_the_event_loop(
    outbox: Outbox, producer: Producer, consuming: Consuming
) -> None:
    got: list[int] = []

    @outbox.listener("billing", on="order.*")
    def charge(event: Event[Any]) -> None:
        got.append(event.payload["n"])

    async with consuming(outbox) as running:
        producer.add(1, 2)
        await running.done("billing", 2)

    assert got == [1, 2]


async def test_a_consumer_works_for_the_listeners_it_was_told_to(
    outbox: Outbox, producer: Producer, database: Database, consuming: Consuming
) -> None:
    @outbox.listener("billing", on="order.*")
    async def charge(event: Event[Any]) -> None: ...

    @outbox.listener("mail", on="order.*")
    async def write(event: Event[Any]) -> None: ...

    producer.add(1)

    async with consuming(outbox, listeners=["mail"]) as running:
        await running.done("mail")

    assert [row.name for row in database.rows("SELECT name FROM outbox_listeners")] == ["mail"]


async def test_a_listener_that_is_not_declared_is_refused(outbox: Outbox) -> None:
    @outbox.listener("billing", on="order.*")
    async def charge(event: Event[Any]) -> None: ...

    with pytest.raises(ConfigError, match="there is no listener 'biling'; there are: billing"):
        Consumer(outbox, "postgresql://nowhere", listeners=["biling"])


async def test_a_consumer_that_runs_can_not_be_run_a_second_time(
    outbox: Outbox, consuming: Consuming
) -> None:
    @outbox.listener("billing", on="order.*")
    async def charge(event: Event[Any]) -> None: ...

    async with consuming(outbox) as running:
        with pytest.raises(ConfigError, match="running already"):
            await running.consumer.run()


async def test_a_consumer_can_run_again_after_it_stopped(
    outbox: Outbox, producer: Producer, consuming: Consuming
) -> None:
    got: list[int] = []

    @outbox.listener("billing", on="order.*")
    async def charge(event: Event[Any]) -> None:
        got.append(event.payload["n"])

    async with consuming(outbox) as running:
        producer.add(1)
        await running.done("billing")
    producer.add(2)
    await running.consumer.drain()

    assert got == [1, 2]
