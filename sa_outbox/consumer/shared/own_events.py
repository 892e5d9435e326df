"""Events that the consumer adds itself: those of crons, and alerts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sa_outbox.database.swallowed import raise_if_swallowed

if TYPE_CHECKING:
    from ..connection.connections import Connection
    from .context import ConsumerContext


async def add_events(
    context: ConsumerContext, connection: Connection, document: str, *, expected: int
) -> None:
    """Add the events in *document*, the parameter of ``insert_events``. Raises :class:`NotWritten`
    if they do not become *expected* rows: a rule or trigger on the log swallows some."""
    written = await connection.count(context.statements.insert_events, document=document)
    raise_if_swallowed(context.tables.names, expected=expected, written=written)
