"""Sync handlers with a session: the events of a group, one after the other in one call of a thread.

What a failing event does to the others: ``test_group_commit.py`` and ``test_group_hazards.py``,
for async and for sync handlers.
"""

from __future__ import annotations

import threading
from contextvars import ContextVar
from typing import Any

import pytest
from sqlalchemy import text
from sqlalchemy.orm import Session

from sa_outbox import Event, Outbox
from sa_outbox.consumer.queue.range_source import RangeSource
from sa_outbox.consumer.transaction import group
from sa_outbox.consumer.transaction.chain import ThreadChain
from sa_outbox.consumer.transaction.group import Group
from sa_outbox.policy.order import Order
from tests.support import comes_true

from .conftest import Consuming, Database, Producer

pytestmark = [pytest.mark.anyio, pytest.mark.woken_by("poll")]

COUNT = 20
EFFECT = text("INSERT INTO effects VALUES ('billing', :n)")
SEEN: ContextVar[int | None] = ContextVar("SEEN", default=None)


@pytest.fixture
def chains(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many events each call of a thread was given, after the first of its group."""
    monkeypatch.setattr(group, "MAX_SECONDS", 60)  # on a busy machine, too
    lengths: list[int] = []
    run = ThreadChain.run

    async def note(self: ThreadChain) -> BaseException | None:
        lengths.append(len(self._events))
        return await run(self)

    monkeypatch.setattr(ThreadChain, "run", note)
    return lengths


async def test_all_events_after_the_first_are_one_call_of_a_thread(
    outbox: Outbox, producer: Producer, database: Database, consuming: Consuming, chains: list[int]
) -> None:
    threads: set[int] = set()

    @outbox.listener("billing", on="order.*")
    def charge(event: Event[Any], session: Session) -> None:
        session.execute(EFFECT, {"n": event.payload["n"]})
        if event.payload["n"]:
            threads.add(threading.get_ident())

    producer.add(*range(COUNT))
    async with consuming(outbox) as running:
        await running.done("billing", COUNT)

    assert (chains, len(threads)) == ([COUNT - 1], 1)
    assert database.effects("billing") == list(range(COUNT))


async def test_each_event_has_a_context_and_a_session_of_its_own(
    outbox: Outbox, producer: Producer, consuming: Consuming, chains: list[int]
) -> None:
    seen: list[int | None] = []
    sessions: list[Session] = []

    @outbox.listener("billing", on="order.*")
    def charge(event: Event[Any], session: Session) -> None:
        seen.append(SEEN.get())
        SEEN.set(event.payload["n"])
        session.info["n"] = event.payload["n"]
        sessions.append(session)

    producer.add(*range(COUNT))
    async with consuming(outbox) as running:
        await running.done("billing", COUNT)

    assert chains == [COUNT - 1]
    assert seen == [None] * COUNT
    assert [session.info["n"] for session in sessions] == list(range(COUNT))


async def test_several_tasks_share_what_waits(
    outbox: Outbox, producer: Producer, database: Database, consuming: Consuming, chains: list[int]
) -> None:
    @outbox.listener("billing", on="order.*", concurrency=4)
    def charge(event: Event[Any], session: Session) -> None:
        session.execute(EFFECT, {"n": event.payload["n"]})

    producer.add(*range(COUNT))
    async with consuming(outbox) as running:
        await running.done("billing", COUNT)

    assert max(chains, default=0) <= COUNT // 4
    assert database.effects("billing") == list(range(COUNT))


@pytest.mark.parametrize("order", ["key", "total", "none"])
async def test_what_has_not_begun_when_a_group_ends_goes_first_in_the_next(
    outbox: Outbox,
    producer: Producer,
    database: Database,
    consuming: Consuming,
    monkeypatch: pytest.MonkeyPatch,
    order: Order,
) -> None:
    # As when its time is up.
    monkeypatch.setattr(Group, "_has_room", lambda self, _savepoints: len(self.items) < 3)
    given_back: list[int] = []
    give_back = Group.give_back

    def note(self: Group) -> None:
        given_back.append(len(self._reserved))
        give_back(self)

    monkeypatch.setattr(Group, "give_back", note)
    got: list[int] = []

    @outbox.listener("billing", on="order.*", order=order)
    def charge(event: Event[Any], session: Session) -> None:
        session.execute(EFFECT, {"n": event.payload["n"]})
        got.append(event.payload["n"])

    # With order="key", every second event has the key of the one before it.
    for n in range(0, COUNT, 2):
        producer.add(n, n + 1, key=str(n))
    async with consuming(outbox) as running:
        await running.done("billing", COUNT)

    assert max(given_back) > 0
    assert got == list(range(COUNT))
    assert database.effects("billing") == list(range(COUNT))


async def test_an_event_that_is_cancelled_before_its_turn_is_not_handled(
    outbox: Outbox,
    producer: Producer,
    database: Database,
    consuming: Consuming,
    chains: list[int],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[int] = []
    withdraw = RangeSource.withdraw

    def note(self: RangeSource, position: int) -> Any:
        found = withdraw(self, position)
        asked.append(position)
        return found

    monkeypatch.setattr(RangeSource, "withdraw", note)
    got: list[int] = []
    waits, go_on = threading.Event(), threading.Event()

    @outbox.listener("billing", on="order.*", order="none")
    def charge(event: Event[Any], session: Session) -> None:
        session.execute(EFFECT, {"n": event.payload["n"]})
        got.append(event.payload["n"])
        if event.payload["n"] == 1:
            waits.set()
            go_on.wait(20)

    with producer.open() as session:
        ids = [session.add_event("order.placed", {"n": n}).event_id for n in range(4)]
    async with consuming(outbox) as running:
        try:
            await comes_true(waits.is_set)
            with database.engine.begin() as connection:
                outbox.cancel(connection, ids[2])
            await comes_true(lambda: bool(asked))
        finally:
            go_on.set()
        await running.done("billing", 3)
        await running.consumer.drain()

    assert (got, chains[0]) == ([0, 1, 3], 3)
    assert database.effects("billing") == [0, 1, 3]
    [row] = database.deliveries("billing")
    assert row.state == "cancelled"
