"""Which partition of a listener an event belongs to. Pure; ``sql.partitions`` says it in SQL.

The two must agree for ever, on every server: an event that one of them puts elsewhere would be
handled by two cursors, or by none. So it is neither PostgreSQL's hashtext(), which may change with
its version, nor Python's hash(), which does with each process; and not MD5, which a server or an
interpreter in FIPS mode refuses.
"""

from __future__ import annotations

from hashlib import sha256


def partition_of(key: str | None, position: int, count: int) -> int:
    """By the key; an event without one has no order to keep, and goes by its position."""
    if key is None:
        return position % count
    return int.from_bytes(sha256(key.encode()).digest()[:4], "big") % count
