"""Statements on leases of listeners. A lease is a term: known by its token, never by a name alone.

All times are the database's clock at the moment, not the transaction's beginning.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import bindparam, text
from sqlalchemy.dialects.postgresql import ARRAY
from sqlalchemy.types import BigInteger, Boolean, Double, Text

from .names import quoted

if TYPE_CHECKING:
    from sqlalchemy import TextClause

    from ..tables import Tables

_SPAN = "make_interval(secs => :duration)"


def claim(tables: Tables) -> TextClause:
    """Claim those of the listeners :names that are free or expired, for :owner.

    A row each: name, part (the partition), token, position, gaps (text), revision, retry_count,
    retry_position, retry_in (seconds), crashes (holders that died in a row: an expired lease of
    another owner is one), fingerprint.
    Locks the rows it claims; one that somebody else works on right now is passed by. Primary key.
    """
    listeners = quoted(tables.listeners)
    return text(
        f"""
        WITH free AS MATERIALIZED (
            SELECT name, partition, locked_by FROM {listeners}
            WHERE name = ANY (:names) AND paused_at IS NULL
              AND (locked_by IS NULL OR lease_expires_at <= clock_timestamp())
            ORDER BY name FOR UPDATE SKIP LOCKED
        )
        UPDATE {listeners} AS l
        SET locked_by = :owner, lease_token = l.lease_token + 1,
            lease_expires_at = clock_timestamp() + {_SPAN}, updated_at = clock_timestamp(),
            crashes = l.crashes + CASE WHEN free.locked_by <> :owner THEN 1 ELSE 0 END
        FROM free WHERE l.name = free.name AND l.partition = free.partition
        RETURNING l.name, l.partition AS part, l.lease_token AS token,
            l.last_processed_id AS position, CAST(l.gaps AS text) AS gaps, l.revision,
            l.retry_count, l.retry_position,
            CAST(extract(epoch FROM l.retry_after - clock_timestamp()) AS float8) AS retry_in,
            l.crashes, l.fingerprint
        """
    ).bindparams(
        bindparam("names", type_=ARRAY(Text)),
        bindparam("owner", type_=Text),
        bindparam("duration", type_=Double),
    )


def renew(tables: Tables) -> TextClause:
    """Renew the terms (:names, :parts, :tokens). A row for each that stands: name, part, paused.

    A term that is missing from the answer is lost. Locks the rows. Primary key.
    """
    return text(
        f"""
        UPDATE {quoted(tables.listeners)} AS l
        SET lease_expires_at = clock_timestamp() + {_SPAN}, updated_at = clock_timestamp()
        FROM unnest(:names, :parts, :tokens) AS held (name, part, token)
        WHERE l.name = held.name AND l.partition = held.part AND l.lease_token = held.token
          AND l.locked_by IS NOT NULL
        RETURNING l.name, l.partition AS part, l.paused_at IS NOT NULL AS paused
        """
    ).bindparams(
        bindparam("names", type_=ARRAY(Text)),
        bindparam("parts", type_=ARRAY(BigInteger)),
        bindparam("tokens", type_=ARRAY(BigInteger)),
        bindparam("duration", type_=Double),
    )


def release(tables: Tables) -> TextClause:
    """Give the term (:name, :part, :token) back: free at once. Nothing if it is not ours any more.

    :crashed: its holder had stopped trusting it, so a handler may have blocked the process.
    """
    return text(
        f"""
        UPDATE {quoted(tables.listeners)}
        SET locked_by = NULL, lease_expires_at = NULL, updated_at = clock_timestamp(),
            crashes = crashes + CASE WHEN :crashed THEN 1 ELSE 0 END
        WHERE name = :name AND partition = :part AND lease_token = :token
          AND locked_by IS NOT NULL
        RETURNING name
        """
    ).bindparams(bindparam("crashed", type_=Boolean))


def standing(tables: Tables) -> TextClause:
    """Seconds until the first lease of others among :names expires; None if there is none."""
    return text(
        f"""
        SELECT CAST(extract(epoch FROM min(lease_expires_at) - clock_timestamp()) AS float8)
        FROM {quoted(tables.listeners)}
        WHERE name = ANY (:names) AND locked_by IS NOT NULL AND paused_at IS NULL
        """
    ).bindparams(bindparam("names", type_=ARRAY(Text)))
