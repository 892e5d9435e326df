"""Deliveries that an operator retries now or cancels, while consumers run."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import anyio
import pytest
from sqlalchemy import text

from sa_outbox import Event, Outbox, RetryPolicy
from sa_outbox.operations.deliveries import DeliveryFilter, DeliveryId, list_held, list_work
from sa_outbox.operations.delivery_change import (
    cancel_deliveries,
    retry_deliveries,
    retry_matching,
)
from sa_outbox.operations.operator import Operator
from tests.support import comes_true

from .conftest import Consuming, Database, Producer

pytestmark = [pytest.mark.anyio, pytest.mark.woken_by("notify")]

GRACE = Operator(who="grace", why="it is up again")
WAITS_FOR_A_LOCK = (
    "SELECT count(*) FROM pg_stat_activity"
    " WHERE datname = current_database() AND wait_event_type = 'Lock'"
)
HOURS = RetryPolicy(attempts=5, base=timedelta(hours=1), jitter=False)


class Listening:
    """Fails for some numbers until they are mended."""

    def __init__(self, outbox: Outbox, order: Any, *broken: int) -> None:
        self.got: list[int] = []
        self.broken = set(broken)

        @outbox.listener("mail", on="order.*", order=order, retry=HOURS)
        async def mail(event: Event[Any]) -> None:
            if event.payload["n"] in self.broken:
                raise ConnectionError("no answer")
            self.got.append(event.payload["n"])


def change(database: Database, outbox: Outbox, work: Callable[..., Any], *args: Any) -> Any:
    with database.engine.begin() as connection:
        return work(connection, outbox.tables, *args, GRACE)


def waits(database: Database, states: list[str]) -> bool:
    return [each.state for each in database.deliveries("mail")] == states


async def test_a_parked_delivery_is_attempted_at_once_and_its_key_keeps_its_order(
    outbox: Outbox, producer: Producer, database: Database, consuming: Consuming
) -> None:
    listening = Listening(outbox, "key", 1)

    async with consuming(outbox) as running:
        producer.add(1, 2, 3, key="k")
        await comes_true(lambda: waits(database, ["parked", "behind", "behind"]))
        first, second, _ = (
            DeliveryId("mail", each.position) for each in database.deliveries("mail")
        )
        early = change(database, outbox, retry_deliveries, [second])
        listening.broken.clear()
        answers = change(database, outbox, retry_deliveries, [first, second])
        await running.done("mail", 3)

    assert early == {second: "behind"}
    assert answers == {first: "retried", second: "behind"}
    assert listening.got == [1, 2, 3]
    audit = database.rows("SELECT * FROM outbox_audit WHERE action = 'retried now'")
    assert [(each.actor_id, each.listener, each.attempt) for each in audit] == [
        ("grace", "mail", 1)
    ]
    assert audit[0].detail["why"] == "it is up again"


async def test_what_a_total_order_waits_for_is_attempted_at_once(
    outbox: Outbox, producer: Producer, database: Database, consuming: Consuming
) -> None:
    listening = Listening(outbox, "total", 1)

    async with consuming(outbox) as running:
        producer.add(1, 2)
        await comes_true(lambda: database.listener("mail").retry_position is not None)
        (held,) = change(database, outbox, lambda c, tables, _: list_held(c, tables))
        (work,) = change(database, outbox, lambda c, tables, _: list_work(c, tables))
        listening.broken.clear()
        answers = [change(database, outbox, retry_deliveries, [held.id]) for _ in range(2)]
        await running.done("mail", 2)

    assert (held.attempts, held.event_type, held.last_error) == (1, "order.placed", "no answer")
    assert work.listener == "mail"
    # The second click: it is due, or has been done meanwhile.
    assert answers[0] == {held.id: "retried"}
    assert answers[1] in ({held.id: "due"}, {held.id: "done"})
    assert listening.got == [1, 2]


async def test_all_that_failed_are_retried_and_none_that_waits_for_its_time(
    outbox: Outbox, producer: Producer, database: Database, consuming: Consuming
) -> None:
    listening = Listening(outbox, "none", 1, 2)

    async with consuming(outbox) as running:
        producer.add(1, 2)
        producer.add(3, delay=timedelta(hours=1))
        await comes_true(lambda: waits(database, ["scheduled"] * 3))
        listening.broken.clear()
        done = change(database, outbox, retry_matching, DeliveryFilter(listener="mail"))
        await running.done("mail", 2)
        (left,) = database.deliveries("mail")
        cancelled = change(database, outbox, cancel_deliveries, [DeliveryId("mail", left.position)])

    assert list(done.outcomes.values()) == ["retried", "retried"]
    assert sorted(listening.got) == [1, 2]
    assert list(cancelled.values()) == ["cancelled"]
    assert database.value(
        "SELECT actor_type || ':' || actor_id FROM outbox_audit WHERE action = 'cancelled'"
    ) == "operator:grace"  # fmt: skip


async def test_a_cancelled_delivery_of_an_ordered_listener_is_skipped_and_its_key_goes_on(
    outbox: Outbox, producer: Producer, database: Database, consuming: Consuming
) -> None:
    listening = Listening(outbox, "key", 1)

    async with consuming(outbox) as running:
        producer.add(1, 2, key="k")
        await comes_true(lambda: waits(database, ["parked", "behind"]))
        first = DeliveryId("mail", database.deliveries("mail")[0].position)
        answers = [change(database, outbox, cancel_deliveries, [first]) for _ in range(2)]
        await running.done("mail")

    assert answers == [{first: "skipped"}, {first: "done"}]
    assert listening.got == [2]


async def test_a_delivery_that_runs_is_left_alone_and_asked_to_stop(
    outbox: Outbox, producer: Producer, database: Database, consuming: Consuming
) -> None:
    begun, cancelled = anyio.Event(), anyio.Event()
    attempts: list[int] = []

    @outbox.listener(
        "mail", on="order.*", order="none", cancellable=True, retry=RetryPolicy(base=timedelta(0))
    )
    async def mail(event: Event[Any]) -> None:
        attempts.append(event.payload["n"])
        if len(attempts) == 1:
            raise ConnectionError("no answer")
        begun.set()
        try:
            await anyio.sleep_forever()
        finally:
            cancelled.set()

    async with consuming(outbox) as running:
        producer.add(1)
        with anyio.fail_after(20):
            await begun.wait()
        one = DeliveryId("mail", database.deliveries("mail")[0].position)
        retried = change(database, outbox, retry_deliveries, [one])
        asked = change(database, outbox, cancel_deliveries, [one])
        with anyio.fail_after(20):
            await cancelled.wait()
        await running.settled("mail", outcome="cancelled")

    assert (retried, asked) == ({one: "running"}, {one: "requested"})
    assert waits(database, ["cancelled"])
    found = "SELECT actor_id FROM outbox_audit WHERE action = 'cancel requested'"
    assert database.value(found) == "grace"


@pytest.mark.parametrize("is_rewound", [False, True], ids=["taken", "rewound"])
async def test_a_queue_is_known_as_one_while_no_consumer_lives(
    outbox: Outbox,
    producer: Producer,
    database: Database,
    consuming: Consuming,
    is_rewound: bool,
) -> None:
    Listening(outbox, "none", 1)
    async with consuming(outbox):
        producer.add(1)
        await comes_true(lambda: waits(database, ["scheduled"]))
    # As a replay leaves it.
    database.rows("UPDATE outbox_deliveries SET state = 'parked', due_at = clock_timestamp()")
    if is_rewound:
        database.rows("UPDATE outbox_listeners SET last_processed_id = 0, gaps = '[]'")

    one = DeliveryId("mail", database.deliveries("mail")[0].position)
    answer = change(database, outbox, cancel_deliveries, [one])

    assert answer == {one: "cancelled"}
    assert waits(database, ["cancelled"])


async def test_without_a_record_of_its_order_a_queue_is_known_by_who_works_on_it(
    outbox: Outbox, producer: Producer, database: Database, consuming: Consuming
) -> None:
    Listening(outbox, "none", 1)
    async with consuming(outbox):
        producer.add(1)
        await comes_true(lambda: waits(database, ["scheduled"]))
        database.rows("UPDATE outbox_listeners SET ordering = NULL")
        database.rows("UPDATE outbox_deliveries SET state = 'parked'")
        one = DeliveryId("mail", database.deliveries("mail")[0].position)
        answer = change(database, outbox, cancel_deliveries, [one])

    assert answer == {one: "cancelled"}


async def test_one_that_fails_and_parks_while_it_is_cancelled_is_skipped(
    outbox: Outbox, producer: Producer, database: Database, consuming: Consuming
) -> None:
    Listening(outbox, "key")
    async with consuming(outbox):
        producer.add(1, key="k", delay=timedelta(hours=1))
        await comes_true(lambda: waits(database, ["scheduled"]))
    one = DeliveryId("mail", database.deliveries("mail")[0].position)
    answers: list[Any] = []

    def cancel() -> None:
        answers.append(change(database, outbox, cancel_deliveries, [one]))

    async with anyio.create_task_group() as group:
        with database.engine.begin() as holder:
            for statement in (
                "UPDATE outbox_listeners SET updated_at = clock_timestamp()",
                "UPDATE outbox_deliveries SET state = 'parked', attempts = 1",
            ):
                holder.execute(text(statement))
            group.start_soon(anyio.to_thread.run_sync, cancel)
            await comes_true(lambda: database.value(WAITS_FOR_A_LOCK) == 1)

    assert answers == [{one: "skipped"}]
    assert waits(database, [])


async def test_what_a_total_order_waits_for_is_skipped_and_those_behind_it_go_on(
    outbox: Outbox, producer: Producer, database: Database, consuming: Consuming
) -> None:
    listening = Listening(outbox, "total", 1)

    async with consuming(outbox) as running:
        producer.add(1, 2)
        await comes_true(lambda: database.listener("mail").retry_position is not None)
        one = DeliveryId("mail", database.listener("mail").retry_position)
        answers = [change(database, outbox, cancel_deliveries, [one]) for _ in range(2)]
        await running.done("mail")

    assert answers == [{one: "skipped"}, {one: "done"}]
    assert listening.got == [2]


@pytest.mark.parametrize(("order", "said"), [("key", "skipped"), ("none", "cancelled")])
async def test_one_that_nobody_has_begun_is_never_attempted(
    outbox: Outbox,
    producer: Producer,
    database: Database,
    consuming: Consuming,
    order: Any,
    said: str,
) -> None:
    listening = Listening(outbox, order)
    async with consuming(outbox):
        pass
    producer.add(1, 2)
    first = DeliveryId("mail", database.value("SELECT min(id) FROM outbox"))
    nowhere = DeliveryId("mail", first.position + 1000)

    answers = change(database, outbox, cancel_deliveries, [first, nowhere])
    async with consuming(outbox) as running:
        await running.done("mail")
        await running.consumer.drain()

    assert answers == {first: said, nowhere: "done"}
    assert listening.got == [2]


@pytest.mark.parametrize("order", ["total", "key", "none"])
async def test_a_dead_letter_is_not_cancelled_and_told_of(
    outbox: Outbox, producer: Producer, database: Database, consuming: Consuming, order: Any
) -> None:
    @outbox.listener("mail", on="order.*", order=order, retry=RetryPolicy(attempts=1))
    async def mail(event: Event[Any]) -> None:
        raise ConnectionError("no answer")

    async with consuming(outbox) as running:
        producer.add(1)
        await running.settled("mail", outcome="dead")
        await running.consumer.drain()
    one = DeliveryId("mail", database.dead_letters("mail")[0].position)

    assert change(database, outbox, cancel_deliveries, [one]) == {one: "dead"}
