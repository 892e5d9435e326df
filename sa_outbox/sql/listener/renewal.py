"""Statements that renew leases: of listeners, and of ranges of queues.

A lease expires :duration seconds after the database renewed it, by the database's clock at that
moment. Every write under a lease renews it too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import bindparam
from sqlalchemy.dialects.postgresql import ARRAY
from sqlalchemy.types import BigInteger, Double, Text

from ..server.names import quoted
from ..server.timed_text import text
from ..server.times import NOW

if TYPE_CHECKING:
    from sqlalchemy import TextClause

    from ...database.tables import Tables

EXPIRY = f"{NOW} + make_interval(secs => :duration)"
"""When a lease expires that is claimed or renewed now."""
RENEWED = f"lease_expires_at = {EXPIRY}, updated_at = {NOW}"
"""For the SET of a write under a lease."""


def renew(tables: Tables, *, ranges: bool = False) -> TextClause:
    """Renew the terms (:names, :parts, :tokens) of :owner, of listeners or of *ranges*. A row for
    each that is still valid: name, part, paused, position and revision.

    A term that is missing from the answer is lost, or its range is finished. The owner is compared
    too: a server that lost a claim gives its token to the next one. Locks the rows. Primary keys.
    """
    listeners = quoted(tables.listeners)
    table, which = listeners, "leased.name = held.name AND leased.partition = held.part"
    paused, join = "leased.paused_at", ""
    if ranges:
        table = quoted(tables.ranges)
        which = "leased.listener = held.name AND leased.number = held.part"
        paused, join = "l.paused_at", f"JOIN {listeners} AS l ON l.name = held.name"
        join += " AND l.partition = 0"
    return text(
        f"""
        UPDATE {table} AS leased SET {RENEWED}
        FROM unnest(:names, :parts, :tokens) AS held (name, part, token) {join}
        WHERE {which} AND leased.lease_token = held.token AND leased.locked_by = :owner
        RETURNING held.name, held.part, {paused} IS NOT NULL AS paused,
            leased.last_processed_id AS position, leased.revision
        """
    ).bindparams(
        bindparam("owner", type_=Text),
        bindparam("names", type_=ARRAY(Text)),
        bindparam("parts", type_=ARRAY(BigInteger)),
        bindparam("tokens", type_=ARRAY(BigInteger)),
        bindparam("duration", type_=Double),
    )
