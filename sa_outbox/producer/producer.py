"""The side of an outbox that adds events: factories, ``install``, ``add``, ``flush``."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar, overload

from sqlalchemy.ext.asyncio import AsyncSession, async_scoped_session, async_sessionmaker
from sqlalchemy.orm import sessionmaker

from ..database.tables import tables
from ..observe import Observers
from .bulk import watch_bulk_methods
from .hooks import Hooks
from .install import register_owner, session_class, sync_session
from .notifier import notifier
from .pending import make_pending
from .session import AsyncOutboxSession, OutboxSession
from .write import Writer

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from typing import Unpack

    from sqlalchemy.engine import Connection, Engine
    from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine
    from sqlalchemy.orm import Session, scoped_session

    from ..database.tables import Tables
    from ..event.event import Deferred, Event, EventOptions, Json
    from ..policy.admission import Admission
    from ..settings import Limits, Settings
    from .install import AnySession
    from .pending import Pending

T = TypeVar("T")


class Producer:
    """Writes events in the transaction of the session they are added to."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.limits: Limits = settings.limits
        self.tenant_setting: str | None = settings.tenant_setting
        self.admission: Admission | None = settings.admission
        self.tables: Tables = tables(settings.names)
        self.observers: Observers = Observers()
        """Called after each commit with events, with ``EventsAdded``."""
        writer = Writer(self.tables, settings, self.observers)
        self._hooks = Hooks(self, writer, settings, self._wake(), self.observers)
        self.add_pending: Callable[[Session, Pending], None] = self._hooks.add
        self.has_pending: Callable[[Session], bool] = self._hooks.has_pending
        self.write_pending: Callable[[Session], None] = self._hooks.write
        self.is_installed_on: Callable[[type[Session]], bool] = self._hooks.are_on

    def sessionmaker(
        self, bind: Engine | Connection | None = None, **options: Any
    ) -> sessionmaker[OutboxSession]:
        """A ``sqlalchemy.orm.sessionmaker`` whose sessions have ``add_event``."""
        options.setdefault("class_", OutboxSession)
        maker: sessionmaker[OutboxSession] = sessionmaker(bind, **options)
        maker.class_.outbox = self  # on the class that the maker created for itself
        return self.install(maker)

    def async_sessionmaker(
        self, bind: AsyncEngine | AsyncConnection | None = None, **options: Any
    ) -> async_sessionmaker[AsyncOutboxSession]:
        """An ``async_sessionmaker`` whose sessions have ``add_event``."""
        options.setdefault("class_", AsyncOutboxSession)
        maker: async_sessionmaker[AsyncOutboxSession] = async_sessionmaker(bind, **options)
        self.install(maker)
        maker.kw["sync_session_class"].outbox = self
        return maker

    def install(self, target: T) -> T:
        """Give the sessions of an existing factory or session class the hooks; return *target*.

        Accepts a ``sessionmaker``, an ``async_sessionmaker``, a scoped session of either, or a
        session class (``sqlalchemy.orm.Session`` itself: every session in the process). Calling it
        twice has no further effect. Add events with ``outbox.add(session, ...)``.
        """
        cls = session_class(target)
        self.hook(cls)
        register_owner(cls, self)
        if issubclass(cls, OutboxSession) and cls.outbox is None:
            cls.outbox = self
        return target

    def hook(self, cls: type[Session]) -> None:
        """Listen to the sessions of *cls*. Each session determines which outbox it belongs to."""
        if not self._hooks.are_on(cls):
            self._hooks.listen_on(cls)
            watch_bulk_methods(cls)

    @overload
    def add(
        self,
        session: AnySession,
        event: str,
        /,
        payload: Json | Deferred[Json] = None,
        **options: Unpack[EventOptions],
    ) -> Event[Json]: ...

    @overload
    def add(
        self,
        session: AnySession,
        event: type[T],
        /,
        payload: T | Deferred[T],
        **options: Unpack[EventOptions],
    ) -> Event[T]: ...

    @overload
    def add(
        self, session: AnySession, event: T, /, **options: Unpack[EventOptions]
    ) -> Event[T]: ...

    def add(
        self,
        session: AnySession,
        event: object,
        /,
        payload: object = None,
        **options: Unpack[EventOptions],
    ) -> Event[Any]:
        """``session.add_event`` for a session that only has the hooks."""
        pending = make_pending(event, payload, self.limits, **options)
        self.add_pending(sync_session(session), pending)
        return pending.event

    @overload
    def flush(self, session: AsyncSession | async_scoped_session[Any], /) -> Awaitable[None]: ...

    @overload
    def flush(self, session: Session | scoped_session[Any], /) -> None: ...

    def flush(self, session: AnySession, /) -> Awaitable[None] | None:
        """Flush, and write pending events even when there is no object to flush.

        A plain session's own ``flush()`` does nothing when no object changed. Await it for an async
        session.
        """
        if isinstance(session, async_scoped_session):
            session = session()
        if isinstance(session, AsyncSession):
            return session.run_sync(self._flush)
        self._flush(sync_session(session))
        return None

    def pending(self, session: AnySession) -> tuple[Event[Any], ...]:
        """The events waiting for the session's next flush or commit, in order."""
        ledger = self._hooks.ledger_of(sync_session(session))
        if ledger is None:
            return ()
        waiting = sorted(ledger.pending, key=lambda each: each.order)
        return tuple(each.event for each in waiting if not each.dropped)

    def _flush(self, session: Session) -> None:
        session.flush()
        self._hooks.write(session)

    def _wake(self) -> Callable[[Engine], None] | None:
        """What wakes the consumers, after a commit with events; None: they poll."""
        settings = self.settings
        if not settings.notifies:
            return None
        return partial(notifier.poke, channel=settings.names.notify_channel)
