"""Providers for Dishka: sessions for requests, and those of handlers."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import TYPE_CHECKING, Any, overload

from sqlalchemy.ext.asyncio import AsyncSession, async_sessionmaker
from sqlalchemy.orm import Session, sessionmaker

from ..errors import ConfigError
from ..event.event import Event
from ..outbox import Outbox
from ..producer.session import AsyncOutboxSession, OutboxSession

try:
    from dishka import AnyOf, Provider, Scope
except ModuleNotFoundError as _error:
    raise ConfigError(
        'sa_outbox.contrib.dishka needs Dishka: pip install "dishka>=1.6"'
    ) from _error

if TYPE_CHECKING:
    from contextlib import AbstractAsyncContextManager, AbstractContextManager

    from dishka import AsyncContainer, Container


class RequestProvider(Provider):
    """For the container of an application: ``Outbox``, and a session for each request.

    ::

        container = make_async_container(RequestProvider(outbox, Session), *your_providers)

    The session is an ``AsyncOutboxSession`` and an ``AsyncSession``, by which your services may ask
    for it: one object in a request. From a ``sessionmaker`` it is an ``OutboxSession`` and a
    ``Session``.

    It is closed with the request and never committed by this. Frameworks close the container when
    the response was sent, and have made a response of an exception by then: a commit there would
    come too late, and would keep what a failed request has done. So the function commits, with
    ``async with session.begin():``.
    """

    def __init__(
        self, outbox: Outbox, sessions: async_sessionmaker[Any] | sessionmaker[Any]
    ) -> None:
        super().__init__()
        self.provide(lambda: outbox, scope=Scope.APP, provides=Outbox)
        if isinstance(sessions, async_sessionmaker):
            provides = AnyOf[AsyncOutboxSession, AsyncSession]
            self.provide(_async_source(sessions), scope=Scope.REQUEST, provides=provides)
        elif isinstance(sessions, sessionmaker):
            self.provide(
                _source(sessions), scope=Scope.REQUEST, provides=AnyOf[OutboxSession, Session]
            )
        else:
            raise ConfigError(
                "RequestProvider takes what outbox.async_sessionmaker(engine) or "
                f"outbox.sessionmaker(engine) returns, not {type(sessions).__name__}"
            )


class HandlerProvider(Provider):
    """For the container of handlers: the event, and the session that the consumer commits.

    ::

        container = make_async_container(HandlerProvider(), *your_providers)

        @outbox.listener("billing", on="order.placed")
        async def write_invoice(event: Event, session: AsyncOutboxSession) -> None:
            async with of_event(container, event, session) as scope:
                await (await scope.get(Invoices)).write(event.payload["order_id"])

    The session has the types of :class:`RequestProvider`, so one service works in both places. It
    is the handler's own: what a service does with it is committed together with the cursor. With a
    session of its own, from ``RequestProvider``, it would do that again whenever an attempt is
    repeated.
    """

    def __init__(self) -> None:
        super().__init__(scope=Scope.REQUEST)
        self.from_context(provides=Event)
        for given, also in ((AsyncOutboxSession, AsyncSession), (OutboxSession, Session)):
            self.from_context(provides=given)
            self.alias(source=given, provides=also)


@overload
def of_event(
    container: AsyncContainer, event: Event[Any], session: AsyncSession
) -> AbstractAsyncContextManager[AsyncContainer]: ...


@overload
def of_event(
    container: Container, event: Event[Any], session: Session
) -> AbstractContextManager[Container]: ...


def of_event(
    container: AsyncContainer | Container, event: Event[Any], session: AsyncSession | Session
) -> Any:
    """The scope of one event, with what :class:`HandlerProvider` needs: the arguments of a handler.

    With ``async with`` from a container that ``make_async_container`` has made, else with ``with``.
    """
    given = AsyncOutboxSession if isinstance(session, AsyncSession) else OutboxSession
    return container({Event: event, given: session})


def _async_source(sessions: async_sessionmaker[Any]) -> Any:
    async def opened() -> AsyncIterator[AsyncOutboxSession]:
        async with sessions() as session:
            yield session

    return opened


def _source(sessions: sessionmaker[Any]) -> Any:
    def opened() -> Iterator[OutboxSession]:
        with sessions() as session:
            yield session

    return opened
