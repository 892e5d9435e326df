"""Sessions with ``add_event``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, TypeVar, overload

from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import Session

from ..errors import NotInstalled
from .pending import make_pending

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from datetime import datetime, timedelta
    from typing import Unpack

    from ..database.tables import Tables
    from ..event.event import Deferred, Event, EventOptions, Json, OnDuplicate
    from ..settings import Limits
    from .pending import Pending

T = TypeVar("T")


class TakesEvents(Protocol):
    """What a session needs from its outbox."""

    @property
    def limits(self) -> Limits: ...
    @property
    def tenant_setting(self) -> str | None: ...
    def hook(self, cls: type[Session]) -> None: ...
    @property
    def add_pending(self) -> Callable[[Session, Pending], None]: ...
    @property
    def has_pending(self) -> Callable[[Session], bool]: ...
    @property
    def write_pending(self) -> Callable[[Session], None]: ...


class _AddsEvents:
    """``add_event``, shared by the sync and the async session: it does no I/O."""

    def _events_session(self) -> OutboxSession:
        raise NotImplementedError

    @overload
    def add_event(
        self,
        event: str,
        /,
        payload: Json | Deferred[Json] = None,
        **options: Unpack[EventOptions],
    ) -> Event[Json]: ...

    @overload
    def add_event(
        self,
        event: type[T],
        /,
        payload: T | Deferred[T],
        **options: Unpack[EventOptions],
    ) -> Event[T]: ...

    @overload
    def add_event(self, event: T, /, **options: Unpack[EventOptions]) -> Event[T]: ...

    def add_event(
        self,
        event: object,
        /,
        payload: object = None,
        *,
        key: str | Callable[[], str | None] | None = None,
        tenant: str | None = None,
        headers: Mapping[str, str] | None = None,
        run_at: datetime | None = None,
        delay: timedelta | None = None,
        priority: int = 0,
        idempotency_key: str | None = None,
        on_duplicate: OnDuplicate = "skip",
    ) -> Event[Any]:
        """Add an event to this session's transaction; it is written by the next flush or commit.

        *event* is a name with a *payload*, or an object of a registered class, or such a class
        with a callable that makes the object. The payload is serialised now; only a callable is
        evaluated later, after the flush has assigned primary keys. *key* may be a callable too.

        Events with the same *key* keep their order. *run_at* or *delay* hold the event back by
        the database's clock. A second event with the same *idempotency_key* (for its tenant and
        type) is not written; see ``Event.duplicate_of``. With ``on_duplicate="raise"`` the flush
        raises :class:`DuplicateEvent` instead.

        Raises :class:`InvalidEvent` here for what can't be stored; nothing is added then.
        """
        session = self._events_session()
        outbox = session.outbox
        if outbox is None:
            raise NotInstalled(
                f"{type(self).__qualname__} was made without outbox=: use "
                "outbox.sessionmaker(engine) or outbox.async_sessionmaker(engine)"
            )
        pending = make_pending(
            event,
            payload,
            outbox.limits,
            key=key,
            tenant=tenant,
            headers=headers,
            run_at=run_at,
            delay=delay,
            priority=priority,
            idempotency_key=idempotency_key,
            on_duplicate=on_duplicate,
        )
        outbox.add_pending(session, pending)
        return pending.event


class OutboxSession(_AddsEvents, Session):
    """A ``Session`` with ``add_event``. Made by ``outbox.sessionmaker(engine)``."""

    outbox: TakesEvents | None = None
    outbox_tables: Tables | None = None
    """Where its events go; None: wherever the outbox's names resolve."""
    _autoflushing = False

    def __init__(self, *args: Any, outbox: TakesEvents | None = None, **options: Any) -> None:
        super().__init__(*args, **options)
        if outbox is not None:
            self.outbox = outbox
            outbox.hook(type(self))

    def flush(self, objects: Sequence[Any] | None = None) -> None:
        """Flush, and write pending events even when there is no object to flush.

        An autoflush does not: a program that reads between two events would pay one statement each.
        """
        if objects is None:
            super().flush()
        else:
            super().flush(objects)
        outbox = self.outbox
        if outbox is not None and not self._autoflushing:
            outbox.write_pending(self)

    def _autoflush(self) -> None:
        # Not public in SQLAlchemy. If it were removed, events would only be written earlier.
        self._autoflushing = True
        try:
            super()._autoflush()
        finally:
            self._autoflushing = False

    def _events_session(self) -> OutboxSession:
        return self


class AsyncOutboxSession(_AddsEvents, AsyncSession):
    """An ``AsyncSession`` with ``add_event``. Made by ``outbox.async_sessionmaker(engine)``."""

    sync_session_class: type[Session] = OutboxSession
    sync_session: OutboxSession  # pyright: ignore[reportIncompatibleVariableOverride]  # as made by sync_session_class

    def _events_session(self) -> OutboxSession:
        return self.sync_session
