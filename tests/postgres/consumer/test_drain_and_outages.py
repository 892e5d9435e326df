"""``drain`` while the other side of a relay is away: what can be handled is, and it ends."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import anyio
import pytest
from sqlalchemy.ext.asyncio import AsyncEngine

from sa_outbox import Event, Outbox
from sa_outbox.consumer import drain
from sa_outbox.errors import NotDrained, RelayUnavailable
from sa_outbox.observe import RelayAway
from sa_outbox.relay.message import Answer, Message
from tests.support import PATIENCE

from .conftest import Consuming, Database, Producer, make_consumer

pytestmark = pytest.mark.anyio


class Line:
    """A relay that reaches nobody for some events, or for all."""

    keeps_order = False
    takes_batches = True
    attribute_prefix = "ce-"

    def __init__(self) -> None:
        self.taken: list[int] = []
        self.away = set(range(1000))

    def check_destination(self, destination: str) -> None: ...

    async def send(self, messages: Sequence[Message]) -> Sequence[Answer]:
        return [self._answer(each.event.payload["n"]) for each in messages]

    def _answer(self, number: int) -> Answer:
        if number in self.away:
            error = RelayUnavailable("nobody is there")
            error.__cause__ = ConnectionRefusedError()
            return error
        self.taken.append(number)
        return None

    async def close(self) -> None: ...


@pytest.fixture
def line() -> Line:
    return Line()


@pytest.fixture(autouse=True)
def _in_a_hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drain, "OUTAGE_SECONDS", 1.0)
    monkeypatch.setattr(drain, "OUTAGE_WITH_RETRIES_SECONDS", 1.0)


@pytest.mark.parametrize("retries", [False, True])
@pytest.mark.parametrize("order", ["key", "total", "none"])
async def test_drain_handles_what_it_can_and_says_what_waits(
    order: Any,
    retries: bool,
    outbox: Outbox,
    producer: Producer,
    line: Line,
    async_engine: AsyncEngine,
) -> None:
    got: list[int] = []
    outbox.relay("line", line, on="*", to="orders", order=order)

    @outbox.listener("billing", on="order.*")
    async def charge(event: Event[Any]) -> None:
        got.append(event.payload["n"])

    producer.add(1, 2, 3, key="a")
    consumer, _ = make_consumer(outbox, async_engine)
    with anyio.fail_after(PATIENCE), pytest.raises(NotDrained) as raised:
        await consumer.drain(retries=retries)

    assert raised.value.waiting == {"line": "ConnectionRefusedError"}
    assert "'line' (ConnectionRefusedError)" in str(raised.value)
    assert (got, line.taken) == ([1, 2, 3], [])

    line.away.clear()
    with anyio.fail_after(PATIENCE):
        await make_consumer(outbox, async_engine)[0].drain(retries=retries)
    assert line.taken == [1, 2, 3]
    assert got == [1, 2, 3], "and nothing twice"


@pytest.mark.parametrize("order", ["key", "none"])
async def test_a_relay_that_reaches_some_forwards_all_of_these_before_drain_gives_up(
    order: Any, outbox: Outbox, producer: Producer, line: Line, async_engine: AsyncEngine
) -> None:
    outbox.relay("line", line, on="*", to="orders", order=order)
    line.away = {7}
    for number in range(300):
        producer.add(number, key=f"k{number}")
    consumer, _ = make_consumer(outbox, async_engine)
    with anyio.fail_after(PATIENCE), pytest.raises(NotDrained) as raised:
        await consumer.drain(retries=False)

    assert raised.value.waiting == {"line": "ConnectionRefusedError"}
    assert sorted(line.taken) == [each for each in range(300) if each != 7]


async def test_a_relay_that_comes_back_in_time_is_waited_for(
    outbox: Outbox,
    producer: Producer,
    line: Line,
    async_engine: AsyncEngine,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(drain, "OUTAGE_WITH_RETRIES_SECONDS", PATIENCE)
    outbox.relay("line", line, on="*", to="orders")
    producer.add(1)
    consumer, recorder = make_consumer(outbox, async_engine)

    async def come_back() -> None:
        await recorder.seen(RelayAway, times=2)
        line.away.clear()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(come_back)
        await consumer.drain()

    assert line.taken == [1]


async def test_drain_of_a_running_consumer_gives_up_too_and_leaves_it_running(
    outbox: Outbox, producer: Producer, line: Line, consuming: Consuming, database: Database
) -> None:
    outbox.relay("line", line, on="*", to="orders")
    producer.add(1)

    async with consuming(outbox) as running:
        with anyio.fail_after(PATIENCE), pytest.raises(NotDrained):
            await running.consumer.drain()
        line.away.clear()
        await running.done("line")
