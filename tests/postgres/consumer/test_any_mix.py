"""Whatever fails, and however many run at once: each key in its order, each event settled once.

Seeded runs over listeners of every form. The rule that is checked at every attempt: all earlier
events of its key are done or given up, and none of them runs.
"""

from __future__ import annotations

import json
import random
from collections import Counter, defaultdict
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import anyio
import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncSession

from sa_outbox import Event, Outbox, RetryLater, RetryPolicy

from .conftest import Consuming, Database, Producer, in_turns

pytestmark = pytest.mark.anyio
ATTEMPTS = 3
RETRY = RetryPolicy(attempts=ATTEMPTS, base=timedelta(milliseconds=3))


class Watch:
    """What one listener's handler is told to do, and what it does wrong."""

    def __init__(self, chance: random.Random, events: int, keys: int, *, total: bool) -> None:
        self._chance = chance
        self.key = {n: chance.choice([None, *range(keys)]) for n in range(events)}
        self.failures = {n: chance.choice([0] * 12 + [1, 2, ATTEMPTS]) for n in range(events)}
        self.attempts: Counter[int] = Counter()
        self.done: set[int] = set()
        self.wrong: list[str] = []
        self._running: set[int] = set()
        self._of_key: defaultdict[object, list[int]] = defaultdict(list)
        for n, key in self.key.items():
            self._of_key["all" if total else ("none", n) if key is None else key].append(n)
        self._lane = {n: lane for lane, each in self._of_key.items() for n in each}

    def given_up(self, n: int) -> bool:
        return self.attempts[n] >= ATTEMPTS and n not in self.done

    async def attempt(self, n: int) -> None:
        self.attempts[n] += 1
        for earlier in self._of_key[self._lane[n]]:
            if earlier >= n:
                break
            if earlier not in self.done and not self.given_up(earlier):
                self.wrong.append(f"{n} was attempted before {earlier} was settled")
        self._running.add(n)
        try:
            beside = {each for each in self._running if self._lane[each] == self._lane[n]}
            if len(beside) > 1:
                self.wrong.append(f"{beside} ran side by side")
            for _ in range(self._chance.randrange(4)):
                await anyio.lowlevel.checkpoint()
            if self.attempts[n] <= self.failures[n]:
                raise self._chance.choice([ValueError("again"), RetryLater(delay=timedelta(0))])
            self.done.add(n)
        finally:
            self._running.remove(n)


@in_turns(4)
@pytest.mark.parametrize("form", ["plain", "session", "total", "total session"])
async def test_single_handlers_settle_each_event_once_and_in_order(
    form: str,
    seed: int,
    outbox: Outbox,
    producer: Producer,
    consuming: Consuming,
    database: Database,
) -> None:
    chance = random.Random(f"{form} {seed}")
    events, total = 80, "total" in form
    watch = Watch(chance, events, keys=chance.choice([1, 3, 10]), total=total)
    options: dict[str, Any] = {
        "order": "total" if total else "key",
        "concurrency": 1 if total else chance.choice([1, 2, 7]),
        "batch_size": chance.choice([1, 4, 15, 500]),
        "retry": RETRY,
    }
    if "session" in form:

        @outbox.listener("mixed", on="order.*", **options)
        async def in_session(event: Event[Any], session: AsyncSession) -> None:
            n = event.payload["n"]
            statement = text("INSERT INTO effects VALUES ('mixed', :n)")
            await session.execute(statement, {"n": n})
            await watch.attempt(n)
    else:

        @outbox.listener("mixed", on="order.*", **options)
        async def plain(event: Event[Any]) -> None:
            await watch.attempt(event.payload["n"])

    await run(watch, outbox, producer, consuming, chance)
    check(watch, database)
    if "session" in form:
        assert database.effects("mixed") == sorted(watch.done)


@in_turns(4)
async def test_batch_handlers_settle_each_event_once(
    seed: int,
    outbox: Outbox,
    producer: Producer,
    consuming: Consuming,
    database: Database,
) -> None:
    chance = random.Random(f"batch {seed}")
    bad = {n for n in range(60) if chance.random() < 0.08}
    keys = chance.choice([2, 8])

    @outbox.listener(
        "mixed",
        on="order.*",
        retry=RETRY,
        batch_size=chance.choice([3, 20]),
        concurrency=chance.choice([1, 3]),
    )
    async def in_batches(batch: Sequence[Event[Any]], session: AsyncSession) -> None:
        for event in batch:
            n = event.payload["n"]
            statement = text("INSERT INTO effects VALUES ('mixed', :n)")
            await session.execute(statement, {"n": n})
            if n in bad:
                raise ValueError("bad")

    async with consuming(outbox) as running:
        for first in range(0, 60, 5):
            with producer.open() as session:
                for n in range(first, first + 5):
                    session.add_event("order.placed", {"n": n}, key=f"key {n % keys}")
        await running.consumer.drain()

    assert database.effects("mixed") == [n for n in range(60) if n not in bad]
    dead = [json.loads(row.payload)["n"] for row in database.dead_letters("mixed")]
    assert sorted(dead) == sorted(bad)
    assert database.deliveries("mixed") == []


async def run(
    watch: Watch, outbox: Outbox, producer: Producer, consuming: Consuming, chance: random.Random
) -> None:
    left = list(watch.key.items())
    async with consuming(outbox) as running:
        while left:
            with producer.open() as session:
                for _ in range(min(len(left), chance.randrange(1, 12))):
                    n, key = left.pop(0)
                    name = None if key is None else f"key {key}"
                    session.add_event("order.placed", {"n": n}, key=name)
            await anyio.lowlevel.checkpoint()
        await running.consumer.drain()


def check(watch: Watch, database: Database) -> None:
    assert watch.wrong == []
    given_up = {n for n, failures in watch.failures.items() if failures >= ATTEMPTS}
    assert watch.done == set(watch.key) - given_up
    letters = database.dead_letters("mixed")
    assert sorted(json.loads(row.payload)["n"] for row in letters) == sorted(given_up)
    assert all(len(row.errors) == ATTEMPTS for row in letters)
    assert database.deliveries("mixed") == []
    assert database.listener("mixed").gaps == []
    expected = {n: min(failures + 1, ATTEMPTS) for n, failures in watch.failures.items()}
    assert dict(watch.attempts) == expected
