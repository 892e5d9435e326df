"""Only type-checked, never run: what ``@outbox.listener`` takes, and that it changes no type.

A line that must be refused carries a ``type: ignore``, as in sessions.py.
"""

# pyright: reportUnnecessaryTypeIgnoreComment=true

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, assert_type

from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import Session

from sa_outbox import Event, Outbox, RetryPolicy, event_type
from sa_outbox.event.event import Json
from sa_outbox.relay.kafka import Kafka

outbox = Outbox()


@event_type("typing.order_shipped")
@dataclass(frozen=True)
class OrderShipped:
    order_id: int


@dataclass(frozen=True)
class OrderReturned:
    order_id: int


@outbox.listener("with a session", on=OrderShipped)
async def with_a_session(event: Event[OrderShipped], session: AsyncSession) -> None:
    assert_type(event, Event[OrderShipped])
    assert_type(event.payload, OrderShipped)
    assert_type(event.payload.order_id, int)
    assert_type(session, AsyncSession)

    str(event.payload.order)  # type: ignore[attr-defined]


@outbox.listener("untyped", on="order.*")
async def untyped(event: Event[Json]) -> None:
    assert_type(event.payload, Json)


@outbox.listener("bare", on="order.*")
async def bare(event: Event) -> None:
    """``Event`` alone is ``Event[Any]``, and no checker asks for more."""
    assert_type(event, Event[Any])
    assert_type(event.payload, Any)
    event.payload["order_id"]


@outbox.listener("bare batches", on="order.*")
async def bare_batches(events: Sequence[Event]) -> None:
    assert_type(events[0].payload, Any)


@outbox.listener("either", on=[OrderShipped, "order.*"])
async def either(event: Event[OrderShipped | dict[str, object]]) -> None:
    assert_type(event.payload, OrderShipped | dict[str, object])


@outbox.listener("batches")
async def batches(events: Sequence[Event[OrderShipped]]) -> int:
    assert_type(events[0].payload, OrderShipped)
    return len(events)


@outbox.listener("sync", on=["order.*", OrderShipped], order="total", timeout=None)
def in_a_thread(event: Event[OrderShipped], session: Session) -> str:
    assert_type(session, Session)
    return ""


class Service:
    async def handle(self, event: Event[OrderShipped]) -> None: ...

    def __call__(self, event: Event[OrderShipped]) -> None: ...


async def the_function_keeps_its_type(
    event: Event[OrderShipped],
    other: Event[OrderReturned],
    session: AsyncSession,
    sync_session: Session,
) -> None:
    """So that a handler can be called in a test, like any function."""
    handling: Coroutine[Any, Any, None] = with_a_session(event, session)
    await handling
    assert_type(await batches([event]), int)
    assert_type(in_a_thread(event, session=sync_session), str)

    await with_a_session(event)  # type: ignore[call-arg]
    await with_a_session(other, session)  # type: ignore[arg-type]
    await with_a_session(event, sync_session)  # type: ignore[arg-type]
    await batches(event)  # type: ignore[arg-type]
    in_a_thread(event, db=sync_session)  # type: ignore[call-arg]


def other_callables(service: Service, function: Callable[[Event[Any]], None]) -> None:
    assert_type(outbox.listener("object", on="x")(service), Service)
    assert_type(outbox.listener("function", on="x")(function), Callable[[Event[Any]], None])
    outbox.listener("method", on="x")(service.handle)

    outbox.listener("none", on="x")(None)  # type: ignore[type-var]
    outbox.listener("text", on="x")("handler")  # type: ignore[type-var]


def options() -> None:
    outbox.listener(
        "all of them",
        on=("order.placed", OrderShipped),
        order="key",
        concurrency=5,
        retry=RetryPolicy(attempts=3),
        timeout=timedelta(seconds=5),
        batch_size=10,
        start=datetime.now(UTC),
        gap_wait=None,
        external=True,
    )
    outbox.listener("from the beginning", start="beginning")
    outbox.listener("from now on", start="now")
    outbox.listener("from an id", start=5)

    outbox.listener()  # type: ignore[call-arg]
    outbox.listener(5)  # type: ignore[arg-type]
    outbox.listener("x", "order.placed")  # type: ignore[call-arg]
    outbox.listener("x", on=5)  # type: ignore[arg-type]
    outbox.listener("x", on=[5])  # type: ignore[list-item]
    outbox.listener("x", order="random")  # type: ignore[arg-type]
    outbox.listener("x", concurrency="5")  # type: ignore[arg-type]
    outbox.listener("x", retry=5)  # type: ignore[arg-type]
    outbox.listener("x", timeout=5)  # type: ignore[arg-type]
    outbox.listener("x", gap_wait=5)  # type: ignore[arg-type]
    outbox.listener("x", timeout=...)  # type: ignore[arg-type]
    outbox.listener("x", handler=print)  # type: ignore[call-arg]
    outbox.listener("x", start="end")  # type: ignore[arg-type]
    outbox.listener("x", concurency=5)  # type: ignore[call-arg]


def options_of_a_relay(relay: Kafka) -> None:
    outbox.relay(
        "all of them",
        relay,
        on=("order.placed", OrderShipped),
        to="orders",
        order="total",
        concurrency=1,
        partitions=1,
        retry=RetryPolicy(attempts=3),
        timeout=timedelta(seconds=5),
        batch_size=10,
        start="now",
    )

    outbox.relay("x", relay, to="orders")  # type: ignore[call-arg]
    outbox.relay("x", relay, on="a", order="random")  # type: ignore[arg-type]
    outbox.relay("x", relay, on="a", timeout=None)  # type: ignore[arg-type]
    outbox.relay("x", relay, on="a", gap_wait=None)  # type: ignore[call-arg]
    outbox.relay("x", relay, on="a", batchsize=5)  # type: ignore[call-arg]


def declared() -> None:
    assert_type(outbox.listeners["sync"].on, tuple[str, ...])
    assert_type([each.name for each in outbox.listeners], list[str])

    outbox.listeners["sync"].batch_size = 5  # type: ignore[misc]


@outbox.lifespan
async def clients() -> AsyncIterator[None]:
    yield


@outbox.lifespan
@asynccontextmanager
async def pool() -> AsyncIterator[int]:
    yield 1


assert_type(clients(), AsyncIterator[None])


@outbox.lifespan  # type: ignore[type-var]
def sync_clients() -> Iterator[None]:
    yield


@outbox.lifespan  # type: ignore[type-var]
async def a_value_that_nobody_gets() -> AsyncIterator[int]:
    yield 1


@outbox.lifespan  # type: ignore[type-var]
async def with_an_argument(app: object) -> AsyncIterator[None]:
    yield
