"""The savepoint of one event after the other, in the transaction of a group.

Each event but the first has it to itself: what its handler does is released with the next event's
``RELEASE; SAVEPOINT``, one round trip that is sent beneath SQLAlchemy, which would need two and
prepare each. SQLAlchemy knows the savepoint all the same, as one nested transaction that lasts: a
handler's session joins it, so a flush that fails rolls back this event and nothing else.

Invariant: when ``renew`` or ``release`` returns, everything before it in the transaction can be
committed as far as the server knows, and is still there: if a handler had ended the transaction and
begun another, or had swallowed an error of the server, the savepoint could not be released.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sa_outbox.producer import capture
from sa_outbox.sql.server.transactions import NEXT_SAVEPOINT, RELEASE_SAVEPOINT

from ..fault.attribution import Alone

if TYPE_CHECKING:
    from ..handler.session import HandlerSession
    from .lent_session import LentSession


class EventSavepoint:
    """*host*: the session that began the transaction, and commits it."""

    def __init__(self, host: LentSession) -> None:
        self._host = host
        self._nested: Any = None
        self.is_fresh: bool = False
        """Renewed, and nobody has used it since."""

    def __bool__(self) -> bool:
        """Whether an event has it."""
        return self._nested is not None

    @property
    def is_intact(self) -> bool:
        """False after a flush that failed, and if the handler ended it or left one of its own."""
        connection = self._host.inner.lent
        nested = self._nested
        return nested.is_active and connection.get_nested_transaction() is nested

    async def renew(self) -> None:
        """Release what the event before did, and begin the next one's."""
        if self._nested is None:
            connection = self._host.inner.lent
            self._nested = await self._host.run(connection.begin_nested)
        elif not self.is_fresh:
            await self._send(NEXT_SAVEPOINT)
            self._renewed()
        self.is_fresh = True

    def pass_on(self, session: HandlerSession) -> None:
        """In a handler's thread, when it has returned: if all is well, begin the next event's. The
        thread has the connection now; to come back to it would cost as much as the statement."""
        if session.take_back() is not None or not self.is_intact:
            return
        session.commit()  # its hooks run, and events that wait are written
        try:
            _execute(self._host.inner.lent.connection, self._text(NEXT_SAVEPOINT))
        except Exception as error:
            raise Alone(error) from error
        self._renewed()
        self.is_fresh = True

    async def release(self) -> None:
        if self._nested is not None and not self.is_fresh:
            await self._send(RELEASE_SAVEPOINT)

    async def roll_back(self) -> None:
        """Undo what the event did. Its locks go too. Afterwards there is no further event."""
        if self._nested.is_active:
            await self._host.run(self._nested.rollback)

    def _renewed(self) -> None:
        if capture.present is not None:  # SQLAlchemy does not know, and so no test that watches it
            capture.present.kept(self._host.inner.lent, self._nested._savepoint)  # noqa: SLF001 - its name, nowhere else

    async def _send(self, statements: str) -> None:
        text, host = self._text(statements), self._host
        adapted: Any = host.inner.lent.connection
        if host.inner.lent.dialect.driver == "asyncpg":
            # Its adapter prepares what it executes, so it takes one statement at a time.
            await adapted.driver_connection.execute(text)
        else:
            await host.run(_execute, adapted, text)

    def _text(self, statements: str) -> str:
        return statements.format(self._nested._savepoint)  # noqa: SLF001 - its name, nowhere else


def _execute(connection: Any, statements: str) -> None:
    cursor = connection.cursor()
    try:
        cursor.execute(statements)
    finally:
        cursor.close()
