"""Where a statement of ours is run when the caller says so: a session or a connection of theirs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

from sqlalchemy.engine import Connection
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession, async_scoped_session
from sqlalchemy.orm import Session, scoped_session

from .errors import WrongArgument
from .producer import internals
from .producer.write import raise_if_mendable

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from sqlalchemy.sql import Executable

    from .settings import Names

SyncPlace: TypeAlias = "Session | scoped_session[Any] | Connection"
AsyncPlace: TypeAlias = "AsyncSession | async_scoped_session[Any] | AsyncConnection"
Found: TypeAlias = "Session | Connection | AsyncSession | AsyncConnection"


def found(place: object, what_for: str) -> Found:
    """The session itself, of one that is scoped. Raises :class:`WrongArgument`."""
    if isinstance(place, (scoped_session, async_scoped_session)):
        place = place()
    if isinstance(place, (AsyncSession, AsyncConnection, Session, Connection)):
        return place
    raise WrongArgument(
        f"session must be the session or connection {what_for}, not {type(place).__name__}",
        field="session",
    )


def run(place: object, what_for: str, work: Callable[[Session | Connection], Any]) -> Any:
    """What *work* returns, or for an async place an awaitable of it."""
    there = found(place, what_for)
    if isinstance(there, (AsyncSession, AsyncConnection)):
        return there.run_sync(work)
    return work(there)


def connection_of(place: Session | Connection, clause: Any) -> Connection:
    """The connection on which *clause* is to be run, in the caller's transaction."""
    if isinstance(place, Connection):
        return place
    # The Connection and not session.execute, which would flush what the program has pending.
    with internals.looking_like_a_flush(place):
        bind = place.get_bind(clause=clause)
    return internals.connection_for(place, bind)


class Asking:
    """Runs statements there. Errors hold no parameters, and say what a person can mend."""

    def __init__(self, connection: Connection, names: Names, rights: Mapping[str, str]) -> None:
        self._connection = connection
        self._names = names
        self._rights = rights

    def rows(self, statement: Executable, **values: object) -> list[Any]:
        try:
            result = self._connection.execute(statement, values)
            return list(result.mappings()) if result.returns_rows else []
        except DBAPIError as error:
            error.hide_parameters = True  # ids and keys of others, and errors end in logs
            raise_if_mendable(error, self._names, self._rights)
            raise
