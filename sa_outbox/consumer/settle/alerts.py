"""Alerts as events: a dead letter adds one to the log, in the transaction that writes it. Pure.

An alert never leads to another one: a dead letter of an event whose type begins with ``outbox.``
adds none. Where a handler of alerts adds events that fail in turn, the limits of causation end it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sa_outbox.errors import DecodeError
from sa_outbox.event.causation import DEPTH, TREE
from sa_outbox.event.codec import decode
from sa_outbox.event.event import OWN_TYPES
from sa_outbox.event.ids import uuid7
from sa_outbox.event.row import HEADERS, TENANT

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ..handler.delivery import InFlight

DEAD_LETTERED = f"{OWN_TYPES}dead_lettered"


def alerts(listener: str, items: Iterable[InFlight], depth: int) -> list[dict[str, Any]]:
    """Rows for ``insert_events``, of *items*, which are given up. *depth*: the longest chain of
    events of which each was caused by the one before; 0: no alerts are wanted.

    Nothing of the event itself but its tenant, and of its error the code: texts may quote data.
    """
    dead = [
        (item, _headers_of(item)) for item in items if not item.event_type.startswith(OWN_TYPES)
    ]
    return [
        _dead_lettered(listener, item, headers)
        for item, headers in dead
        if _depth_of(headers) < depth
    ]


def _dead_lettered(listener: str, item: InFlight, headers: dict[str, Any]) -> dict[str, Any]:
    event_id, failure = str(item.event_id), item.failure
    return {
        "event_id": str(uuid7()),
        "event_type": DEAD_LETTERED,
        "tenant": item.row[TENANT],
        "headers": {
            "causation_id": event_id,
            DEPTH: _depth_of(headers) + 1,
            **({TREE: headers[TREE]} if TREE in headers else {}),
        },
        "payload": {
            "listener": listener,
            "event_id": event_id,
            "event_type": item.event_type,
            "position": item.position,
            "reason": item.reason,
            "attempts": item.attempts,
            "error_code": None if failure is None else failure.code,
        },
    }


def _headers_of(item: InFlight) -> dict[str, Any]:
    if item.row[HEADERS] is None:  # too large to be read, or refused
        return {}
    try:
        headers = decode(item.row[HEADERS])
    except DecodeError:  # then it is why this one is dead
        return {}
    return headers if isinstance(headers, dict) else {}


def _depth_of(headers: dict[str, Any]) -> int:
    found = headers.get(DEPTH, 0)
    return found if isinstance(found, int) else 0
