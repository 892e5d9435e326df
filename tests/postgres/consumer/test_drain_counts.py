"""``drain`` returns what it has done, and with a limit does no more than that."""

from __future__ import annotations

from typing import Any

import anyio
import pytest
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession

from sa_outbox import Event, Outbox, Reject
from sa_outbox.consumer import Drained
from sa_outbox.errors import ConfigError
from tests.support import PATIENCE

from .conftest import LATER, QUICK, Consuming, Producer, make_consumer

pytestmark = [pytest.mark.anyio, pytest.mark.woken_by("notify")]


async def test_drain_returns_what_was_handled_failed_and_given_up(
    outbox: Outbox, producer: Producer, async_engine: AsyncEngine
) -> None:
    @outbox.listener("billing", on="order.*", retry=LATER)
    async def charge(event: Event[Any]) -> None:
        if event.key == "fails":
            raise ValueError
        if event.key == "refused":
            raise Reject("never")

    @outbox.listener("mail", on="order.*", retry=QUICK)
    async def write(event: Event[Any]) -> None:
        if event.payload["n"] == 1 and not failed:
            failed.append(1)
            raise ValueError

    failed: list[int] = []
    producer.add(1, key="good")
    producer.add(2, 3, key="fails")  # 3 is behind 2
    producer.add(4, key="refused")
    consumer, _ = make_consumer(outbox, async_engine, listeners=["billing"])

    first = await consumer.drain(retries=False)
    again = await consumer.drain(retries=False)
    mail, _ = make_consumer(outbox, async_engine, listeners=["mail"])

    assert first == Drained(handled=1, retried=1, dead=1, waiting=2)
    assert again == Drained()
    assert await mail.drain() == Drained(handled=4, retried=1)


async def test_drain_of_a_running_consumer_counts_from_then_on(
    outbox: Outbox, producer: Producer, consuming: Consuming
) -> None:
    @outbox.listener("billing", on="order.*")
    async def charge(event: Event[Any]) -> None: ...

    async with consuming(outbox) as running:
        producer.add(1)
        await running.done("billing")
        assert await running.consumer.drain() == Drained()
        with pytest.raises(ConfigError, match="not running"):
            await running.consumer.drain(limit=1)


@pytest.mark.parametrize("limit", [0, -1, 1.5, float("nan"), True, "5"])
async def test_a_limit_that_is_no_number_from_one_is_refused(
    limit: Any, outbox: Outbox, async_engine: AsyncEngine
) -> None:
    outbox.listener("billing", on="order.*")(_plain)
    with pytest.raises(ConfigError, match="at least 1"):
        await make_consumer(outbox, async_engine)[0].drain(limit=limit)


async def _plain(event: Event[Any]) -> None: ...


async def _in_a_session(event: Event[Any], session: AsyncSession) -> None: ...


async def _in_batches(events: list[Event[Any]]) -> None: ...


@pytest.mark.parametrize("handler", [_plain, _in_a_session, _in_batches])
@pytest.mark.parametrize("order", ["total", "key", "none"])
async def test_no_drain_does_more_than_its_limit_and_together_they_do_all(
    order: Any, handler: Any, outbox: Outbox, producer: Producer, async_engine: AsyncEngine
) -> None:
    for name in ("billing", "mail"):
        outbox.listener(name, on="order.*", order=order)(handler)
    producer.add(*range(8))

    drains: list[Drained] = []
    with anyio.fail_after(PATIENCE):
        while not drains or drains[-1].limited:
            consumer, _ = make_consumer(outbox, async_engine)
            drains.append(await consumer.drain(limit=5))

    assert [each.handled for each in drains] == [5, 5, 5, 1]
    assert not any(each.waiting for each in drains)


@pytest.mark.parametrize("order", ["total", "key", "none"])
async def test_retries_count_so_that_a_limit_ends_a_drain_that_never_succeeds(
    order: Any, outbox: Outbox, producer: Producer, async_engine: AsyncEngine
) -> None:
    attempts: list[int] = []

    @outbox.listener("billing", on="order.*", order=order, retry=QUICK)
    async def charge(event: Event[Any]) -> None:
        attempts.append(event.payload["n"])
        raise ValueError

    producer.add(1, 2, key="a")
    with anyio.fail_after(PATIENCE):
        drained = await make_consumer(outbox, async_engine)[0].drain(limit=2)

    assert len(attempts) == 2
    assert (drained.handled, drained.retried, drained.dead) == (0, 2, 0)
    assert drained.waiting >= 1
    assert drained.limited


async def test_handlers_side_by_side_do_not_exceed_the_limit_together(
    outbox: Outbox, producer: Producer, async_engine: AsyncEngine
) -> None:
    begun, all_begun = 0, anyio.Event()

    @outbox.listener("billing", on="order.*", concurrency=8)
    @outbox.listener("mail", on="order.*", concurrency=8)
    async def charge(event: Event[Any]) -> None:
        nonlocal begun
        begun += 1
        if begun == 5:
            all_begun.set()
        await all_begun.wait()

    producer.add(*range(8))
    with anyio.fail_after(PATIENCE):
        drained = await make_consumer(outbox, async_engine)[0].drain(limit=5)

    assert begun == 5
    assert drained == Drained(handled=5, limited=True)
