"""Only type-checked, never run: what the factories return and what add_event gives back.

A line that must be refused carries a ``type: ignore``, which both checkers know and report when it
is not needed: the check fails when an error vanishes.
"""

# pyright: reportUnnecessaryTypeIgnoreComment=true

from __future__ import annotations

from collections.abc import Awaitable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any, assert_type
from uuid import UUID

from sqlalchemy import Engine
from sqlalchemy.ext.asyncio import (
    AsyncEngine,
    AsyncSession,
    async_scoped_session,
    async_sessionmaker,
)
from sqlalchemy.orm import (
    DeclarativeBase,
    Mapped,
    Session,
    mapped_column,
    scoped_session,
    sessionmaker,
)

from sa_outbox import (
    AsyncOutboxSession,
    Event,
    Outbox,
    OutboxSession,
    RecordsEvents,
    event_type,
    upcaster,
)
from sa_outbox.event.event import Json


@event_type("typing.order_placed", version=2)
@dataclass(frozen=True)
class OrderPlaced:
    order_id: int


@dataclass(frozen=True)
class OrderPaid:
    order_id: int


class Base(DeclarativeBase):
    pass


class Order(RecordsEvents, Base):
    __tablename__ = "orders"
    id: Mapped[int] = mapped_column(primary_key=True)


@upcaster("typing.order_placed", since=1)
def numbered(payload: dict[str, Json]) -> Json:
    return {"order_id": payload["id"]}


def factories(outbox: Outbox, engine: Engine, async_engine: AsyncEngine) -> None:
    make = outbox.sessionmaker(engine, expire_on_commit=False)
    assert_type(make, sessionmaker[OutboxSession])
    assert_type(make(), OutboxSession)
    assert_type(make().add_event("x"), Event[Json])
    with make.begin() as session:
        assert_type(session, OutboxSession)
        assert_type(session.add_event("x"), Event[Json])
    with make() as session:
        assert_type(session.add_event("x"), Event[Json])
    assert_type(scoped_session(make)().add_event("x"), Event[Json])

    make_async = outbox.async_sessionmaker(async_engine)
    assert_type(make_async, async_sessionmaker[AsyncOutboxSession])
    assert_type(make_async(), AsyncOutboxSession)
    assert_type(make_async().add_event("x"), Event[Json])
    scoped = async_scoped_session(make_async, scopefunc=lambda: 1)
    assert_type(scoped().add_event("x"), Event[Json])


async def async_factories(make: async_sessionmaker[AsyncOutboxSession]) -> None:
    async with make.begin() as session:
        assert_type(session, AsyncOutboxSession)
        assert_type(session.add_event(OrderPlaced(1)), Event[OrderPlaced])
    async with make() as session:
        assert_type(session.add_event("x"), Event[Json])
        assert_type(session.sync_session, OutboxSession)


def names_and_payloads(session: OutboxSession) -> None:
    assert_type(session.add_event("x"), Event[Json])
    assert_type(session.add_event("x", None), Event[Json])
    assert_type(session.add_event("x", {"a": [1, 2.5, "b", None, True]}), Event[Json])
    assert_type(session.add_event("x", [UUID(int=1), Decimal(1), timedelta(1)]), Event[Json])
    assert_type(session.add_event("x", lambda: {"a": 1}), Event[Json])
    ids: list[int] = [1]
    by_name: dict[str, int] = {"a": 1}
    session.add_event("x", ids)
    session.add_event("x", by_name)
    session.add_event("x", {"ids": ids, "by_name": by_name})

    session.add_event("x", {1, 2})  # type: ignore[call-overload]
    session.add_event("x", object())  # type: ignore[call-overload]
    session.add_event("x", {1: 2})  # type: ignore[dict-item]
    session.add_event("x", lambda: {1, 2})  # type: ignore[arg-type, return-value]


def typed_events(session: OutboxSession) -> None:
    assert_type(session.add_event(OrderPlaced(1)), Event[OrderPlaced])
    assert_type(session.add_event(OrderPlaced, OrderPlaced(1)), Event[OrderPlaced])
    assert_type(session.add_event(OrderPlaced, lambda: OrderPlaced(1)), Event[OrderPlaced])
    assert_type(session.add_event(OrderPlaced(1)).payload, OrderPlaced)
    assert_type(session.add_event(OrderPlaced(1)).payload.order_id, int)

    session.add_event(OrderPlaced(1), {"a": 1})  # type: ignore[call-overload]


def options(session: OutboxSession, order: Order) -> None:
    session.add_event(
        "x",
        {"a": 1},
        key="k",
        tenant="t",
        headers={"a": "b"},
        run_at=datetime.now(UTC),
        priority=1,
        idempotency_key="i",
        on_duplicate="raise",
    )
    session.add_event("x", key=lambda: str(order.id), delay=timedelta(1))
    session.add_event("x", key=None, tenant=None, headers=None, run_at=None, delay=None)
    session.add_event("x", payload={})

    session.add_event("x", key=1)  # type: ignore[call-overload]
    session.add_event("x", key=lambda: 1)  # type: ignore[arg-type, return-value]
    session.add_event("x", tenant=1)  # type: ignore[call-overload]
    session.add_event("x", headers={"a": 1})  # type: ignore[dict-item]
    session.add_event("x", delay=5)  # type: ignore[call-overload]
    session.add_event("x", run_at="now")  # type: ignore[call-overload]
    session.add_event("x", priority="high")  # type: ignore[call-overload]
    session.add_event("x", prioriti=1)  # type: ignore[call-overload]
    session.add_event("x", on_duplicate="ignore")  # type: ignore[call-overload]
    session.add_event()  # type: ignore[call-overload]


def recorded(order: Order) -> None:
    assert_type(order.record_event("x", {"a": 1}), Event[Json])
    assert_type(order.record_event(OrderPlaced(1)), Event[OrderPlaced])
    assert_type(order.record_event(OrderPlaced, lambda: OrderPlaced(order.id)), Event[OrderPlaced])
    order.record_event("x", key=lambda: str(order.id))

    order.record_event("x", {1, 2})  # type: ignore[call-overload]
    order.record_event("x", object())  # type: ignore[call-overload]
    order.record_event("x", key=1)  # type: ignore[call-overload]
    order.record_event("x", prioriti=1)  # type: ignore[call-overload]


def takes_any(event: Event[object]) -> None:
    assert_type(event.payload, object)


def events_do_not_change(event: Event[OrderPlaced]) -> None:
    takes_any(event)
    assert_type(event.event_id, UUID)
    assert_type(event.duplicate_of, UUID | None)
    assert_type(event.key, str | None)

    event.payload = OrderPlaced(2)  # type: ignore[misc]
    event.headers["a"] = "b"  # type: ignore[index]


def installed(
    outbox: Outbox,
    maker: sessionmaker[Session],
    async_maker: async_sessionmaker[AsyncSession],
    scoped: scoped_session[Session],
) -> None:
    assert_type(outbox.install(maker), sessionmaker[Session])
    assert_type(outbox.install(async_maker), async_sessionmaker[AsyncSession])
    assert_type(outbox.install(scoped), scoped_session[Session])
    assert_type(outbox.install(Session), type[Session])
    assert_type(outbox.install(AsyncSession), type[AsyncSession])

    maker().add_event("x")  # type: ignore[attr-defined]


async def without_the_method(
    outbox: Outbox,
    session: Session,
    async_session: AsyncSession,
    scoped: scoped_session[Session],
    async_scoped: async_scoped_session[Any],
) -> None:
    assert_type(outbox.add(session, "x", {"a": 1}), Event[Json])
    assert_type(outbox.add(async_session, OrderPlaced(1)), Event[OrderPlaced])
    assert_type(outbox.add(scoped, OrderPlaced, lambda: OrderPlaced(1)), Event[OrderPlaced])
    assert_type(outbox.add(async_scoped, "x", key="k"), Event[Json])

    outbox.flush(session)
    outbox.flush(scoped)
    await outbox.flush(async_session)
    await outbox.flush(async_scoped)
    await assert_type(outbox.flush(async_session), Awaitable[None])

    outbox.add(session, "x", {1, 2})  # type: ignore[call-overload]
    outbox.add(session, "x", key=1)  # type: ignore[call-overload]
    outbox.add(session, "x", prioriti=1)  # type: ignore[call-overload]
    outbox.add("x")  # type: ignore[call-overload]
    outbox.flush("x")  # type: ignore[call-overload]


async def inbox(
    outbox: Outbox, session: Session, async_session: AsyncSession, engine: Engine
) -> None:
    with outbox.inbox.once(session, "m", consumer="c") as first:
        assert_type(first, bool)
    async with outbox.inbox.once(async_session, UUID(int=1), consumer="c") as first:
        assert_type(first, bool)

    outbox.inbox.once(session, "m")  # type: ignore[call-overload]
    outbox.inbox.once(engine, "m", consumer="c")  # type: ignore[call-overload]
    outbox.inbox.once(session, 7, consumer="c")  # type: ignore[call-overload]
    with outbox.inbox.once(async_session, "m", consumer="c"):  # type: ignore[attr-defined]
        pass


def settings() -> None:
    Outbox(schema="app", prefix="events", notify="off", idempotency_key_lifetime=timedelta(1))

    Outbox(notify="maybe")  # type: ignore[arg-type]
    Outbox("app")  # type: ignore[call-arg]
    Outbox(schemas="app")  # type: ignore[call-arg]
