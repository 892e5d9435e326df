"""The receiving side: act on a message once, however often it is delivered.

Brokers and webhooks deliver at least once. The mark "this one was acted upon" is a row, written in
the transaction that acts: both are committed, or neither is. So the promise is PostgreSQL's, and
it ends where the transaction does: a mail sent in between is sent again after a rollback.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, NoReturn, overload
from uuid import UUID

from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession

from .arguments import checked_text
from .errors import InvalidEvent, NotAtomic, WrongArgument
from .place import Asking, connection_of, found
from .producer import internals
from .sql.inbox import mark_received

if TYPE_CHECKING:
    from collections.abc import Mapping
    from contextlib import AbstractAsyncContextManager, AbstractContextManager

    from sqlalchemy.engine import Connection
    from sqlalchemy.orm import Session

    from .place import AsyncPlace, SyncPlace
    from .settings import Names
    from .tables import Tables

_LIFETIME: Final = timedelta(days=30)
_LONGEST: Final = timedelta(days=3653)
_RIGHTS: Final = {"inbox": "SELECT, INSERT, UPDATE"}


class Inbox:
    """Which messages were acted upon, per consumer. ``outbox.inbox`` is one."""

    def __init__(self, tables: Tables, names: Names) -> None:
        self._names = names
        self._mark = mark_received(tables)

    @overload
    def once(
        self,
        session: AsyncPlace,
        message_id: str | UUID,
        *,
        consumer: str,
        lifetime: timedelta = ...,
    ) -> AbstractAsyncContextManager[bool]: ...

    @overload
    def once(
        self,
        session: SyncPlace,
        message_id: str | UUID,
        *,
        consumer: str,
        lifetime: timedelta = ...,
    ) -> AbstractContextManager[bool]: ...

    def once(
        self,
        session: SyncPlace | AsyncPlace,
        message_id: str | UUID,
        *,
        consumer: str,
        lifetime: timedelta = _LIFETIME,
    ) -> Any:
        """Whether *consumer* gets this message for the first time; marked in this transaction.

        ::

            async with outbox.inbox.once(session, message_id, consumer="payments") as first:
                if first:
                    ...  # through this session

        ``with`` for a sync session or connection. Any session on the database will do, also one
        without an outbox. Entering writes the mark; nothing is written on leaving. Commit, and
        message and effect are done together; roll back, and the message may come again. Another
        transaction with the same message waits on entering until this one has ended.

        Raises :class:`InvalidEvent` for a *message_id* or *consumer* that is not text of 1 to 512
        bytes, :class:`NotAtomic` in AUTOCOMMIT.
        """
        values = {
            "consumer": _text("consumer", consumer),
            "message_id": _text("message_id", message_id),
            "lifetime": _seconds(lifetime),
        }
        place = found(session, "whose transaction acts on the message")
        if isinstance(place, (AsyncSession, AsyncConnection)):
            return _AsyncOnce(self, place, values)
        return _SyncOnce(self, place, values)

    def _is_first(self, place: Session | Connection, values: Mapping[str, object]) -> bool:
        connection = connection_of(place, self._mark)
        if internals.is_autocommit(connection):
            raise NotAtomic(
                "the connection is in AUTOCOMMIT: the message would count as done though acting "
                "on it may fail. Nothing was marked; use a transaction"
            )
        return bool(Asking(connection, self._names, _RIGHTS).rows(self._mark, **values))


class _Once:
    """What ``once`` returns. It is no answer yet: asked for its truth, it would always be true."""

    def __bool__(self) -> NoReturn:
        raise TypeError("once(...) is not the answer: write `with inbox.once(...) as first:`")


class _SyncOnce(_Once):
    def __init__(
        self, inbox: Inbox, place: Session | Connection, values: Mapping[str, object]
    ) -> None:
        self._inbox, self._place, self._values = inbox, place, values

    def __enter__(self) -> bool:
        return self._inbox._is_first(self._place, self._values)  # noqa: SLF001 - one with it

    def __exit__(self, *_: object) -> None:
        """The mark is in the caller's transaction, and so is what becomes of it."""

    async def __aenter__(self) -> NoReturn:
        raise WrongArgument(
            "this session is a sync one, write `with` and not `async with`", field="session"
        )

    async def __aexit__(self, *_: object) -> None:
        """Only for ``async with`` to come as far as the error."""


class _AsyncOnce(_Once):
    def __init__(
        self, inbox: Inbox, place: AsyncSession | AsyncConnection, values: Mapping[str, object]
    ) -> None:
        self._inbox, self._place, self._values = inbox, place, values

    async def __aenter__(self) -> bool:
        return await self._place.run_sync(self._inbox._is_first, self._values)  # noqa: SLF001 - one with it

    async def __aexit__(self, *_: object) -> None:
        """The mark is in the caller's transaction, and so is what becomes of it."""

    def __enter__(self) -> NoReturn:
        raise WrongArgument(
            "this session is an async one, write `async with` and not `with`", field="session"
        )

    def __exit__(self, *_: object) -> None:
        """Only for ``with`` to come as far as the error."""


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
    if not timedelta(0) < lifetime <= _LONGEST:
        raise InvalidEvent("lifetime must be above zero and up to ten years", field="lifetime")
    return lifetime.total_seconds()
