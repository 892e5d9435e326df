"""Alerts that no dead letter causes: one event per cause, from the process that sees it first.

Every process sees the same orphan and the same open transaction. An idempotency key for the cause
is claimed in the transaction that adds the event: the second process finds it taken, and so does
the first when it checks again, until the key has expired.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import anyio

from sa_outbox.errors import NotWritten
from sa_outbox.event.event import OWN_TYPES
from sa_outbox.event.ids import uuid7
from sa_outbox.observe import AlertsSwallowed, DatabaseAway, Place

from ..connection.errors import is_database_error
from ..shared.own_events import add_events

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sa_outbox.observe import HorizonHeld, ListenerOrphaned

    from ..shared.context import ConsumerContext

LISTENER_ORPHANED = f"{OWN_TYPES}listener_orphaned"
HORIZON_STALLED = f"{OWN_TYPES}horizon_stalled"
DAY_SECONDS, HOUR_SECONDS = 86_400.0, 3600.0
"""Seconds after which the same cause is reported again."""


async def report_orphan(context: ConsumerContext, orphan: ListenerOrphaned) -> None:
    context.observers.emit(orphan)
    payload = {"listener": orphan.listener, "position": orphan.position}
    await _raise_once(context, LISTENER_ORPHANED, orphan.listener, payload, DAY_SECONDS)


async def report_holder(context: ConsumerContext, held: HorizonHeld) -> None:
    context.observers.emit(held)
    payload = {
        "pid": held.pid,
        "application_name": held.application_name,
        "seconds": round(held.seconds, 1),
        "transaction": held.transaction,
    }
    cause = f"{held.pid or 'prepared'}:{held.transaction}"
    await _raise_once(context, HORIZON_STALLED, cause, payload, HOUR_SECONDS)


async def _raise_once(
    context: ConsumerContext,
    event_type: str,
    cause: str,
    payload: Mapping[str, object],
    lifetime: float,
) -> None:
    if not context.alert_depth:
        return
    event_id = str(uuid7())
    key = {"tenant": "", "event_type": event_type, "key": cause, "event_id": event_id}
    event = {"event_id": event_id, "event_type": event_type, "payload": payload}
    connections, statements = context.connections, context.statements
    try:
        # Shielded: if cancelled midway, asyncpg would leave an unretrieved error in the loop.
        limit = context.settings.statement_timeout.total_seconds()
        with anyio.fail_after(limit, shield=True):
            async with connections.connection() as connection, connection.transaction():
                claim = json.dumps([{**key, "lifetime": lifetime}])
                (row,) = await connection.rows(statements.claim_keys, document=claim)
                if str(row["event_id"]) == event_id:
                    await add_events(context, connection, json.dumps([event]), expected=1)
                    await connection.rows(statements.notify)
    except NotWritten:
        context.observers.emit(AlertsSwallowed(1))
    except Exception as error:
        if not is_database_error(error):
            raise
        # Its cause is in the log and in the metrics too; reading and listeners must continue.
        context.observers.emit(DatabaseAway(Place("alerts"), type(error).__name__, lifetime))
