"""The caller's session or connection, in which our statements run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

from sqlalchemy.engine import Connection
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession, async_scoped_session
from sqlalchemy.orm import Session, scoped_session

from ..errors import WrongArgument
from ..producer import internals
from ..producer.binds import bind_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from sqlalchemy import Table

SyncSessionOrConnection: TypeAlias = "Session | scoped_session[Any] | Connection"
AsyncSessionOrConnection: TypeAlias = "AsyncSession | async_scoped_session[Any] | AsyncConnection"
Resolved: TypeAlias = "Session | Connection | AsyncSession | AsyncConnection"


def resolve(caller: object, what_for: str) -> Resolved:
    """The session itself if *caller* is a scoped session. Raises :class:`WrongArgument`."""
    if isinstance(caller, (scoped_session, async_scoped_session)):
        caller = caller()
    if isinstance(caller, (AsyncSession, AsyncConnection, Session, Connection)):
        return caller
    raise WrongArgument(
        f"session must be the session or connection {what_for}, not {type(caller).__name__}",
        field="session",
    )


def run(caller: object, what_for: str, work: Callable[[Session | Connection], Any]) -> Any:
    """What *work* returns; for an async session or connection, an awaitable of it."""
    there = resolve(caller, what_for)
    if isinstance(there, (AsyncSession, AsyncConnection)):
        return there.run_sync(work)
    return work(there)


def connection_of(caller: Session | Connection, clause: Any, log: Table) -> Connection:
    """The connection to run *clause* on, in the caller's transaction; *log* is the outbox's
    table."""
    if isinstance(caller, Connection):
        return caller
    # The Connection, not session.execute: that would flush what the program has pending.
    return internals.connection_for(caller, bind_of(caller, clause, log))
