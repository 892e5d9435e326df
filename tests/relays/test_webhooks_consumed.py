"""Webhooks through a consumer: what an endpoint does is its own affair."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from datetime import timedelta
from typing import Any

import anyio
import pytest
from sqlalchemy import URL, Engine, create_engine, text
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from sa_outbox import Outbox, RetryPolicy
from sa_outbox.consumer import Consumer, ConsumerSettings
from sa_outbox.errors import ConfigError
from sa_outbox.observe import AttemptFailed, DeadLettered, RelayAway
from sa_outbox.relay.http import RETRY, Webhook, breaker
from sa_outbox.webhooks import new_secret, verify
from tests.support import PATIENCE, comes_true
from tests.support.endpoint import OK, Endpoint, Received, answer, never
from tests.support.recorder import Recorder

pytestmark = pytest.mark.anyio

SECRET = new_secret()
SOON = RetryPolicy(attempts=4, base=timedelta(milliseconds=1), maximum=timedelta(milliseconds=5))


def hook(**options: Any) -> Webhook:
    given = {"secrets": SECRET, "allow": ["127.0.0.0/8"], "allow_http": True, "ports": "any"}
    return Webhook(**{**given, **options})


@pytest.fixture
def engine(outbox_url: URL) -> Iterator[Engine]:
    made = create_engine(outbox_url.set(drivername="postgresql+psycopg"))
    yield made
    made.dispose()


@pytest.fixture
async def async_engine(outbox_url: URL) -> AsyncIterator[AsyncEngine]:
    made = create_async_engine(outbox_url.set(drivername="postgresql+asyncpg"))
    yield made
    await made.dispose()


@pytest.fixture
def outbox() -> Outbox:
    return Outbox(notify="off")


def add(outbox: Outbox, engine: Engine, *numbers: int, key: str | None = None) -> None:
    with outbox.sessionmaker(engine).begin() as session:
        for number in numbers:
            session.add_event("order.placed", {"n": number}, key=key)


def make_consumer(outbox: Outbox, engine: AsyncEngine) -> tuple[Consumer, Recorder]:
    recorder = Recorder()
    settings = ConsumerSettings(poll_interval_without_notify=timedelta(milliseconds=50))
    return Consumer(outbox, engine, settings=settings, observers=[recorder]), recorder


async def test_a_failure_is_sent_again_before_what_comes_after_it(
    outbox: Outbox, engine: Engine, async_engine: AsyncEngine
) -> None:
    async with Endpoint(answers=[answer(500), answer(502), OK]).running() as endpoint:
        outbox.relay("acme", hook(), on="*", to=endpoint.url(), retry=SOON)
        add(outbox, engine, 1, 2, 3, key="a")
        consumer, recorder = make_consumer(outbox, async_engine)

        await consumer.drain()

    bodies = [each.body for each in endpoint.received]
    # As it is stored, digit for digit.
    assert bodies == [b'{"n": 1}'] * 3 + [b'{"n": 2}', b'{"n": 3}']
    assert len({each.headers["webhook-id"] for each in endpoint.received[:3]}) == 1
    assert len({each.headers["webhook-id"] for each in endpoint.received}) == 3
    assert [each.attempt for each in recorder.of(AttemptFailed)] == [1, 2]
    for each in endpoint.received:
        assert verify(each.body, each.headers, SECRET).body == each.body


async def test_what_it_will_never_take_is_a_dead_letter(
    outbox: Outbox, engine: Engine, async_engine: AsyncEngine
) -> None:
    said = answer(422, b'{"detail": "\x00 no \xff"}')
    async with Endpoint(answers=[OK, said, OK]).running() as endpoint:
        outbox.relay("acme", hook(), on="*", to=endpoint.url())
        add(outbox, engine, 1, 2, 3, key="a")
        consumer, recorder = make_consumer(outbox, async_engine)

        await consumer.drain()

    assert len(endpoint.received) == 3
    assert len(recorder.of(DeadLettered)) == 1
    with engine.connect() as connection:
        stored = connection.execute(text("SELECT errors::text FROM outbox_dead_letters")).scalar()
    assert "HTTP 422" in str(stored)


async def test_while_an_endpoint_is_down_few_attempts_are_counted(
    outbox: Outbox, engine: Engine, async_engine: AsyncEngine
) -> None:
    often = hook(probe_interval=timedelta(milliseconds=200))
    back = False

    async def behave(it: Endpoint, request: Received, writer: asyncio.StreamWriter) -> None:
        writer.write(OK if back else answer(503))

    patient = RetryPolicy(attempts=100, base=timedelta(milliseconds=10), jitter=False)
    async with Endpoint(behave).running() as endpoint:
        outbox.relay("acme", often, on="*", to=endpoint.url(), retry=patient, concurrency=4)
        for number in range(40):
            add(outbox, engine, number, key=str(number))
        consumer, recorder = make_consumer(outbox, async_engine)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(consumer.run)
            await comes_true(lambda: len(recorder.of(RelayAway)) > 20)
            before = len(recorder.of(AttemptFailed))
            back = True
            await comes_true(lambda: len({each.body for each in endpoint.received[before:]}) == 40)
            consumer.stop()

    assert breaker.FAILURES <= before < 20
    assert recorder.of(DeadLettered) == []


async def test_an_endpoint_that_is_away_is_not_left_alone_for_longer_than_until_its_next_probe(
    outbox: Outbox, engine: Engine, async_engine: AsyncEngine
) -> None:
    soon = timedelta(milliseconds=150)
    patient = replace(SOON, attempts=1000)
    async with Endpoint(answers=[]).running() as endpoint:
        nobody = endpoint.url()
    outbox.relay("acme", hook(probe_interval=soon), on="*", to=nobody, retry=patient)
    add(outbox, engine, *range(10))
    consumer, recorder = make_consumer(outbox, async_engine)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(consumer.run)
        await comes_true(lambda: len(recorder.of(RelayAway)) > 5)
        consumer.stop()

    pauses = [each.retry_in for each in recorder.of(RelayAway)]
    assert max(pauses) == soon.total_seconds()


@pytest.mark.parametrize(("seconds", "expected"), [(0.2, 0.2), (4.9, 4.9), (5, None), (30, None)])
def test_a_webhook_pauses_no_longer_than_until_its_next_probe_or_as_other_relays_do(
    outbox: Outbox, seconds: float, expected: float | None
) -> None:
    given = hook(probe_interval=timedelta(seconds=seconds))
    outbox.relay("acme", given, on="*", to="https://example.com/hooks")

    forwarding = outbox.listeners["acme"].forwarding

    assert forwarding is not None
    assert forwarding.max_pause == expected


@pytest.mark.long
async def test_an_endpoint_that_hangs_and_one_that_fails_hold_up_no_others(
    outbox: Outbox, engine: Engine, async_engine: AsyncEngine
) -> None:
    others, events = 50, 10
    served: Counter[str] = Counter()

    async def behave(it: Endpoint, request: Received, writer: asyncio.StreamWriter) -> None:
        path = request.line.split()[1]
        if path == "/hangs":
            await never(it, request, writer)
        if path != "/fails":
            served[path] += 1
        writer.write(answer(500) if path == "/fails" else OK)

    # Whoever waited for the one that hangs would wait for longer than the test has patience.
    slow = timedelta(seconds=3 * PATIENCE)
    async with Endpoint(behave).running() as endpoint:
        for name in ("hangs", "fails", *(f"e{number}" for number in range(others))):
            relay = hook(timeout=slow)
            outbox.relay(name, relay, on="*", to=endpoint.url(f"/{name}"), timeout=2 * slow)
        add(outbox, engine, *range(events))
        consumer, recorder = make_consumer(outbox, async_engine)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(consumer.run)
            await comes_true(lambda: sum(served.values()) >= others * events)
            tasks.cancel_scope.cancel()

    assert len(served) == others
    assert set(served.values()) == {events}, "each once"
    asked = Counter(each.line.split()[1] for each in endpoint.received)
    assert asked["/hangs"] == 1
    assert asked["/fails"] >= 1
    failed = {each.listener for each in recorder.of(AttemptFailed)}
    assert failed == {"fails"}


async def test_a_field_of_an_event_stays_in_its_place(
    outbox: Outbox, engine: Engine, async_engine: AsyncEngine
) -> None:
    async with Endpoint().running() as endpoint:
        outbox.relay("acme", hook(), on="*", to=endpoint.url("/of/{key}/x"))
        for key in ("../?a#b@c/d ", "..", "plain"):
            add(outbox, engine, 1, key=key)
        consumer, recorder = make_consumer(outbox, async_engine)

        await consumer.drain()

    assert sorted(each.line.split()[1] for each in endpoint.received) == [
        "/of/..%2F%3Fa%23b%40c%2Fd%20/x",
        "/of/plain/x",
    ]
    assert len(recorder.of(DeadLettered)) == 1


def test_it_is_patient_unless_it_is_told_otherwise(outbox: Outbox) -> None:
    outbox.relay("acme", hook(), on="*", to="https://acme.example/")
    outbox.relay("other", hook(), on="*", to="https://acme.example/", retry=SOON)

    assert outbox.listeners["acme"].retry == RETRY
    assert outbox.listeners["other"].retry == SOON


def test_a_relay_that_would_end_the_wait_first_is_refused(outbox: Outbox) -> None:
    """Each attempt would be one that nobody counts, and no breaker hears of."""
    relay = hook(timeout=timedelta(seconds=30))

    with pytest.raises(ConfigError, match="never count"):
        outbox.relay("acme", relay, on="*", to="https://acme.example/")

    outbox.relay("acme", relay, on="*", to="https://acme.example/", timeout=timedelta(seconds=31))
