"""Many events through a consumer and a relay while the broker is stopped and connections end.

The invariant: all of them arrive; of each key in their order, counted by the first arrival of each
``event_id``; what arrives twice is the same event. So a receiver that leaves out an ``event_id``
that it has seen has each event once, in the order of its key.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from math import inf
from typing import TYPE_CHECKING, Any

import anyio
from sqlalchemy import URL, create_engine, text
from sqlalchemy.ext.asyncio import create_async_engine

from sa_outbox import Outbox, SomeFailed
from sa_outbox.consumer import Consumer
from sa_outbox.observe import AttemptFailed, DeadLettered, Observation, RelayAway
from sa_outbox.relay import Answer, Message, Relay
from sa_outbox.relay.conformance import Arrived
from sa_outbox.relay.forward import Forward
from tests.support import comes_true
from tests.support.recorder import Recorder

if TYPE_CHECKING:
    from uuid import UUID

EVENTS = int(os.environ.get("RELAY_EVENTS", "5000"))
"""A run of 20,000 takes half a minute for each relay on two busy cores."""
KEYS = 50
WRITE = """
    INSERT INTO outbox (event_id, event_type, key, payload)
    SELECT gen_random_uuid(), 'order.placed', 'key-' || n % :keys, jsonb_build_object('n', n)
    FROM generate_series(1, :events) n ORDER BY n
"""


async def forward(relay: Relay, messages: Sequence[Message]) -> list[BaseException | None]:
    """As a listener does it, with order by key."""
    made = {each.event.event_id: each for each in messages}
    forwarding = Forward(relay, lambda event, _: made[event.event_id], order="key", timeout=30)
    try:
        await forwarding.all([each.event for each in messages])
    except SomeFailed as failed:
        return [failed.errors.get(each.event.event_id) for each in messages]
    return [None] * len(messages)


class Pace:
    """How far a relay has come, and may come: one that is quick would be at its end before anything
    has failed. It may be half a part ahead of the next fault, so that it is at work then."""

    def __init__(self, events: int, faults: int) -> None:
        self.done = 0
        self._events, self._parts = events, faults + 1
        self._limit = 0.0
        self._raised = anyio.Event()
        self.go_on(1)

    def go_on(self, fault: int) -> None:
        """Until a while after the place of this *fault*."""
        self._limit = self._events * (fault + 0.5) / self._parts if fault < self._parts else inf
        self._raised.set()
        self._raised = anyio.Event()

    async def until(self, fault: int) -> None:
        """Wait until the place of this *fault* is reached."""
        wanted = self._events * fault // self._parts
        await comes_true(lambda: self.done >= wanted, within=100)

    async def may_send(self) -> None:
        while self.done >= self._limit:
            await self._raised.wait()


class Counted:
    """A relay that counts what was answered with success, and does not run ahead of the faults."""

    def __init__(self, relay: Relay) -> None:
        self._relay = relay
        self.pace: Pace | None = None
        self.keeps_order = relay.keeps_order
        self.takes_batches = relay.takes_batches
        self.attribute_prefix = relay.attribute_prefix
        self.check_destination = relay.check_destination
        self.close = relay.close

    async def send(self, messages: Sequence[Message]) -> Sequence[Answer]:
        assert self.pace is not None
        await self.pace.may_send()
        answers = await self._relay.send(messages)
        self.pace.done += sum(each is None for each in answers)
        return answers


class Scenario:
    """An outbox full of events, a consumer with one relay, and faults as it goes on."""

    def __init__(self, url: URL, relay: Relay, destination: str, events: int = EVENTS) -> None:
        self.events = events
        self.recorder = Recorder()
        self.ids: dict[str, tuple[str, int]] = {}
        """``event_id`` to key and number."""
        self._url = url
        self._relay = Counted(relay)
        self._outbox = Outbox()
        self._outbox.relay("relay", self._relay, on="order.*", to=destination)

    async def run(self, *faults: tuple[Callable[[], Any], Callable[[], Any]]) -> None:
        """Forward everything. *faults* happen at equal parts of the way, in a thread: what breaks,
        and what repairs as soon as the relay has seen that nobody is there."""
        await anyio.to_thread.run_sync(self._write)
        pace = self._relay.pace = Pace(self.events, len(faults))
        engine = create_async_engine(self._url.set(drivername="postgresql+asyncpg"))
        consumer = Consumer(self._outbox, engine, observers=[self._observe])
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._break_and_repair, pace, faults)
                with anyio.fail_after(110):
                    await consumer.drain()
        finally:  # else another test would be blamed for the connections
            await engine.dispose()

    async def _break_and_repair(
        self, pace: Pace, faults: Sequence[tuple[Callable[[], Any], Callable[[], Any]]]
    ) -> None:
        for number, (breaks, repairs) in enumerate(faults, 1):
            await pace.until(number)
            await anyio.to_thread.run_sync(breaks)
            pace.go_on(number + 1)
            before = len(self.recorder.of(RelayAway))
            # One may be of a connection that ended by itself: three times nobody was there.
            await self.recorder.seen(RelayAway, times=before + 3)
            await anyio.to_thread.run_sync(repairs)

    def _observe(self, observation: Observation) -> None:
        if isinstance(observation, (AttemptFailed, DeadLettered, RelayAway)):
            self.recorder(observation)

    def check(self, found: Sequence[Arrived]) -> int:
        """All is as the invariant says; return how many arrived more than once."""
        assert self.recorder.of(DeadLettered) == []
        assert self.recorder.of(AttemptFailed) == []
        first = list({each.event_id: each for each in found}.values())
        assert {each.event_id for each in first} == self.ids.keys(), "each, and no other"
        assert all(self.ids[each.event_id][0] == each.key for each in found)
        came: dict[str | None, list[int]] = {}
        for each in first:
            came.setdefault(each.key, []).append(self.ids[each.event_id][1])
        assert len(came) == KEYS
        for key, numbers in came.items():
            assert numbers == sorted(numbers), f"order of {key}"
        return len(found) - len(first)

    def _write(self) -> None:
        engine = create_engine(self._url.set(drivername="postgresql+psycopg"))
        with engine.begin() as connection:
            connection.execute(text(WRITE), {"keys": KEYS, "events": self.events})
            rows = connection.execute(text("SELECT event_id, key, payload->'n' AS n FROM outbox"))
            event_id: UUID
            for event_id, key, number in rows:
                self.ids[str(event_id)] = key, number
        engine.dispose()
