"""A handler's session, async or in a thread, as the transaction around the handler sees it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import anyio
from sqlalchemy.exc import SQLAlchemyError

from ..connection.connections import best_effort
from ..fault.attribution import Refused

if TYPE_CHECKING:
    from collections.abc import Callable

    from sqlalchemy import Connection, CursorResult

    from ..handler.session import HandlerSession
    from ..lease.lease import Lease
    from ..settle.writes import Write

CLOSE_SECONDS = 1.0
PING_SECONDS = 5.0
"""Seconds that a session has to say whether it is alive."""


class LentSession:
    def __init__(self, session: Any) -> None:
        self.session = session
        """What the handler gets."""
        self.inner: HandlerSession = getattr(session, "sync_session", session)
        self.is_async: bool = session is not self.inner
        self._is_committed = False
        self.is_abandoned = False
        """A thread that can't be stopped still uses it, and closes it when it ends."""

    async def run(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Call a method of the inner session: of an async one in its greenlet, else in a thread."""
        if self.is_async:
            return await self.session.run_sync(lambda _: function(*arguments))
        return await anyio.to_thread.run_sync(function, *arguments)

    async def join(self, host: LentSession, argument: Any) -> None:
        """Work in the savepoint of *host*'s transaction, for the event *argument*."""
        inner = self.inner
        inner.join(host.inner)
        if inner.tenant_setting is not None or inner.dispatch.after_begin:
            await self.run(inner.connect, argument)
        else:
            inner.connect(argument)  # sends nothing: no hook of the user's does
        inner.lend()

    async def is_lost(self) -> bool:
        """Whether its connection is dead; asks."""
        if self.inner.is_lost():
            return True
        with anyio.move_on_after(PING_SECONDS) as asking:
            await self.run(self.inner.ask)
        return asking.cancelled_caught or self.inner.is_lost()

    async def settle(self, writes: list[Write], lease: Lease) -> None:
        """Run *writes* and commit. Raises :class:`Refused` for what is no error of the COMMIT."""
        await self.run(_settle, self.inner, writes, lease)
        self._is_committed = True

    async def commit_joined(self) -> None:
        """Have its hooks run and what waits be written; the host commits."""
        if self.inner.sends_at_commit:
            await self.run(self.inner.commit)
        else:
            self.inner.commit()

    async def invalidate(self) -> None:
        await best_effort(self.run(self.inner.invalidate), CLOSE_SECONDS)

    def leave(self) -> None:
        """Close one that has joined another's transaction: sends nothing."""
        self.inner.guarded = False
        self.inner.close()

    async def close(self) -> None:
        self.inner.guarded = False
        if self._is_committed:
            self.inner.finish()  # sends nothing: its connection is back in the pool
        else:
            await best_effort(self.run(self.inner.finish), CLOSE_SECONDS)


def _settle(session: HandlerSession, writes: list[Write], lease: Lease) -> None:
    try:
        connection = session.connection()
        for write in writes:
            result = _executed(connection, write)
            if write.fenced and result.first() is None:
                raise lease.lost()
    except SQLAlchemyError as error:
        raise Refused(str(error)) from error
    session.commit()


def _executed(connection: Connection, write: Write) -> CursorResult[Any]:
    if connection.dialect.driver == "asyncpg":  # rendered once, and not for every event
        arguments = tuple(write.query.arguments(write.values))
        return connection.exec_driver_sql(write.query.sql, arguments)
    return connection.execute(write.query.clause, write.values)
