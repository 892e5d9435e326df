"""The row that an event is read as, from the log or from a dead letter: its columns, by name.

A reader of many rows uses these numbers, ``row[KEY]``: looked up by its name, each column would
cost twice the time. The statements of ``sql/`` select ``COLUMNS`` in this order, before any others.
"""

from __future__ import annotations

from typing import Final

COLUMNS: Final = (
    "id",
    "event_id",
    "event_type",
    "key",
    "tenant",
    "payload",
    "headers",
    "run_at",
    "priority",
    "created_at",
    "wait",
    "matches",
)
"""``payload`` and ``headers`` are text, so that a value that can't be decoded fails alone, not its
whole batch; they are None for an event of another type, and for one that is too large or can't be
read. ``run_at`` and ``created_at`` are seconds since 1970: no timestamp exceeds a float. ``wait``:
seconds until ``run_at``, None without one. ``matches``: whether the listener wants this type, and
it is of its partition."""

(
    ID,
    EVENT_ID,
    EVENT_TYPE,
    KEY,
    TENANT,
    PAYLOAD,
    HEADERS,
    RUN_AT,
    PRIORITY,
    CREATED_AT,
    WAIT,
    MATCHES,
) = range(len(COLUMNS))
