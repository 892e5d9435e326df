"""Runs what settles events, on one connection.

An alert that a rule or trigger on the log swallows is counted and not repeated: what it is about is
settled all the same.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sa_outbox.errors import NotWritten

from ..shared.own_events import add_events

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..connection.connections import Connection
    from ..lease.lease import Lease
    from ..shared.context import ConsumerContext
    from .writes import Write


async def run_each(
    context: ConsumerContext, lease: Lease, connection: Connection, writes: Sequence[Write]
) -> int:
    """Run *writes* in order; return how many alerts were swallowed, which is true once this is
    committed. Raises :class:`LeaseLost`."""
    swallowed = 0
    for write in writes:
        if write.alerts:
            swallowed += await _add_alerts(context, connection, write)
            continue
        rows = await connection.rows(write.query, **write.values)
        if write.fenced and not rows:
            raise lease.lost()
    return swallowed


async def _add_alerts(context: ConsumerContext, connection: Connection, write: Write) -> int:
    try:
        await add_events(context, connection, write.values["document"], expected=write.alerts)
    except NotWritten as error:
        return error.expected - error.written
    return 0
