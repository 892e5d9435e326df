"""Statements of queues: the one cursor that all processes share, and taking events from it.

Who takes events locks the listener's row, or compares its revision, so no event is in two ranges;
whatever is taken from the cursor is in a range, in a delivery's row, or settled.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import bindparam, text
from sqlalchemy.dialects.postgresql import ARRAY
from sqlalchemy.types import BigInteger, Boolean, Double, Integer, Text

from .names import log_name, quoted
from .ranges import EXPIRY, LEASE
from .reading import bound, columns, event_of, matches

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlalchemy import TextClause

    from ..tables import Tables

_DUE = "listener = :name AND state IN ('scheduled', 'parked') AND range IS NULL"


def state(tables: Tables) -> TextClause:
    """Where the queue :name stands. One row: position, gaps (text), revision, token (a person who
    moves the queue raises it), paused, urgent (whether an event of priority above 0 was not taken
    yet), and seconds until a delivery is due and until a range that is not among :held is free
    (None: there is none).

    Few rows: ranges of one listener, and the first of an index for the others. What the gaps are is
    computed once, however many urgent events are looked at.
    """
    seconds = "CAST(extract(epoch FROM {} - clock_timestamp()) AS float8)"
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
    """Of the queues :names, those with a range or a due delivery of an event up to :ceiling.

    With :retries also those with a delivery that failed and is not due yet, else not those whose
    ranges others than :owner hold. Not those that are paused. For ``drain``. Few rows.
    """
    return text(
        f"""
        SELECT q.name FROM {quoted(tables.listeners)} AS q
        WHERE q.name = ANY (:names) AND q.partition = 0 AND q.paused_at IS NULL AND (EXISTS (
            SELECT FROM {quoted(tables.ranges)} AS r, jsonb_array_elements(r.gaps) AS gap
            WHERE r.listener = q.name AND CAST(gap ->> 0 AS bigint) <= :ceiling
              AND (:retries OR r.locked_by IS NULL OR r.locked_by = :owner)
        ) OR EXISTS (
            SELECT FROM {quoted(tables.deliveries)} AS d
            WHERE d.listener = q.name AND d.state IN ('scheduled', 'parked') AND d.range IS NULL
              AND d.position <= :ceiling
              AND (d.due_at <= clock_timestamp() OR (:retries AND d.attempts > 0))
        ))
        """
    ).bindparams(
        bindparam("names", type_=ARRAY(Text)),
        bindparam("ceiling", type_=BigInteger),
        bindparam("retries", type_=Boolean),
        bindparam("owner", type_=Text),
    )


def lock(tables: Tables) -> TextClause:
    """Position, gaps (text), revision and paused of the queue :name. Locks its row: until the
    transaction ends, nobody else takes events. If this process sleeps in the middle, the server
    ends the transaction after :patience (``30s``): the others would wait for ever. One that sleeps
    between preparing a statement and running it is not idle for the server: from PostgreSQL 17 on
    there is a timeout for that, too."""
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


def read_urgent(tables: Tables, types: Sequence[str]) -> TextClause:
    """Up to :limit events of these types with a priority above 0 that were not taken yet: those
    above :cursor, and in :untaken (a multirange), which begin with :first. Most urgent first. Only
    urgent events are in the index that serves it.

    The multirange is a subquery of its own: in the WHERE it would be read from its text for each
    event, which took half a minute with a thousand gaps.
    """
    statement = bound(
        f"""
        SELECT {columns()}, true AS matches FROM {log_name(tables)} AS o
        WHERE o.priority > 0 AND o.id >= :first AND {matches(types)}
          AND (o.id > :cursor OR (SELECT CAST(:untaken AS int8multirange)) @> o.id)
        ORDER BY o.priority DESC, o.id LIMIT :limit
        """,
        types,
    )
    return statement.bindparams(
        bindparam("first", type_=BigInteger), bindparam("untaken", type_=Text)
    )


def differ(tables: Tables, types: Sequence[str]) -> TextClause:
    """Whether the events that ``turns`` would choose from are of more than one tenant. True,
    false, or null if there are none. Far less than that: it sorts nothing, and ends at the first
    that is another's."""
    waiting = f"""
        {log_name(tables)} WHERE id >= :first AND id < :first + :window AND {matches(types)}
        AND priority >= 0 AND (run_at IS NULL OR run_at <= clock_timestamp())
        AND (id > :cursor OR (SELECT CAST(:untaken AS int8multirange)) @> id)"""
    statement = bound(
        f"""
        WITH first AS MATERIALIZED (SELECT tenant FROM {waiting} ORDER BY id LIMIT 1)
        SELECT EXISTS (SELECT FROM {waiting}
                       AND tenant IS DISTINCT FROM (SELECT tenant FROM first))
        FROM first
        """,
        types,
    )
    return statement.bindparams(
        bindparam("first", type_=BigInteger),
        bindparam("window", type_=BigInteger),
        bindparam("untaken", type_=Text),
    )


def turns(tables: Tables, types: Sequence[str]) -> TextClause:
    """Ids of up to :limit events of these types that were not taken yet, of each tenant the first,
    then of each the second, and so on. Looks at :window ids from :first, the first that was not
    taken, and at nothing of them but their tenants."""
    statement = bound(
        f"""
        SELECT id FROM (
            SELECT id, row_number() OVER (PARTITION BY tenant ORDER BY id) AS turn
            FROM {log_name(tables)}
            WHERE id >= :first AND id < :first + :window AND {matches(types)}
              AND priority >= 0 AND (run_at IS NULL OR run_at <= clock_timestamp())
              AND (id > :cursor OR (SELECT CAST(:untaken AS int8multirange)) @> id)
        ) AS waiting ORDER BY turn, id LIMIT :limit
        """,
        types,
    )
    return statement.bindparams(
        bindparam("first", type_=BigInteger),
        bindparam("window", type_=BigInteger),
        bindparam("untaken", type_=Text),
    )


def read_chosen(tables: Tables) -> TextClause:
    """The events :ids, in this order. Served by the partitions' primary keys, as the LIMIT sees
    to: without it, many ids were joined with a scan of the whole log."""
    return text(
        f"""
        SELECT {columns()}, true AS matches
        FROM unnest(:ids) WITH ORDINALITY AS chosen (id, place) CROSS JOIN LATERAL (
            SELECT * FROM {log_name(tables)} AS l WHERE l.id = chosen.id LIMIT 1
        ) AS o ORDER BY chosen.place
        """
    ).bindparams(bindparam("ids", type_=ARRAY(BigInteger)))


def take(tables: Tables) -> TextClause:
    """Move the queue's cursor from :revision on to :position with these :gaps, and make a range of
    the ids in :taken (JSON, as gaps) with :upper as the highest, for :owner. Columns of a lease.

    No row if somebody moved or paused it since: then nothing is taken.
    """
    return text(
        f"""
        WITH moved AS (
            UPDATE {quoted(tables.listeners)}
            SET last_processed_id = :position, gaps = CAST(:gaps AS jsonb), revision = revision + 1,
                updated_at = clock_timestamp()
            WHERE name = :name AND partition = 0 AND revision = :revision AND paused_at IS NULL
            RETURNING name
        )
        INSERT INTO {quoted(tables.ranges)}
            (listener, last_processed_id, gaps, locked_by, lease_expires_at)
        SELECT name, :upper, CAST(:taken AS jsonb), :owner, {EXPIRY} FROM moved
        RETURNING {LEASE}
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
    )


def pass_over(tables: Tables) -> TextClause:
    """The same without a range: nothing of what was read is to be handled now."""
    return text(
        f"""
        UPDATE {quoted(tables.listeners)}
        SET last_processed_id = :position, gaps = CAST(:gaps AS jsonb), revision = revision + 1,
            updated_at = clock_timestamp()
        WHERE name = :name AND partition = 0 AND revision = :revision RETURNING name
        """
    ).bindparams(
        bindparam("name", type_=Text),
        bindparam("revision", type_=BigInteger),
        bindparam("position", type_=BigInteger),
        bindparam("gaps", type_=Text),
    )


def take_due(tables: Tables) -> TextClause:
    """Make a range for :owner of up to :limit deliveries of the queue :name that are due.

    Of priority :least or more, by priority, or with :by_age the oldest first. Columns of an event,
    then attempts, crashes, state, and those of a lease. Locks the deliveries it takes and passes by
    those that others take.
    """
    deliveries, ranges = quoted(tables.deliveries), quoted(tables.ranges)
    return text(
        f"""
        WITH due AS MATERIALIZED (
            SELECT position FROM {deliveries}
            WHERE {_DUE} AND due_at <= clock_timestamp() AND priority >= :least
            ORDER BY CASE WHEN :by_age THEN 0 ELSE priority END DESC, due_at
            LIMIT :limit FOR UPDATE SKIP LOCKED
        ), made AS (
            INSERT INTO {ranges} (listener, last_processed_id, gaps, locked_by, lease_expires_at)
            SELECT :name, max(position),
                   jsonb_agg(jsonb_build_array(position, position) ORDER BY position),
                   :owner, {EXPIRY}
            FROM due HAVING count(*) > 0 RETURNING {LEASE}
        ), held AS (
            UPDATE {deliveries} AS d SET range = made.part, updated_at = clock_timestamp()
            FROM due, made WHERE d.listener = :name AND d.position = due.position
            RETURNING d.position, d.dead_letter, d.attempts, d.crashes, d.state, d.due_at
        )
        SELECT {columns()}, true AS matches, held.attempts, held.crashes AS earlier_crashes,
               held.state, made.*
        FROM held CROSS JOIN made CROSS JOIN LATERAL {event_of(tables, "held")} AS o
        ORDER BY CASE WHEN :by_age THEN 0 ELSE o.priority END DESC, held.due_at
        """
    ).bindparams(
        bindparam("name", type_=Text),
        bindparam("by_age", type_=Boolean),
        bindparam("least", type_=Integer),
        bindparam("limit", type_=Integer),
        bindparam("owner", type_=Text),
        bindparam("duration", type_=Double),
    )
