"""Which partition of a listener an event belongs to. Pure. The SQL version is in
``sql/log/listener_partitions.py``.

The two must agree forever, on every server: an event that one of them puts elsewhere would be
handled by two cursors, or by none. So this uses neither PostgreSQL's hashtext(), which may change
with its version, nor Python's hash(), which changes with each process, nor MD5, which a server or
interpreter in FIPS mode refuses.
"""

from __future__ import annotations

from hashlib import sha256


def partition_of(key: str | None, position: int, count: int) -> int:
    """By the key; an event without one has no order to keep, and is assigned by its position."""
    if key is None:
        return position % count
    return int.from_bytes(sha256(key.encode()).digest()[:4], "big") % count
