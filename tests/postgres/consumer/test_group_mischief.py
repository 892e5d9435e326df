"""Handlers that do all kinds of mischief, by chance and in groups: only the guilty pay for it."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from datetime import timedelta
from random import Random
from typing import Any, TypeAlias

import anyio
import pytest
from sqlalchemy import text
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import Session

from sa_outbox import Event, Outbox, RetryPolicy
from sa_outbox.errors import Reject, RetryLater
from sa_outbox.observe import AttemptFailed
from sa_outbox.policy.order import Order

from .conftest import Consuming, Database, Producer

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.long,
    pytest.mark.woken_by("notify"),
    pytest.mark.timeout(120),
]

EFFECT = text("INSERT INTO effects VALUES ('billing', :n)")
LATE = text("INSERT INTO checked_late VALUES (1), (1)")
FAILING, SLEEPING = text("SELECT 1 / 0"), text("SELECT pg_sleep(4)")
ENDING = text("SELECT pg_terminate_backend(pg_backend_pid())")
EVENTS, SHARE = 80, 0.15
TWICE = RetryPolicy(attempts=2, base=timedelta(milliseconds=10), jitter=False)

Mischief: TypeAlias = Callable[[Session], object]


def refuse(session: Session) -> None:
    raise ValueError("never")


def reject(session: Session) -> None:
    raise Reject("never")


def fail(session: Session) -> None:
    session.execute(FAILING)


def swallow(session: Session) -> None:
    with pytest.raises(SQLAlchemyError):
        session.execute(FAILING)


def sleep(session: Session) -> None:
    session.execute(SLEEPING)


def end(session: Session) -> None:
    session.execute(ENDING)


def defer(session: Session) -> None:
    session.execute(LATE)


MISCHIEF: list[Mischief] = [refuse, reject, fail, swallow, end, defer]
"""One more event sleeps: each that does takes the seconds of its time limit, twice."""


@pytest.mark.parametrize(
    ("order", "concurrency"), [("key", 1), ("key", 4), ("total", 1), ("none", 4)]
)
@pytest.mark.parametrize("kind", ["async", "sync"])
async def test_only_the_guilty_fail_and_each_effect_happens_once(
    kind: str,
    order: Order,
    concurrency: int,
    outbox: Outbox,
    producer: Producer,
    database: Database,
    consuming: Consuming,
) -> None:
    seed = time.time_ns() % 1_000_000
    random = Random(seed)
    guilty = {n: random.choice(MISCHIEF) for n in range(EVENTS) if random.random() < SHARE}
    guilty[random.randrange(EVENTS)] = sleep
    later = {n for n in range(EVENTS) if n not in guilty and random.random() < SHARE / 3}
    calls: Counter[int] = Counter()

    def act(event: Event[Any], session: Session) -> None:
        n = event.payload["n"]
        calls[n] += 1
        session.execute(EFFECT, {"n": n})
        if n in guilty:
            guilty[n](session)
        if n in later and calls[n] < 2:
            raise RetryLater(delay=timedelta(milliseconds=5))

    options: dict[str, Any] = {
        "order": order,
        "concurrency": concurrency,
        "timeout": timedelta(seconds=1.5),
        "retry": TWICE,
    }
    if kind == "sync":

        @outbox.listener("billing", on="order.*", **options)
        def charge_in_thread(event: Event[Any], session: Session) -> None:
            act(event, session)
    else:

        @outbox.listener("billing", on="order.*", **options)
        async def charge(event: Event[Any], session: AsyncSession) -> None:
            await session.run_sync(lambda inner: act(event, inner))

    for n in range(EVENTS):
        producer.add(n, key=str(n % 9))

    async with consuming(outbox) as running:
        with anyio.fail_after(100):
            await running.consumer.drain()

    failed = {each.position - 1 for each in running.recorder.of(AttemptFailed)}
    dead = {each.position - 1 for each in database.dead_letters("billing")}
    assert failed <= guilty.keys() | later, f"seed {seed}"
    assert dead == guilty.keys(), f"seed {seed}"
    assert database.effects("billing") == sorted(set(range(EVENTS)) - dead), f"seed {seed}"
