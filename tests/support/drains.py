"""After every drain of every test: the consumer that ran for it holds nothing."""

from __future__ import annotations

from contextlib import suppress
from functools import wraps
from typing import TYPE_CHECKING, Any

import asyncpg
from sqlalchemy.engine import make_url

from sa_outbox.consumer import Consumer, Drained
from sa_outbox.consumer.connection.engines import connector
from sa_outbox.sql.server.names import quoted

if TYPE_CHECKING:
    import pytest

    from sa_outbox.database.tables import Tables

UNANSWERED = (OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError)
"""The database is away, or has no tables for it: which may be why a drain has raised."""
_HELD = """
SELECT name FROM {listeners} WHERE locked_by = {owner}
UNION ALL
SELECT r.listener || ': ' || CAST(r.gaps AS text) FROM {ranges} AS r WHERE r.locked_by = {owner}
UNION ALL
SELECT d.listener || ': delivery ' || d.position FROM {deliveries} AS d
JOIN {ranges} AS r ON r.listener = d.listener AND r.number = d.range WHERE r.locked_by = {owner}
"""


def what_is_held(tables: Tables, owner: str) -> str:
    """A statement with this parameter: names of what is leased to it."""
    names = {each: quoted(getattr(tables, each)) for each in ("listeners", "ranges", "deliveries")}
    return _HELD.format(owner=owner, **names)


async def held_by(consumer: Consumer) -> list[str]:
    """What is leased to *consumer*, as the database says."""
    database, tables = consumer._database, consumer.outbox.tables
    connect = connector(make_url(database) if isinstance(database, str) else database)
    connection = await connect()
    try:
        return [row[0] for row in await _asked(connection, tables, consumer.owner)]
    finally:
        await connection.close()


async def _asked(connection: Any, tables: Tables, owner: str) -> list[Any]:
    statement = what_is_held(tables, "$1")
    try:
        found: list[Any] = await connection.fetch(statement, owner)
    except asyncpg.InsufficientPrivilegeError:  # a role without queues may not see their ranges
        found = await connection.fetch(statement.partition("UNION")[0], owner)
    return found


def watch_drains(patch: pytest.MonkeyPatch) -> None:
    """No drain that returns holds a lease, and none that raises, unless it could not give them back
    and knows it. One of a consumer that runs anyway leaves it running."""
    drain = Consumer.drain

    @wraps(drain)
    async def watched(self: Consumer, **options: Any) -> Drained:
        was_running = self._running
        try:
            drained = await drain(self, **options)
        except Exception:
            if not (was_running or self._holds_leases):
                await _check(self, "has raised", unless=UNANSWERED)
            raise
        if not was_running:
            await _check(self, "has drained")
        return drained

    patch.setattr(Consumer, "drain", watched)


async def _check(
    consumer: Consumer, what: str, *, unless: tuple[type[Exception], ...] = ()
) -> None:
    with suppress(*unless):
        assert await held_by(consumer) == [], f"{consumer.owner} {what}, and holds a lease"
