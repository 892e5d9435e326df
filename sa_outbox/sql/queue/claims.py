"""Statements of queues: the one cursor that all processes share, and claiming events from it.

Whoever claims events locks the listener's row, or compares its revision, so no event is in two
ranges; whatever is claimed from the cursor is in a range, in a delivery's row, or settled. Each
write draws the revision at random: it is never that of a write that a crashed server has lost.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import bindparam
from sqlalchemy.dialects.postgresql import ARRAY
from sqlalchemy.types import BigInteger, Boolean, Double, Integer, Text

from ..listener.renewal import EXPIRY
from ..log import large_events
from ..log.matching import bound, matches, meets
from ..log.reads import event_of
from ..server.names import log_name, quoted
from ..server.timed_text import text
from ..server.times import NOW
from .ranges import FIRST_TERM, LEASE, NEW_REVISION

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlalchemy import TextClause

    from ...database.tables import Tables

_DUE = "listener = :name AND state IN ('scheduled', 'parked') AND range IS NULL"
_UNCLAIMED = (
    bindparam("first", type_=BigInteger),
    bindparam("upper", type_=BigInteger),
    bindparam("untaken", type_=Text),
)


def state(tables: Tables) -> TextClause:
    """The state of the queue :name. One row: position, gaps (text), revision, token (raised when an
    operator moves the queue), paused, urgent (whether there is an unclaimed event of priority above
    0), and seconds until a delivery is due and until a range that is not among :held is free (None:
    there is none).

    Few rows: ranges of one listener, and the first of an index for the others. The gaps are
    computed once, however many urgent events are examined.
    """
    seconds = f"CAST(extract(epoch FROM {{}} - {NOW}) AS float8)"
    deliveries = quoted(tables.deliveries)
    return text(
        f"""
        WITH queue AS MATERIALIZED (
            SELECT last_processed_id AS position, CAST(gaps AS text) AS gaps, revision,
                lease_token AS token, paused_at IS NOT NULL AS paused,
                coalesce(CAST(gaps -> 0 ->> 0 AS bigint), last_processed_id + 1) AS first,
                (SELECT range_agg(int8range(
                     CAST(gap ->> 0 AS bigint), CAST(gap ->> 1 AS bigint), '[]'))
                 FROM jsonb_array_elements(gaps) AS gap) AS untaken
            FROM {quoted(tables.listeners)} WHERE name = :name AND partition = 0
        )
        SELECT position, gaps, revision, token, paused,
            EXISTS (SELECT FROM {log_name(tables)} AS o WHERE o.priority > 0
                AND o.id >= (SELECT first FROM queue)
                AND (o.id > (SELECT position FROM queue)
                     OR (SELECT untaken FROM queue) @> o.id)) AS urgent,
            (SELECT {seconds.format("min(due_at)")} FROM {deliveries} WHERE {_DUE}) AS due_in,
            (SELECT min(CASE WHEN locked_by IS NULL THEN 0
                        ELSE {seconds.format("lease_expires_at")} END)
             FROM {quoted(tables.ranges)}
             WHERE listener = :name AND NOT number = ANY (:held)) AS free_in
        FROM queue
        """
    ).bindparams(bindparam("name", type_=Text), bindparam("held", type_=ARRAY(BigInteger)))


def busy(tables: Tables) -> TextClause:
    """Those of the queues :names with a range or a due delivery of an event up to :ceiling.

    With :retries also those with a failed delivery that is not due yet; without :others not those
    whose ranges are held by others than :owner. Not paused ones. For ``drain``. Few rows.
    """
    return text(
        f"""
        SELECT q.name FROM {quoted(tables.listeners)} AS q
        WHERE q.name = ANY (:names) AND q.partition = 0 AND q.paused_at IS NULL AND (EXISTS (
            SELECT FROM {quoted(tables.ranges)} AS r, jsonb_array_elements(r.gaps) AS gap
            WHERE r.listener = q.name AND CAST(gap ->> 0 AS bigint) <= :ceiling
              AND (:others OR r.locked_by IS NULL OR r.locked_by = :owner)
        ) OR EXISTS (
            SELECT FROM {quoted(tables.deliveries)} AS d
            WHERE d.listener = q.name AND d.state IN ('scheduled', 'parked') AND d.range IS NULL
              AND d.position <= :ceiling
              AND (d.due_at <= {NOW} OR (:retries AND d.attempts > 0))
        ))
        """
    ).bindparams(
        bindparam("names", type_=ARRAY(Text)),
        bindparam("ceiling", type_=BigInteger),
        bindparam("retries", type_=Boolean),
        bindparam("others", type_=Boolean),
        bindparam("owner", type_=Text),
    )


def lock(tables: Tables) -> TextClause:
    """Position, gaps (text), revision and paused of the queue :name. Locks its row: until the
    transaction ends, nobody else claims events. If this process is suspended in the middle, the
    server ends the transaction after :patience (``30s``): otherwise the others would wait forever.
    A process suspended between preparing a statement and running it is not idle for the server:
    from PostgreSQL 17 on there is a timeout for that, too."""
    return text(
        f"""
        SELECT last_processed_id AS position, CAST(gaps AS text) AS gaps, revision,
               paused_at IS NOT NULL AS paused,
               set_config('idle_in_transaction_session_timeout', :patience, true),
               CASE WHEN CAST(current_setting('server_version_num') AS int) >= 170000
                    THEN set_config('transaction_timeout', :patience, true) END
        FROM {quoted(tables.listeners)} WHERE name = :name AND partition = 0 FOR UPDATE
        """
    ).bindparams(bindparam("name", type_=Text), bindparam("patience", type_=Text))


def read_urgent(tables: Tables, types: Sequence[str], where: str | None = None) -> TextClause:
    """Up to :limit unclaimed events of these types with a priority above 0: those above :cursor and
    up to :upper, and in :untaken (a multirange), which begins with :first. Most urgent first. Those
    that do not meet the filter *where* are among them. Only urgent events are in the index that
    serves it.

    The multirange is a separate subquery: in the WHERE it would be parsed from its text for each
    event, which took half a minute with a thousand gaps.
    """
    inner = f"""
        SELECT {large_events.readable_columns("o", only_matching=True)}, o.matches,
               o.priority AS urgency
        FROM (SELECT *, {meets("true", where, carefully=True)} AS matches FROM {log_name(tables)}
              WHERE priority > 0 AND id >= :first AND id <= :upper AND {matches(types)}
                AND (id > :cursor OR (SELECT CAST(:untaken AS int8multirange)) @> id)
              ORDER BY priority DESC, id LIMIT :limit) AS o"""
    careful = large_events.careful(inner, order="e.urgency DESC, e.id")
    statement = bound(careful, types, where=where)
    return large_events.limited(statement).bindparams(*_UNCLAIMED)


def differ(tables: Tables, types: Sequence[str]) -> TextClause:
    """Whether the events that ``turns`` would choose from belong to more than one tenant. True,
    false, or null if there are none. Much cheaper than ``turns``: it sorts nothing, and stops at
    the first other tenant."""
    waiting = f"""
        {log_name(tables)} WHERE id >= :first AND id < :first + :window AND id <= :upper
        AND {matches(types)} AND priority >= 0 AND (run_at IS NULL OR run_at <= {NOW})
        AND (id > :cursor OR (SELECT CAST(:untaken AS int8multirange)) @> id)"""
    statement = bound(
        f"""
        WITH first AS MATERIALIZED (SELECT tenant FROM {waiting} ORDER BY id LIMIT 1)
        SELECT EXISTS (SELECT FROM {waiting}
                       AND tenant IS DISTINCT FROM (SELECT tenant FROM first)) AS differ
        FROM first
        """,
        types,
    )
    return statement.bindparams(*_UNCLAIMED, bindparam("window", type_=BigInteger))


def turns(tables: Tables, types: Sequence[str], where: str | None = None) -> TextClause:
    """Ids of up to :limit unclaimed events of these types: the first of each tenant, then the
    second of each, and so on. Reads :window ids from :first, the first unclaimed one, up to :upper,
    and nothing of them but their tenants, and for a filter *where* their payloads."""
    match = meets(matches(types), where)
    statement = bound(
        f"""
        SELECT id FROM (
            SELECT id, row_number() OVER (PARTITION BY tenant ORDER BY id) AS turn
            FROM {log_name(tables)}
            WHERE id >= :first AND id < :first + :window AND id <= :upper AND {match}
              AND priority >= 0 AND (run_at IS NULL OR run_at <= {NOW})
              AND (id > :cursor OR (SELECT CAST(:untaken AS int8multirange)) @> id)
        ) AS waiting ORDER BY turn, id LIMIT :limit
        """,
        types,
        where=where,
    )
    return statement.bindparams(*_UNCLAIMED, bindparam("window", type_=BigInteger))


def read_chosen(tables: Tables) -> TextClause:
    """The events :ids, in this order. Served by the partitions' primary keys, which the LIMIT
    ensures: without it, many ids were joined with a scan of the whole log."""
    inner = f"""
        SELECT {large_events.readable_columns("o")}, true AS matches, chosen.place
        FROM unnest(:ids) WITH ORDINALITY AS chosen (id, place) CROSS JOIN LATERAL (
            SELECT * FROM {log_name(tables)} AS l WHERE l.id = chosen.id LIMIT 1
        ) AS o OFFSET 0"""
    statement = text(large_events.careful(inner, order="e.place"))
    return large_events.limited(statement).bindparams(bindparam("ids", type_=ARRAY(BigInteger)))


def take(tables: Tables) -> TextClause:
    """Move the queue's cursor from :revision on to :position with these :gaps, and create a range
    of the ids in :taken (JSON, like gaps) with :upper as the highest, for :owner. Columns of a
    lease, and moved_to, the queue's new revision.

    No row if someone moved or paused it since: then nothing is claimed. Not :durable, a server that
    crashes may lose the claim: ``consumer/queue/durability.py``.
    """
    return text(
        f"""
        WITH moved AS (
            UPDATE {quoted(tables.listeners)}
            SET last_processed_id = :position, gaps = CAST(:gaps AS jsonb),
                revision = {NEW_REVISION}, updated_at = {NOW}
            WHERE name = :name AND partition = 0 AND revision = :revision AND paused_at IS NULL
            RETURNING name, revision
        )
        INSERT INTO {quoted(tables.ranges)}
            (listener, last_processed_id, gaps, locked_by, lease_token, lease_expires_at)
        SELECT name, :upper, CAST(:taken AS jsonb), :owner, {FIRST_TERM}, {EXPIRY} FROM moved
        RETURNING {LEASE}, (SELECT moved.revision FROM moved) AS moved_to,
            CASE WHEN NOT :durable THEN set_config('synchronous_commit', 'off', true) END
        """
    ).bindparams(
        bindparam("name", type_=Text),
        bindparam("revision", type_=BigInteger),
        bindparam("position", type_=BigInteger),
        bindparam("gaps", type_=Text),
        bindparam("upper", type_=BigInteger),
        bindparam("taken", type_=Text),
        bindparam("owner", type_=Text),
        bindparam("duration", type_=Double),
        bindparam("durable", type_=Boolean),
    )


def pass_over(tables: Tables) -> TextClause:
    """Move the queue's cursor from :revision on to :position with these :gaps, without a range:
    nothing is to be handled now. The new revision; no row if someone has moved it since."""
    return text(
        f"""
        UPDATE {quoted(tables.listeners)}
        SET last_processed_id = :position, gaps = CAST(:gaps AS jsonb), revision = {NEW_REVISION},
            updated_at = {NOW}
        WHERE name = :name AND partition = 0 AND revision = :revision RETURNING revision
        """
    ).bindparams(
        bindparam("name", type_=Text),
        bindparam("revision", type_=BigInteger),
        bindparam("position", type_=BigInteger),
        bindparam("gaps", type_=Text),
    )


def take_due(tables: Tables) -> TextClause:
    """Create a range for :owner of up to :limit due deliveries of the queue :name.

    Of priority :least or more, by priority, or with :by_age the oldest first. Columns of an event,
    then attempts, state, and those of a lease; a careful read, and only what it returns is
    claimed. If the events of all of them are gone, one row with the lease alone, so that its owner
    knows of it. Locks the deliveries it claims and skips those that others have locked.
    """
    deliveries, ranges = quoted(tables.deliveries), quoted(tables.ranges)
    inner = f"""
        SELECT {large_events.readable_columns("o")}, true AS matches, due.attempts,
               due.state, due.position AS place, due.due_at,
               CASE WHEN :by_age THEN 0 ELSE due.priority END AS urgency
        FROM due LEFT JOIN LATERAL {event_of(tables, "due")} AS o ON true OFFSET 0"""
    order = "e.urgency DESC, e.due_at, e.place"
    known = ", e.attempts, e.state"
    kept = large_events.careful(inner, order=order, more=f"{known}, e.place, e.due_at, e.urgency")
    statement = text(
        f"""
        WITH due AS MATERIALIZED (
            SELECT position, dead_letter, attempts, state, priority, due_at
            FROM {deliveries}
            WHERE {_DUE} AND due_at <= {NOW} AND priority >= :least
            ORDER BY CASE WHEN :by_age THEN 0 ELSE priority END DESC, due_at
            LIMIT :limit FOR UPDATE SKIP LOCKED
        ), kept AS MATERIALIZED ({kept}
        ), made AS (
            INSERT INTO {ranges}
                (listener, last_processed_id, gaps, locked_by, lease_token, lease_expires_at)
            SELECT :name, max(place),
                   jsonb_agg(jsonb_build_array(place, place) ORDER BY place),
                   :owner, {FIRST_TERM}, {EXPIRY}
            FROM kept HAVING count(*) > 0 RETURNING {LEASE}
        ), held AS (
            UPDATE {deliveries} AS d SET range = made.part, updated_at = {NOW}
            FROM kept, made WHERE d.listener = :name AND d.position = kept.place
        )
        SELECT {large_events.selected()}{known}, e.size, made.*
        FROM made LEFT JOIN kept AS e ON e.id IS NOT NULL ORDER BY {order}
        """
    ).bindparams(
        bindparam("name", type_=Text),
        bindparam("by_age", type_=Boolean),
        bindparam("least", type_=Integer),
        bindparam("limit", type_=Integer),
        bindparam("owner", type_=Text),
        bindparam("duration", type_=Double),
    )
    return large_events.limited(statement)
