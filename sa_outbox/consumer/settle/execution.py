"""Runs what settles events, on one connection.

An alert that a rule or trigger on the log swallows is reported and not repeated: what it is about
is settled all the same.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sa_outbox.errors import NotWritten
from sa_outbox.observe import AlertsSwallowed

from ..shared.own_events import add_events

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..connection.connections import Connection
    from ..lease.lease import Lease
    from ..shared.context import ConsumerContext
    from .writes import Write


async def run_each(
    context: ConsumerContext, lease: Lease, connection: Connection, writes: Sequence[Write]
) -> None:
    """Run *writes* in order. Raises :class:`LeaseLost`."""
    for write in writes:
        if write.alerts:
            await _add_alerts(context, connection, write)
            continue
        rows = await connection.rows(write.query, **write.values)
        if write.fenced and not rows:
            raise lease.lost()


async def _add_alerts(context: ConsumerContext, connection: Connection, write: Write) -> None:
    try:
        await add_events(context, connection, write.values["document"], expected=write.alerts)
    except NotWritten as error:
        context.observers.emit(AlertsSwallowed(error.expected - error.written))
