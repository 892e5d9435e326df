"""The test's open transaction, as handlers get it."""

from __future__ import annotations

import weakref
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import anyio
from sqlalchemy import event
from sqlalchemy.ext.asyncio import AsyncSession

from sa_outbox.client.caller import connection_of
from sa_outbox.consumer.handler.call import HandlerCall
from sa_outbox.consumer.handler.session import AsyncHandlerSession, HandlerSession, maker_of
from sa_outbox.consumer.handler.thread_call import call_in_thread
from sa_outbox.errors import ConfigError, HandlerTimeout
from sa_outbox.observe import Observers
from sa_outbox.sql.server.tenants import current_tenant, set_tenant
from sa_outbox.sql.server.transactions import ping

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence

    from sqlalchemy.engine import Connection, Transaction
    from sqlalchemy.orm import Session

    from sa_outbox.consumer.handler.delivery import InFlight
    from sa_outbox.declare.listener import Listener
    from sa_outbox.outbox import Outbox

_JOINED: dict[str, Any] = {"join_transaction_mode": "rollback_only", "expire_on_commit": False}
_makers: weakref.WeakKeyDictionary[Outbox, dict[tuple[str, type | None], Any]] = (
    weakref.WeakKeyDictionary()
)
"""Each outbox's factories of handlers' sessions, by kind and by the class that a handler asks for.
Kept, because a factory is a class with hooks, which SQLAlchemy never forgets."""


class OpenTransaction:
    """Calls handlers in the transaction that *session* is in."""

    def __init__(self, session: Session | AsyncSession, outbox: Outbox) -> None:
        self.outbox = outbox
        self._session = session
        self.is_async: bool = isinstance(session, AsyncSession)
        self.inner: Session = session.sync_session if isinstance(session, AsyncSession) else session
        self._connection: Connection | None = None

    @property
    def connection(self) -> Connection:
        assert self._connection is not None  # noqa: S101 - for the type checker: while it is lent
        return self._connection

    async def run(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Call a function that uses the connection: of an async session in a greenlet."""
        if isinstance(self._session, AsyncSession):
            return await self._session.run_sync(lambda _: function(*arguments))
        return function(*arguments)

    @asynccontextmanager
    async def lent(self) -> AsyncIterator[None]:
        """While handlers have it, nobody may commit it; afterwards it is as it was."""
        log = self.outbox.tables.outbox
        connection: Any = await self.run(connection_of, self.inner, log.select(), log)
        self._connection = connection
        self._host: HandlerSession = _maker(self.outbox, "sync", None)()
        self._host.lent = connection
        self.root: Transaction = connection.get_transaction()
        refuse, setting = self._host.refuse_commit, self.outbox.tenant_setting
        event.listen(connection, "commit", refuse)
        tenant = None
        if setting is not None:
            tenant = await self.run(connection.scalar, current_tenant(setting))
        try:
            yield
        finally:
            event.remove(connection, "commit", refuse)
            if setting is not None and self._is_open:
                await self.run(connection.execute, set_tenant(setting), {"tenant": tenant})

    @property
    def _is_open(self) -> bool:
        return self.root.is_active and self.connection.get_transaction() is self.root

    def caller(self, listener: Listener) -> HandlerCall:
        if listener.call.session == "async" and not self.is_async:
            raise ConfigError(
                f"listener {listener.name!r} takes an AsyncSession, and the test's session is a "
                "sync one: they can't share a transaction. Use an async session in the test, or "
                "commit and drain"
            )
        return _CallInTest(self, listener)

    async def attempt(
        self, call: HandlerCall, listener: Listener, items: Sequence[InFlight], argument: Any
    ) -> BaseException | None:
        """What the handler raised; everything it did through its session is undone then."""
        wants = listener.call.session
        if wants == "none":
            return await call(items, argument)
        savepoint = await self.run(self.connection.begin_nested)
        session = _maker(self.outbox, wants, listener.call.session_class)()
        inner: HandlerSession = session.sync_session if wants == "async" else session
        error = await self._attempt(call, items, argument, session, inner)
        inner.guarded = False
        if error is not None and not self._is_open:
            raise error  # it committed the connection: refused, but SQLAlchemy gives it up
        if error is None:
            try:
                # Refused if the handler caught an error of the database: it keeps nothing then.
                await self.run(self.connection.execute, ping())
            except Exception as refused:  # noqa: BLE001 - of any driver
                error = refused
        if savepoint.is_active:
            await self.run(savepoint.commit if error is None else savepoint.rollback)
        inner.close()
        return error

    async def _attempt(
        self,
        call: HandlerCall,
        items: Sequence[InFlight],
        argument: Any,
        session: Any,
        inner: HandlerSession,
    ) -> BaseException | None:
        inner.join(self._host)
        await self.run(inner.connect, argument)
        inner.lend(with_door=True)
        error = await call(items, argument, session)
        if inner.abandon():
            raise HandlerTimeout(
                "the handler's thread can't be stopped and still uses the test's connection"
            ) from error
        wrong = inner.take_back()
        error = inner.violation or error or wrong
        if error is None:
            try:
                await self.run(inner.commit)  # its hooks run, and what waits is written
            except Exception as raised:  # noqa: BLE001 - hooks on the session may raise anything
                error = raised
        return error


def _maker(outbox: Outbox, kind: str, cls: type | None) -> Any:
    known = _makers.setdefault(outbox, {})
    if (kind, cls) not in known:
        plain: Any
        if kind == "async":
            plain = outbox.async_sessionmaker(class_=AsyncHandlerSession, **_JOINED)
        else:
            plain = outbox.sessionmaker(class_=HandlerSession, **_JOINED)
        known[kind, cls] = maker_of(plain, cls)
    return known[kind, cls]


class _CallInTest(HandlerCall):
    def __init__(self, transaction: OpenTransaction, listener: Listener) -> None:
        super().__init__(
            listener,
            anyio.CapacityLimiter(1),
            Observers(()),
            lambda: None,
            transaction.outbox.settings.key_lifetime_of,
            "a test",
        )
        self._transaction = transaction

    async def run_in_thread(self, arguments: tuple[Any, ...]) -> tuple[Any, BaseException | None]:
        if len(arguments) == 1 or not self._transaction.is_async:
            return await super().run_in_thread(arguments)
        # The connection of an async session can be used in its loop only.
        found: tuple[Any, BaseException | None] = await self._transaction.run(
            call_in_thread, self.handler, arguments
        )
        return found
