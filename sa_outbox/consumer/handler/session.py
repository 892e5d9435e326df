"""The session a handler gets: its transaction belongs to the consumer."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any, NoReturn

from sqlalchemy import Connection
from sqlalchemy.ext.asyncio import async_sessionmaker
from sqlalchemy.orm import sessionmaker

from sa_outbox.errors import HandlerMustNotCommit
from sa_outbox.producer.internals import guard_commit, unguard_commit
from sa_outbox.producer.session import AsyncOutboxSession, OutboxSession
from sa_outbox.sql.server.tenants import set_tenant
from sa_outbox.sql.server.transactions import PING, ping

from .thread_call import ThreadDoor

if TYPE_CHECKING:
    from collections.abc import Callable

    from sqlalchemy import Engine
    from sqlalchemy.orm import Session, SessionTransaction

# In a stricter one, the statement that moves the cursor would not see, or not be allowed to touch,
# a row that was renewed or moved since the handler began.
_ISOLATION = {"isolation_level": "READ COMMITTED"}


class HandlerSession(OutboxSession):
    """Refuses to end its transaction while the handler has it.

    Prevented, not only detected afterwards: once committed, the effect would exist without the
    cursor, and happen a second time.
    """

    guarded: bool = False
    violation: HandlerMustNotCommit | None = None
    """What the handler tried, even if it caught the error."""
    outbox_host: HandlerSession | None = None
    """The session that began the transaction and commits it, if that is another one: this one has
    a savepoint in it. The producer's hooks leave it to the host to notify."""
    after_handler: Callable[[], None] | None = None
    """Called in a sync handler's thread when it has returned, so that nobody has to go there
    again."""
    savepoints = 0
    """How many the handlers of this transaction have set."""
    _guest: HandlerSession | None = None
    bind: Engine | Connection | None
    lent: Connection
    """The connection that the handler has."""

    def commit(self) -> None:
        self._check("commit()")
        super().commit()

    def rollback(self) -> None:
        self._check("rollback()")
        super().rollback()

    def close(self) -> None:
        self._check("close()")
        super().close()

    def reset(self) -> None:
        self._check("reset()")
        super().reset()

    def invalidate(self) -> None:
        self._check("invalidate()")
        super().invalidate()

    def prepare(self) -> None:
        self._check("prepare()")
        super().prepare()

    def begin_nested(self) -> SessionTransaction:
        (self.outbox_host or self).savepoints += 1
        return super().begin_nested()

    def join(self, host: HandlerSession) -> None:
        """Work in the savepoint that *host*'s connection is in."""
        self.outbox_host, host._guest = host, self
        self.bind = host.lent

    @property
    def tenant_setting(self) -> str | None:
        return None if self.outbox is None else self.outbox.tenant_setting

    def connect(self, argument: Any, asks: bool = False) -> None:  # noqa: FBT001, FBT002 - internal
        """Begin the transaction in which *argument*, an event or a batch, is handled. *asks*: with
        a statement, so that the connection is known to be alive.

        A batch may contain several tenants: for those, the setting is refused at declaration.
        """
        setting = self.tenant_setting
        is_joined = isinstance(self.bind, Connection)  # in a transaction that has begun
        connection = self.connection(execution_options=None if is_joined else _ISOLATION)
        self._connected = connection
        if asks:
            connection.execute(ping())
        if setting is not None:
            connection.execute(set_tenant(setting), {"tenant": argument.tenant or ""})

    def lend(self, *, with_door: bool) -> None:
        """Guard the transaction that was begun. *with_door*: its handler is called in a thread."""
        self._root = self.get_transaction()
        self.lent = self._connected
        self._begun = self.lent.get_transaction()
        if self.outbox_host is None:
            # Session.commit is refused below; the connection's own would bypass it.
            guard_commit(self.lent, self.refuse_commit)
        if with_door:
            self._door = ThreadDoor()
        self.guarded = True

    def take_back(self) -> HandlerMustNotCommit | None:
        """End the guard; return what the handler did wrong, if anything."""
        self.guarded = False
        if self.violation is not None:
            return self.violation
        if self.get_transaction() is not self._root or not self.is_still_begun():
            return HandlerMustNotCommit("the handler ended the session's transaction")
        if self.in_nested_transaction():
            return HandlerMustNotCommit("the handler left a savepoint open (begin_nested)")
        return None

    @property
    def has_changes(self) -> bool:
        """Whether a flush has something to send: objects, or events."""
        outbox = self.outbox
        return not self._is_clean() or (outbox is not None and outbox.has_pending(self))

    @property
    def sends_at_commit(self) -> bool:
        """Whether a commit in another's transaction may send something: changes, or what a hook of
        the user's does. One hook is ours."""
        ours = 0 if self.outbox is None else 1
        return self.has_changes or len(self.dispatch.before_commit) > ours

    def finish(self) -> None:
        """Close it. A connection whose ``commit`` was refused is dropped: SQLAlchemy takes its
        transaction for ended, psycopg does not, and the pool can't have it back."""
        lent: Any = getattr(self, "lent", None)
        if lent is not None:
            unguard_commit(lent)
            begun: Any = self._begun
            if not lent.closed and (lent.get_transaction() is not begun or not begun.is_active):
                lent.invalidate()
        self.close()

    def is_lost(self) -> bool:
        """Whether the lent connection is known to be dead."""
        connection = self.lent
        if connection.closed:
            return False  # by the handler
        if connection.invalidated:
            return True
        driver: Any = connection.connection.driver_connection
        closed = getattr(driver, "is_closed", None) or getattr(driver, "closed", False)
        return bool(closed() if callable(closed) else closed)

    def backend_pid(self) -> int | None:
        """The server process of the lent connection, as far as the driver knows."""
        driver: Any = self.lent.connection.driver_connection
        asked = getattr(driver, "get_server_pid", None)  # asyncpg; psycopg and psycopg2 have info
        known = getattr(driver, "info", None)
        found: int | None = getattr(known, "backend_pid", None) if asked is None else asked()
        return found

    def ask(self) -> None:
        """Send something, beneath SQLAlchemy: then the driver knows whether the connection is dead.
        The transaction may be in any state."""
        with suppress(Exception):
            cursor = self.lent.connection.cursor()
            cursor.execute(PING)
            cursor.close()

    def enter(self) -> bool:
        """In a handler's thread, before the handler; False if nobody waits for it anymore."""
        return self._door.enter()

    def is_still_begun(self) -> bool:
        """Whether the transaction is the one that was lent, as far as anybody can know."""
        if self._root is None or not self._root.is_active:
            return True  # a statement failed: the commit will report it
        connection = self.lent
        if connection.invalidated or connection.closed:
            return True  # a statement failed: the commit will report it
        if connection.get_transaction() is not self._begun:
            return False
        # A handler may have sent ROLLBACK or COMMIT as a statement. SQLAlchemy does not notice and
        # begins no new transaction; asyncpg knows. For other drivers there is no way to know.
        adapted: Any = connection.connection.dbapi_connection
        begun = getattr(adapted, "_transaction", None) is not None
        return not begun or bool(adapted.driver_connection.is_in_transaction())

    def refuse_commit(self, _connection: object) -> None:
        (self._guest or self)._check("connection().commit()")  # noqa: SLF001 - its own class

    def abandon(self) -> bool:
        """Leave the session to the thread that still uses it; False if none does, or will."""
        return self._door.abandon()

    def handler_returned(self, value: object) -> None:
        """In a handler's thread: write what waits, and do what comes after."""
        self.flush()
        if self.after_handler is not None and value is None:
            self.after_handler()

    def leave(self) -> None:
        """In a handler's thread, when the handler has ended. If it was abandoned, nobody else
        closes it."""
        if self._door.leave():
            owner = self.outbox_host or self
            owner.guarded = self.guarded = False
            # Its connection too: the pool it came from may be disposed of by now.
            with suppress(Exception):
                owner.invalidate()

    def _check(self, what: str) -> None:
        if self.guarded:
            self._refuse(what)

    def _refuse(self, what: str) -> NoReturn:
        self.violation = HandlerMustNotCommit(
            f"the handler called session.{what}: the transaction also moves the listener's cursor "
            "and is ended by the consumer. Return to commit, raise to roll back"
        )
        raise self.violation


class AsyncHandlerSession(AsyncOutboxSession):
    sync_session_class: type[Session] = HandlerSession
    sync_session: HandlerSession  # pyright: ignore[reportIncompatibleVariableOverride]  # as made by sync_session_class

    async def flush_if_changed(self) -> None:
        if self.sync_session.has_changes:
            await self.flush()


def maker_of(maker: Any, cls: type | None) -> Any:
    """*maker*, or one like it whose sessions are also of the class *cls*, which a handler asks
    for: SQLModel's, for its ``exec``."""
    if cls is None:
        return maker
    if isinstance(maker, sessionmaker):
        return sessionmaker(class_=_both(maker.class_, cls), **maker.kw)
    sync_class = _both(maker.kw["sync_session_class"], cls.sync_session_class)  # type: ignore[attr-defined]  # of an AsyncSession
    options = {**maker.kw, "sync_session_class": sync_class}
    return async_sessionmaker(class_=_both(maker.class_, cls), **options)


def _both(ours: type, cls: type) -> type:
    return ours if issubclass(ours, cls) else type(cls.__name__, (ours, cls), {})
