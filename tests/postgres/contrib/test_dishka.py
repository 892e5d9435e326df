"""What the providers give, in requests and in handlers."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from dishka import Provider, Scope, make_async_container, make_container
from sqlalchemy import Engine
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession, create_async_engine
from sqlalchemy.orm import Session

from sa_outbox import AsyncOutboxSession, Event, Outbox, OutboxSession, Reject
from sa_outbox.consumer import Consumer
from sa_outbox.contrib.dishka import HandlerProvider, RequestProvider, of_event
from sa_outbox.errors import ConfigError

pytestmark = pytest.mark.anyio


class Invoices:
    """A service of the program: it knows SQLAlchemy's session only."""

    def __init__(self, session: AsyncSession, outbox: Outbox) -> None:
        self.session = session
        self.outbox = outbox

    def write(self) -> None:
        self.outbox.add(self.session, "invoice.written")


class SyncInvoices:
    def __init__(self, session: Session, event: Event) -> None:
        self.session = session
        self.event = event


@pytest.fixture
async def async_engine(engine: Engine) -> AsyncIterator[AsyncEngine]:
    made = create_async_engine(engine.url.set(drivername="postgresql+asyncpg"))
    yield made
    await made.dispose()


def services() -> Provider:
    provider = Provider(scope=Scope.REQUEST)
    provider.provide(Invoices)
    return provider


async def test_a_request_has_one_session_by_either_name(async_engine: AsyncEngine) -> None:
    outbox = Outbox(notify="off")
    provider = RequestProvider(outbox, outbox.async_sessionmaker(async_engine))
    container = make_async_container(provider, services())

    async with container() as scope, container() as other:
        session = await scope.get(AsyncOutboxSession)
        assert await scope.get(AsyncSession) is session
        assert (await scope.get(Invoices)).session is session
        assert await other.get(AsyncSession) is not session
    assert await container.get(Outbox) is outbox
    await container.close()


def test_a_sync_request_has_one_session_by_either_name(engine: Engine) -> None:
    outbox = Outbox(notify="off")
    container = make_container(RequestProvider(outbox, outbox.sessionmaker(engine)))

    with container() as scope:
        assert scope.get(OutboxSession) is scope.get(Session)
    container.close()


async def test_what_nobody_commits_is_rolled_back(
    async_engine: AsyncEngine, committed: Callable[[], int]
) -> None:
    outbox = Outbox(notify="off")
    provider = RequestProvider(outbox, outbox.async_sessionmaker(async_engine))
    container = make_async_container(provider)

    async with container() as scope:
        (await scope.get(AsyncOutboxSession)).add_event("order.placed")
    await container.close()

    assert committed() == 0


async def test_a_service_takes_part_in_the_transaction_of_the_handler(
    async_engine: AsyncEngine, engine: Engine, committed: Callable[[], int]
) -> None:
    outbox = Outbox(notify="off")
    provider = HandlerProvider()
    provider.provide(lambda: outbox, provides=Outbox, scope=Scope.APP)
    container = make_async_container(provider, services())
    same: list[bool] = []

    @outbox.listener("billing", on="order.placed", start="beginning")
    async def write_invoice(event: Event, session: AsyncOutboxSession) -> None:
        async with of_event(container, event, session) as scope:
            invoices = await scope.get(Invoices)
            same.append(invoices.session is session and await scope.get(Event) is event)
            invoices.write()
        if event.payload["n"] == 13:
            raise Reject("unlucky")

    with outbox.sessionmaker(engine).begin() as session:
        for number in (1, 13):
            session.add_event("order.placed", {"n": number})
    await Consumer(outbox, async_engine).drain()
    await container.close()

    assert same == [True, True]
    assert committed() == 3  # two orders, one invoice


async def test_a_sync_handler_has_a_container_too(
    async_engine: AsyncEngine, engine: Engine
) -> None:
    outbox = Outbox(notify="off")
    provider = HandlerProvider()
    provider.provide(SyncInvoices, scope=Scope.REQUEST)
    container = make_container(provider)
    same: list[bool] = []

    @outbox.listener("billing", on="*", start="beginning")
    def write_invoice(event: Event, session: OutboxSession) -> None:
        with of_event(container, event, session) as scope:
            invoices = scope.get(SyncInvoices)
            same.append(invoices.session is session and invoices.event is event)

    with outbox.sessionmaker(engine).begin() as session:
        session.add_event("order.placed")
    await Consumer(outbox, async_engine).drain()
    container.close()

    assert same == [True]


def test_what_is_no_factory_is_refused(engine: Engine) -> None:
    wrong: Any = engine

    with pytest.raises(ConfigError, match=r"outbox\.sessionmaker\(engine\) returns, not Engine"):
        RequestProvider(Outbox(), wrong)
