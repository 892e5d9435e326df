"""``deliver(session)``: call the handlers in the test's own open transaction.

The handlers are called as a consumer calls them (``consumer/handler/call.py``): with the event read
from its row, with the event's context, with their time limit, and with a session that refuses to
commit. What a consumer does around it is left out: no lease, no cursor, no group commit, no dead
letter, no audit record. The outcome is decided by the listener's retry policy and returned.

A handler's session is one of its own, on the test's connection and in a savepoint; a handler that
raises is rolled back to it. What was attempted is remembered with the transaction, so a second call
continues where the first one ended.
"""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any, Protocol, overload

from sqlalchemy import Engine
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession, async_scoped_session

from sa_outbox.consumer.connection.engines import require_asyncio
from sa_outbox.consumer.services.registration import chosen
from sa_outbox.errors import ConfigError, OutboxError
from sa_outbox.outbox import Outbox
from sa_outbox.producer.install import owner_of, sync_session
from sa_outbox.sql.log.own_events import read_own

from .deliveries import Deliveries, Delivery
from .handler_pass import HandlerPass, Memory, Place, Progress
from .loop_thread import run_to_its_end
from .transaction import OpenTransaction

if TYPE_CHECKING:
    from collections.abc import Awaitable, Sequence

    from sqlalchemy.engine import Transaction
    from sqlalchemy.orm import Session, scoped_session

    from sa_outbox.declare.listener import Listener

MAX_ROUNDS = 100
"""How often events that handlers added are followed."""
_known: weakref.WeakKeyDictionary[Transaction, dict[Place, Progress]] = weakref.WeakKeyDictionary()


class Deliver(Protocol):
    """The type of ``deliver``, for the fixture ``outbox_deliver``."""

    @overload
    def __call__(
        self,
        session: AsyncSession | async_scoped_session[Any],
        /,
        *,
        listeners: Sequence[str] | None = None,
    ) -> Awaitable[Deliveries]: ...

    @overload
    def __call__(
        self,
        session: Session | scoped_session[Any],
        /,
        *,
        listeners: Sequence[str] | None = None,
    ) -> Deliveries: ...


@overload
def deliver(
    session: AsyncSession | async_scoped_session[Any],
    /,
    *,
    listeners: Sequence[str] | None = None,
) -> Awaitable[Deliveries]: ...


@overload
def deliver(
    session: Session | scoped_session[Any], /, *, listeners: Sequence[str] | None = None
) -> Deliveries: ...


def deliver(session: Any, /, *, listeners: Sequence[str] | None = None) -> Any:
    """Flush, and call the handlers for the events of the transaction that *session* is in.

    ::

        deliveries = await deliver(session)  # without await for a sync session

    A handler that takes a session gets one of its own in a savepoint of this transaction; one that
    raises is rolled back to it, and is attempted again by a later call, when its retry is due by
    the clock. Events that handlers add are delivered too. *listeners* are the names of those to
    run, by default all but relays.

    Raises :class:`ConfigError` if there is no open transaction, or a handler takes an async session
    and *session* is a sync one.
    """
    if isinstance(session, async_scoped_session):
        session = session()
    inner = sync_session(session)
    outbox = owner_of(inner)
    if not isinstance(outbox, Outbox):
        raise ConfigError(f"deliver needs a session of an Outbox, not of {outbox!r}")
    chosen_listeners = _without_relays(outbox, listeners)
    if not inner.in_transaction() and isinstance(inner.bind, (Engine, AsyncEngine)):
        raise ConfigError(
            "the session has no open transaction: what it added is committed, or was never "
            "written. Call deliver before the commit, bind the session to a connection with a "
            "transaction, or drain"
        )
    if isinstance(session, AsyncSession):
        return _deliver(OpenTransaction(session, outbox), chosen_listeners)
    return run_to_its_end(lambda: _deliver(OpenTransaction(inner, outbox), chosen_listeners))


def _without_relays(outbox: Outbox, names: Sequence[str] | None) -> list[Listener]:
    found = chosen(outbox, names)
    relays = [each.name for each in found if each.forwarding is not None]
    if names is not None and relays:
        raise ConfigError(f"{', '.join(relays)}: a relay has no handler that deliver could call")
    return [each for each in found if each.forwarding is None]


async def _deliver(transaction: OpenTransaction, listeners: Sequence[Listener]) -> Deliveries:
    require_asyncio()
    outbox, found = transaction.outbox, list[Delivery]()
    await transaction.run(outbox.flush, transaction.inner)
    filters = {each.payload_filter for each in listeners if each.payload_filter is not None}
    statement = read_own(outbox.tables, sorted(filters))
    async with transaction.lent():
        connection = transaction.connection
        memory = Memory(_known.setdefault(transaction.root, {}))
        for _ in range(MAX_ROUNDS):
            rows = await transaction.run(lambda: connection.execute(statement).all())
            before = len(found)
            for listener in listeners:
                for handler in range(len(listener.handlers)):
                    found += await HandlerPass(listener, handler, transaction, memory)(rows)
            if len(found) == before:
                return Deliveries([*found, *memory.waiting.values()])
    raise OutboxError(f"{MAX_ROUNDS} rounds, and handlers still add events: do they end?")
