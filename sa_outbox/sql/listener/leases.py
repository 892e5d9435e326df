"""Statements on leases of listeners. A lease is a term: identified by its token, never by a name
alone.

All times are the database's clock at the moment, not at the beginning of the transaction.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import bindparam
from sqlalchemy.dialects.postgresql import ARRAY
from sqlalchemy.types import Boolean, Double, SmallInteger, Text

from ..server.names import quoted
from ..server.timed_text import text
from ..server.times import NOW
from .renewal import EXPIRY, RENEWED
from .suspects import CRASHED

if TYPE_CHECKING:
    from sqlalchemy import Table, TextClause

    from ...database.tables import Tables

# A cursor that has reached a barrier waits there for the partitions to be changed.
_AT_BARRIER = f"coalesce(l.barrier_expires_at > {NOW} AND l.last_processed_id >= l.barrier, false)"


def claim(tables: Tables) -> TextClause:
    """Claim those of (:names, :parts) that are free or expired, for :owner.

    A row each: name, part (the partition), count (of partitions), token, position, gaps (text),
    revision, retry_count, retry_position, retry_in (seconds), crashes (holders that vanished: an
    expired lease of another owner is one), fingerprint, suspects (text), owner. Locks the rows it
    claims; skips one that someone else has locked right now. Primary key.
    """
    listeners = quoted(tables.listeners)
    return text(
        f"""
        WITH free AS MATERIALIZED (
            SELECT l.name, l.partition,
                l.locked_by IS NOT NULL AND l.locked_by <> :owner AS crashed
            FROM unnest(:names, :parts) AS wanted (name, part)
            JOIN {listeners} AS l ON l.name = wanted.name AND l.partition = wanted.part
            WHERE l.paused_at IS NULL AND NOT {_AT_BARRIER}
              AND (l.locked_by IS NULL OR l.lease_expires_at <= {NOW})
            ORDER BY l.name, l.partition FOR UPDATE OF l SKIP LOCKED
        )
        UPDATE {listeners} AS l
        SET locked_by = :owner, lease_token = l.lease_token + 1,
            {RENEWED},
            crashes = l.crashes + CASE WHEN free.crashed THEN 1 ELSE 0 END,
            crashed_terms = CASE WHEN free.crashed THEN {CRASHED.format("l.lease_token")}
                                 ELSE l.crashed_terms END
        FROM free WHERE l.name = free.name AND l.partition = free.partition
        RETURNING l.name, l.partition AS part, l.partition_count AS count, l.lease_token AS token,
            l.last_processed_id AS position, CAST(l.gaps AS text) AS gaps, l.revision,
            l.retry_count, l.retry_position,
            CAST(extract(epoch FROM l.retry_after - {NOW}) AS float8) AS retry_in,
            l.crashes, l.fingerprint, CAST(l.suspects AS text) AS suspects, l.locked_by AS owner
        """
    ).bindparams(
        bindparam("names", type_=ARRAY(Text)),
        bindparam("parts", type_=ARRAY(SmallInteger)),
        bindparam("owner", type_=Text),
        bindparam("duration", type_=Double),
    )


def release(tables: Tables) -> TextClause:
    """Release the term (:name, :part, :token) of :owner: free at once. No effect if it is no longer
    ours.

    :crashed: its holder had stopped trusting it and was not awake: a handler may have blocked it.
    """
    return text(
        f"""
        UPDATE {quoted(tables.listeners)}
        SET locked_by = NULL, lease_expires_at = NULL, updated_at = {NOW},
            crashes = crashes + CASE WHEN :crashed THEN 1 ELSE 0 END,
            crashed_terms = CASE WHEN :crashed THEN {CRASHED.format("lease_token")}
                                 ELSE crashed_terms END
        WHERE name = :name AND partition = :part AND lease_token = :token
          AND locked_by = :owner
        RETURNING name
        """
    ).bindparams(bindparam("crashed", type_=Boolean), bindparam("owner", type_=Text))


def release_all(table: Table) -> TextClause:
    """Release whatever is leased to :owner in *table*, listeners or ranges of queues: a row for
    each. For a process that has stopped working. A small table."""
    return text(
        f"""
        UPDATE {quoted(table)}
        SET locked_by = NULL, lease_expires_at = NULL, updated_at = {NOW}
        WHERE locked_by = :owner RETURNING true
        """
    ).bindparams(bindparam("owner", type_=Text))


def survey(tables: Tables) -> TextClause:
    """Who holds what: a row for each partition of each listener.

    name, part, owner (None: free, or expired), expires_in (seconds, of a lease that has not
    expired), paused, barrier (None: none), at_barrier, and consumers: the owners that have
    announced themselves for this listener. Locks nothing. Reads all of two small tables, so that
    every consumer computes the same shares.
    """
    return text(
        f"""
        SELECT l.name, l.partition AS part,
            CASE WHEN l.lease_expires_at > {NOW} THEN l.locked_by END AS owner,
            CASE WHEN l.lease_expires_at > {NOW} THEN
                CAST(extract(epoch FROM l.lease_expires_at - {NOW}) AS float8)
            END AS expires_in,
            l.paused_at IS NOT NULL AS paused,
            CASE WHEN l.barrier_expires_at > {NOW} THEN l.barrier END AS barrier,
            {_AT_BARRIER} AS at_barrier,
            ARRAY(SELECT c.owner FROM {quoted(tables.consumers)} AS c
                  WHERE l.name = ANY (c.listeners) AND c.expires_at > {NOW})
                AS consumers
        FROM {quoted(tables.listeners)} AS l ORDER BY l.name, l.partition
        """
    )


def announce(tables: Tables) -> TextClause:
    """Announce that :owner works on the listeners :names and the :queues, until its lease would
    expire; and remove announcements of owners that are gone. Queues separately: nobody has a share
    of one."""
    consumers = quoted(tables.consumers)
    return text(
        f"""
        WITH gone AS (
            DELETE FROM {consumers} WHERE owner IN (
                SELECT owner FROM {consumers}
                WHERE expires_at <= {NOW} AND owner <> :owner
                FOR UPDATE SKIP LOCKED)
        )
        INSERT INTO {consumers} (owner, listeners, queues, expires_at)
        VALUES (:owner, :names, :queues, {EXPIRY})
        ON CONFLICT (owner) DO UPDATE SET expires_at = excluded.expires_at
        """
    ).bindparams(
        bindparam("owner", type_=Text),
        bindparam("names", type_=ARRAY(Text)),
        bindparam("queues", type_=ARRAY(Text)),
        bindparam("duration", type_=Double),
    )


def withdraw(tables: Tables) -> TextClause:
    """Remove the announcement of :owner, which starts nothing new: what it holds is for the
    others. A row if there was one."""
    return text(
        f"DELETE FROM {quoted(tables.consumers)} WHERE owner = :owner RETURNING true"
    ).bindparams(bindparam("owner", type_=Text))
