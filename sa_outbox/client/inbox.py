"""The receiving side: act on a message once, however often it is delivered.

Brokers and webhooks deliver at least once. The mark that a message was processed is a row, written
in the transaction that acts on it: both commit, or neither does. So the guarantee is PostgreSQL's,
and it ends with the transaction: a mail sent in between is sent again after a rollback.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, NoReturn, overload
from uuid import UUID

from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession

from ..database.statement_runner import StatementRunner
from ..errors import InvalidEvent, NotAtomic, WrongArgument
from ..event.validation import checked_text
from ..policy.checks import TEN_YEARS
from ..producer import internals
from ..producer.write import tables_of
from ..sql.listener.inbox import mark_received
from .caller import connection_of, resolve

if TYPE_CHECKING:
    from collections.abc import Mapping
    from contextlib import AbstractAsyncContextManager, AbstractContextManager

    from sqlalchemy.engine import Connection
    from sqlalchemy.orm import Session

    from ..database.tables import Tables
    from ..settings import Names
    from .caller import AsyncSessionOrConnection, SyncSessionOrConnection

_LIFETIME: Final = timedelta(days=30)
_RIGHTS: Final = {"inbox": "SELECT, INSERT, UPDATE"}


class Inbox:
    """Which messages were processed, per consumer. ``outbox.inbox`` is one."""

    def __init__(self, tables: Tables, names: Names) -> None:
        self._names = names
        self._tables = tables
        self._mark = mark_received(tables)

    @overload
    def once(
        self,
        session: AsyncSessionOrConnection,
        message_id: str | UUID,
        *,
        consumer: str,
        lifetime: timedelta = ...,
    ) -> AbstractAsyncContextManager[bool]: ...

    @overload
    def once(
        self,
        session: SyncSessionOrConnection,
        message_id: str | UUID,
        *,
        consumer: str,
        lifetime: timedelta = ...,
    ) -> AbstractContextManager[bool]: ...

    def once(
        self,
        session: SyncSessionOrConnection | AsyncSessionOrConnection,
        message_id: str | UUID,
        *,
        consumer: str,
        lifetime: timedelta = _LIFETIME,
    ) -> Any:
        """Whether *consumer* sees this message for the first time; marks it in this transaction.

        ::

            async with outbox.inbox.once(session, message_id, consumer="payments") as first:
                if first:
                    ...  # through this session

        Use plain ``with`` for a sync session or connection. Any session on the database will do,
        even one without an outbox. Entering writes the mark; leaving writes nothing. On commit,
        message and effect are done together; after a rollback, the message may come again. Another
        transaction with the same message waits on entering until this one has ended.

        Raises :class:`InvalidEvent` for a *message_id* or *consumer* that is not text of 1 to 512
        bytes, :class:`NotAtomic` in AUTOCOMMIT.
        """
        values = {
            "consumer": _text("consumer", consumer),
            "message_id": _text("message_id", message_id),
            "lifetime": _seconds(lifetime),
        }
        caller = resolve(session, "whose transaction acts on the message")
        if isinstance(caller, (AsyncSession, AsyncConnection)):
            return _AsyncOnce(self, caller, values)
        return _SyncOnce(self, caller, values)

    def _is_first(self, caller: Session | Connection, values: Mapping[str, object]) -> bool:
        connection = connection_of(caller, self._mark, self._tables.outbox)
        if internals.is_autocommit(connection):
            raise NotAtomic(
                "the connection is in AUTOCOMMIT: the message would count as done though acting "
                "on it may fail. Nothing was marked; use a transaction"
            )
        tables = tables_of(caller, self._tables)
        mark = self._mark if tables is self._tables else mark_received(tables)
        return bool(StatementRunner(connection, self._names, _RIGHTS).rows(mark, **values))


class _Once:
    """What ``once`` returns. Not an answer yet: as a truth value it would always be true."""

    def __bool__(self) -> NoReturn:
        raise TypeError("once(...) is not the answer: write `with inbox.once(...) as first:`")


class _SyncOnce(_Once):
    def __init__(
        self, inbox: Inbox, caller: Session | Connection, values: Mapping[str, object]
    ) -> None:
        self._inbox, self._caller, self._values = inbox, caller, values

    def __enter__(self) -> bool:
        return self._inbox._is_first(self._caller, self._values)  # noqa: SLF001 - a part of Inbox

    def __exit__(self, *_: object) -> None:
        """Nothing to do: the mark belongs to the caller's transaction."""

    async def __aenter__(self) -> NoReturn:
        raise WrongArgument(
            "this session is a sync one, write `with` and not `async with`", field="session"
        )

    async def __aexit__(self, *_: object) -> None:
        """Present only so that ``async with`` reaches the error above."""


class _AsyncOnce(_Once):
    def __init__(
        self, inbox: Inbox, caller: AsyncSession | AsyncConnection, values: Mapping[str, object]
    ) -> None:
        self._inbox, self._caller, self._values = inbox, caller, values

    async def __aenter__(self) -> bool:
        return await self._caller.run_sync(self._inbox._is_first, self._values)  # noqa: SLF001 - a part of Inbox

    async def __aexit__(self, *_: object) -> None:
        """Nothing to do: the mark belongs to the caller's transaction."""

    def __enter__(self) -> NoReturn:
        raise WrongArgument(
            "this session is an async one, write `async with` and not `with`", field="session"
        )

    def __exit__(self, *_: object) -> None:
        """Present only so that ``with`` reaches the error above."""


def _text(field: str, value: str | UUID) -> str:
    if field == "message_id" and isinstance(value, UUID):
        value = str(value)
    if isinstance(value, bytes):
        raise WrongArgument(f"{field} must be a str, not bytes: decode it", field=field)
    text = checked_text(field, value)  # type: ignore[arg-type]  # a UUID as consumer is refused there
    if text is None:
        raise WrongArgument(f"{field} is None: without one nothing can be recognised", field=field)
    return text


def _seconds(lifetime: timedelta) -> float:
    if not isinstance(lifetime, timedelta):
        raise WrongArgument(
            f"lifetime must be a timedelta, not {type(lifetime).__name__}", field="lifetime"
        )
    if not timedelta(0) < lifetime <= TEN_YEARS:
        raise InvalidEvent("lifetime must be above zero and up to ten years", field="lifetime")
    return lifetime.total_seconds()
