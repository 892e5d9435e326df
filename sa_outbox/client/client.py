"""What an outbox can be asked: to cancel an event, for its status, to wait for its outcome."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any, overload

from ..declare.declaration import Listeners
from ..producer.producer import Producer
from ..producer.write import tables_of
from .caller import run
from .cancellation import Cancelling
from .status import Statuses
from .wait import Waiting

if TYPE_CHECKING:
    from collections.abc import Awaitable
    from uuid import UUID

    from sqlalchemy.engine import Connection, Engine
    from sqlalchemy.ext.asyncio import AsyncEngine
    from sqlalchemy.orm import Session

    from ..settings import Settings
    from .caller import AsyncSessionOrConnection, SyncSessionOrConnection
    from .cancellation import Answer
    from .status import EventStatus, ListenerStatus


class Client(Producer):
    """A producer that is asked about its events: by the listeners that a program has declared."""

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self.listeners: Listeners = Listeners(settings)
        self._cancelling = Cancelling(self.tables, settings, self.listeners)
        self._status = Statuses(self.tables, settings, self.listeners)

    @overload
    def cancel(
        self,
        session: AsyncSessionOrConnection,
        event_id: UUID | str,
        *,
        reason: str | None = ...,
        listener: str | None = ...,
    ) -> Awaitable[dict[str, Answer]]: ...

    @overload
    def cancel(
        self,
        session: SyncSessionOrConnection,
        event_id: UUID | str,
        *,
        reason: str | None = ...,
        listener: str | None = ...,
    ) -> dict[str, Answer]: ...

    def cancel(
        self,
        session: SyncSessionOrConnection | AsyncSessionOrConnection,
        event_id: UUID | str,
        *,
        reason: str | None = None,
        listener: str | None = None,
    ) -> Any:
        """Cancel an event for the queues that listen to it, or for one *listener*.

        ::

            answers = await outbox.cancel(session, event_id, reason="the customer called")

        Omit ``await`` for a sync session or connection. Runs in the caller's transaction: if that
        rolls back, nothing was cancelled. What has not started never starts; a running handler is
        asked to stop. The answers are keyed by listener: ``"cancelled"``, ``"requested"``,
        ``"done"``, ``"dead"``, ``"ordered"`` or ``"unknown"``; docs/scheduling.md explains them.

        Raises :class:`EventNotFound`, and :class:`NotAtomic` in AUTOCOMMIT.
        """

        def work(place: Session | Connection) -> dict[str, Answer]:
            tables, cancelling = tables_of(place, self.tables), self._cancelling
            if tables is not self.tables:
                cancelling = Cancelling(tables, self.settings, self.listeners)
            return cancelling.cancel(place, event_id, reason, listener)

        return run(session, "whose transaction cancels the event", work)

    @overload
    def status(
        self, session: AsyncSessionOrConnection, event_id: UUID | str, /
    ) -> Awaitable[EventStatus]: ...

    @overload
    def status(self, session: SyncSessionOrConnection, event_id: UUID | str, /) -> EventStatus: ...

    @overload
    def status(
        self,
        session: AsyncSessionOrConnection,
        /,
        *,
        idempotency_key: str,
        event_type: str | type,
        tenant: str | None = ...,
    ) -> Awaitable[EventStatus]: ...

    @overload
    def status(
        self,
        session: SyncSessionOrConnection,
        /,
        *,
        idempotency_key: str,
        event_type: str | type,
        tenant: str | None = ...,
    ) -> EventStatus: ...

    def status(
        self,
        session: SyncSessionOrConnection | AsyncSessionOrConnection,
        event_id: UUID | str | None = None,
        /,
        *,
        idempotency_key: str | None = None,
        event_type: str | type | None = None,
        tenant: str | None = None,
    ) -> Any:
        """The status of an event, for each listener that it concerns.

        ::

            status = await outbox.status(session, event_id)
            status = await outbox.status(
                session, idempotency_key="o-1", event_type="order.paid", tenant="acme"
            )
            status.listeners["exports"].state  # "pending", "running", "succeeded", ...

        Omit ``await`` for a sync session or connection. The answer is a single snapshot.
        docs/idempotency.md explains the states. Raises :class:`EventNotFound`.
        """
        wanted = self._status.wanted(event_id, idempotency_key, event_type, tenant)

        def work(place: Session | Connection) -> EventStatus:
            tables, statuses = tables_of(place, self.tables), self._status
            if tables is not self.tables:
                statuses = Statuses(tables, self.settings, self.listeners)
            return statuses.ask(place, wanted)

        return run(session, "by which to ask", work)

    @overload
    def wait(
        self,
        engine: AsyncEngine,
        event_id: UUID | str,
        *,
        listener: str,
        timeout: timedelta = ...,
    ) -> Awaitable[ListenerStatus]: ...

    @overload
    def wait(
        self, engine: Engine, event_id: UUID | str, *, listener: str, timeout: timedelta = ...
    ) -> ListenerStatus: ...

    def wait(
        self,
        engine: Engine | AsyncEngine,
        event_id: UUID | str,
        *,
        listener: str,
        timeout: timedelta = timedelta(seconds=30),
    ) -> Any:
        """Wait until *listener* has handled an event that is committed; return its status.

        ::

            status = await outbox.wait(engine, event_id, listener="exports")
            status.state  # "succeeded", "dead" or "cancelled"

        Omit ``await`` for a sync engine. It takes a connection for each look, two a second after
        the first few, and not the caller's transaction: in that, nothing new might be seen.

        Raises :class:`NotFinished` after *timeout*, also if the database does not answer (a sync
        engine: unless the pool or the driver wait longer), :class:`EventNotFound`, and
        :class:`ConfigError` for a listener that this program does not declare or that does not
        get the event. A webhook endpoint's listener is ``webhook:NAME``.
        """
        return Waiting(self._status, self.listeners, event_id, listener, timeout).on(engine)
