"""Version 1: all tables.

Frozen: once released, this file is never edited; ``tests/migration/frozen.json`` holds its hash.
"""

from __future__ import annotations

from .identifiers import qualified

PARTITION_SIZE = 1_000_000
FIRST_PARTITIONS = 4

# A partition only ever grows. Vacuumed each 100,000 rows, and frozen at once: no page of it is
# written a second time by an anti-wraparound vacuum years later. A partitioned parent has no
# storage of its own and refuses these settings.
_INSERT_ONLY = (
    "autovacuum_vacuum_insert_scale_factor = 0, "
    "autovacuum_vacuum_insert_threshold = 100000, "
    "autovacuum_freeze_min_age = 0"
)

# Few rows, updated all the time: half of each page is free, so that an update stays in its page
# and touches no index, and dead versions are removed as soon as there are some.
_SMALL_AND_HOT = (
    "fillfactor = 50, "
    "autovacuum_vacuum_scale_factor = 0, "
    "autovacuum_vacuum_threshold = 100, "
    "autovacuum_analyze_scale_factor = 0, "
    "autovacuum_analyze_threshold = 1000, "
    "autovacuum_vacuum_cost_delay = 0"
)

# Rows come, are updated and deleted: vacuumed well before the usual fifth of the table is dead.
_COMES_AND_GOES = (
    "fillfactor = 70, "
    "autovacuum_vacuum_scale_factor = 0.02, "
    "autovacuum_vacuum_threshold = 500, "
    "autovacuum_analyze_scale_factor = 0.05"
)


def upgrade(schema: str | None, prefix: str) -> tuple[str, ...]:
    return (
        *create_schema(schema),
        *_meta(schema, prefix),
        *_log(schema, prefix),
        *_listeners(schema, prefix),
        *_consumers(schema, prefix),
        *_deliveries(schema, prefix),
        *_ranges(schema, prefix),
        *_dead_letters(schema, prefix),
        *_idempotency_keys(schema, prefix),
        *_audit(schema, prefix),
        *_inbox(schema, prefix),
        *_results(schema, prefix),
        *_crons(schema, prefix),
        *_endpoints(schema, prefix),
        *_backlog(schema, prefix),
        *_version(schema, prefix),
    )


def downgrade(schema: str | None, prefix: str) -> tuple[str, ...]:
    suffixes = (
        "_inbox",
        "_endpoints",
        "_crons",
        "_results",
        "_audit",
        "_idempotency_keys",
        "_dead_letters",
        "_ranges",
        "_deliveries",
        "_consumers",
        "_listeners",
        "",  # with every partition
        "_meta",
    )
    # IF EXISTS: also what is only half there can be taken away.
    names = [qualified(schema, prefix + suffix) for suffix in suffixes]
    backlog = qualified(schema, prefix + "_backlog")
    return (
        f"DROP VIEW IF EXISTS {backlog}",
        *(f"DROP TABLE IF EXISTS {name}" for name in names),
    )


def create_schema(schema: str | None) -> tuple[str, ...]:
    """Make the schema unless it is there."""
    if schema is None:
        return ()
    # Not CREATE SCHEMA IF NOT EXISTS: that asks for the right to create schemas even when there
    # is nothing to create.
    return (
        f"""\
DO $outbox$
BEGIN
    IF NOT EXISTS (SELECT FROM pg_catalog.pg_namespace WHERE nspname = '{schema}') THEN
        CREATE SCHEMA "{schema}";
    END IF;
END
$outbox$""",
    )


def _meta(schema: str | None, prefix: str) -> tuple[str, ...]:
    return (
        f"""\
CREATE TABLE {qualified(schema, prefix + "_meta")} (
    "singleton" boolean NOT NULL DEFAULT true,
    "schema_version" integer NOT NULL,
    "compatible_since" integer NOT NULL,
    "epoch" bigint NOT NULL DEFAULT 1,
    "system_identifier" bigint,
    "database_oid" bigint,
    "partition_size" bigint NOT NULL,
    "created_at" timestamp with time zone NOT NULL DEFAULT clock_timestamp(),
    "migrated_at" timestamp with time zone NOT NULL DEFAULT clock_timestamp(),
    CONSTRAINT "{prefix}_meta_pkey" PRIMARY KEY ("singleton"),
    CONSTRAINT "{prefix}_meta_singleton_check" CHECK ("singleton")
)""",
    )


def _log(schema: str | None, prefix: str) -> tuple[str, ...]:
    log = qualified(schema, prefix)
    parent = f"""\
CREATE TABLE {log} (
    "id" bigint NOT NULL GENERATED ALWAYS AS IDENTITY (CACHE 1),
    "event_id" uuid NOT NULL,
    "event_type" text NOT NULL,
    "key" text,
    "tenant" text,
    "payload" jsonb NOT NULL,
    "headers" jsonb NOT NULL DEFAULT '{{}}',
    "run_at" timestamp with time zone,
    "priority" smallint NOT NULL DEFAULT 0,
    "created_at" timestamp with time zone NOT NULL DEFAULT clock_timestamp(),
    CONSTRAINT "{prefix}_pkey" PRIMARY KEY ("id"),
    CONSTRAINT "{prefix}_type_check" CHECK (char_length("event_type") <= 200),
    CONSTRAINT "{prefix}_key_check" CHECK (octet_length("key") <= 512),
    CONSTRAINT "{prefix}_tenant_check" CHECK (octet_length("tenant") <= 512),
    CONSTRAINT "{prefix}_time_check" CHECK (isfinite("run_at") AND isfinite("created_at"))
) PARTITION BY RANGE ("id")"""
    # Partition n holds the ids from n * size up to (n + 1) * size.
    partitions = [
        f"CREATE TABLE {qualified(schema, f'{prefix}_p{number}')} PARTITION OF {log}\n"
        f"    FOR VALUES FROM ({'MINVALUE' if number == 0 else number * PARTITION_SIZE})"
        f" TO ({(number + 1) * PARTITION_SIZE})\n"
        f"    WITH ({_INSERT_ONLY})"
        for number in range(FIRST_PARTITIONS)
    ]
    # Whatever no other partition takes: an insert never fails for want of one.
    rest = (
        f"CREATE TABLE {qualified(schema, prefix + '_rest')} PARTITION OF {log}\n"
        f"    DEFAULT\n"
        f"    WITH ({_INSERT_ONLY})"
    )
    # Both cost an ordinary event next to nothing: the one does not hold it, and the other keeps a
    # few bytes for many pages, which is enough because event ids grow with time.
    urgent = f"""\
CREATE INDEX "{prefix}_urgent_idx"
    ON {log} ("id")
    WHERE "priority" > 0"""
    by_event_id = f"""\
CREATE INDEX "{prefix}_event_id_idx"
    ON {log} USING brin ("event_id")
    WITH (pages_per_range = 16)"""
    return (parent, urgent, by_event_id, *partitions, rest)


def _listeners(schema: str | None, prefix: str) -> tuple[str, ...]:
    return (
        f"""\
CREATE TABLE {qualified(schema, prefix + "_listeners")} (
    "name" text NOT NULL,
    "partition" smallint NOT NULL DEFAULT 0,
    "partition_count" smallint NOT NULL DEFAULT 1,
    "last_processed_id" bigint NOT NULL DEFAULT 0,
    "revision" bigint NOT NULL DEFAULT 0,
    "gaps" jsonb NOT NULL DEFAULT '[]',
    "retry_count" integer NOT NULL DEFAULT 0,
    "retry_position" bigint,
    "crashes" integer NOT NULL DEFAULT 0,
    "crashed_terms" bigint[] NOT NULL DEFAULT '{{}}',
    "suspects" jsonb NOT NULL DEFAULT '{{}}',
    "retry_after" timestamp with time zone,
    "errors" jsonb NOT NULL DEFAULT '[]',
    "last_error_code" text,
    "last_error" text,
    "last_error_at" timestamp with time zone,
    "locked_by" text,
    "lease_token" bigint NOT NULL DEFAULT 0,
    "lease_expires_at" timestamp with time zone,
    "paused_at" timestamp with time zone,
    "barrier" bigint,
    "barrier_expires_at" timestamp with time zone,
    "fingerprint" text,
    "event_types" text[],
    "payload_filter" jsonb,
    "tenant" text,
    "ordering" text,
    "created_at" timestamp with time zone NOT NULL DEFAULT clock_timestamp(),
    "updated_at" timestamp with time zone NOT NULL DEFAULT clock_timestamp(),
    CONSTRAINT "{prefix}_listeners_pkey" PRIMARY KEY ("name", "partition"),
    CONSTRAINT "{prefix}_listeners_partition_check"
        CHECK ("partition" >= 0 AND "partition" < "partition_count")
) WITH ({_SMALL_AND_HOT})""",
    )


def _consumers(schema: str | None, prefix: str) -> tuple[str, ...]:
    return (
        f"""\
CREATE TABLE {qualified(schema, prefix + "_consumers")} (
    "owner" text NOT NULL,
    "listeners" text[] NOT NULL,
    "queues" text[] NOT NULL DEFAULT '{{}}',
    "started_at" timestamp with time zone NOT NULL DEFAULT clock_timestamp(),
    "expires_at" timestamp with time zone NOT NULL,
    CONSTRAINT "{prefix}_consumers_pkey" PRIMARY KEY ("owner")
) WITH ({_SMALL_AND_HOT})""",
    )


def _deliveries(schema: str | None, prefix: str) -> tuple[str, ...]:
    deliveries = qualified(schema, prefix + "_deliveries")
    return (
        f"""\
CREATE TABLE {deliveries} (
    "listener" text NOT NULL,
    "position" bigint NOT NULL,
    "partition" smallint NOT NULL DEFAULT 0,
    "event_id" uuid NOT NULL,
    "event_type" text NOT NULL,
    "key" text,
    "tenant" text,
    "state" text NOT NULL,
    "priority" smallint NOT NULL DEFAULT 0,
    "due_at" timestamp with time zone,
    "attempts" integer NOT NULL DEFAULT 0,
    "errors" jsonb NOT NULL DEFAULT '[]',
    "last_error_code" text,
    "last_error" text,
    "range" bigint,
    "dead_letter" bigint,
    "cancel_requested_at" timestamp with time zone,
    "cancel_reason" text,
    "cancel_actor" jsonb,
    "created_at" timestamp with time zone NOT NULL DEFAULT clock_timestamp(),
    "updated_at" timestamp with time zone NOT NULL DEFAULT clock_timestamp(),
    CONSTRAINT "{prefix}_deliveries_pkey" PRIMARY KEY ("listener", "position"),
    CONSTRAINT "{prefix}_deliveries_state_check"
        CHECK ("state" IN ('scheduled', 'parked', 'behind', 'cancelled')),
    CONSTRAINT "{prefix}_deliveries_due_check"
        CHECK ("due_at" IS NOT NULL OR "state" NOT IN ('scheduled', 'parked'))
) WITH ({_COMES_AND_GOES})""",
        f"""\
CREATE INDEX "{prefix}_deliveries_due_idx"
    ON {deliveries} ("listener", "priority" DESC, "due_at")
    WHERE "state" IN ('scheduled', 'parked') AND "range" IS NULL""",
        f"""\
CREATE INDEX "{prefix}_deliveries_next_idx"
    ON {deliveries} ("listener", "due_at")
    WHERE "state" IN ('scheduled', 'parked') AND "range" IS NULL""",
        f"""\
CREATE INDEX "{prefix}_deliveries_key_idx"
    ON {deliveries} ("listener", "key", "position")
    WHERE "key" IS NOT NULL""",
        f"""\
CREATE INDEX "{prefix}_deliveries_requested_idx"
    ON {deliveries} ("listener")
    WHERE "range" IS NOT NULL AND "cancel_requested_at" IS NOT NULL""",
    )


def _ranges(schema: str | None, prefix: str) -> tuple[str, ...]:
    return (
        f"""\
CREATE TABLE {qualified(schema, prefix + "_ranges")} (
    "listener" text NOT NULL,
    "number" bigint NOT NULL GENERATED ALWAYS AS IDENTITY,
    "last_processed_id" bigint NOT NULL,
    "revision" bigint NOT NULL DEFAULT 0,
    "gaps" jsonb NOT NULL,
    "crashes" integer NOT NULL DEFAULT 0,
    "crashed_terms" bigint[] NOT NULL DEFAULT '{{}}',
    "suspects" jsonb NOT NULL DEFAULT '{{}}',
    "locked_by" text,
    "lease_token" bigint NOT NULL DEFAULT 1,
    "lease_expires_at" timestamp with time zone,
    "created_at" timestamp with time zone NOT NULL DEFAULT clock_timestamp(),
    "updated_at" timestamp with time zone NOT NULL DEFAULT clock_timestamp(),
    CONSTRAINT "{prefix}_ranges_pkey" PRIMARY KEY ("listener", "number")
) WITH ({_SMALL_AND_HOT})""",
    )


def _dead_letters(schema: str | None, prefix: str) -> tuple[str, ...]:
    dead_letters = qualified(schema, prefix + "_dead_letters")
    return (
        f"""\
CREATE TABLE {dead_letters} (
    "id" bigint NOT NULL GENERATED ALWAYS AS IDENTITY,
    "listener" text NOT NULL,
    "position" bigint NOT NULL,
    "event_id" uuid NOT NULL,
    "event_type" text NOT NULL,
    "key" text,
    "tenant" text,
    "payload" jsonb NOT NULL,
    "headers" jsonb NOT NULL DEFAULT '{{}}',
    "run_at" timestamp with time zone,
    "priority" smallint NOT NULL DEFAULT 0,
    "event_created_at" timestamp with time zone NOT NULL,
    "reason" text NOT NULL,
    "attempts" integer NOT NULL DEFAULT 0,
    "crashes" integer NOT NULL DEFAULT 0,
    "errors" jsonb NOT NULL DEFAULT '[]',
    "failed_at" timestamp with time zone NOT NULL DEFAULT clock_timestamp(),
    "resolution" text,
    "resolved_at" timestamp with time zone,
    "resolved_by" text,
    "resolved_why" text,
    "edits" integer NOT NULL DEFAULT 0,
    "original" jsonb,
    "error_fingerprint" text,
    CONSTRAINT "{prefix}_dead_letters_pkey" PRIMARY KEY ("id"),
    CONSTRAINT "{prefix}_dead_letters_resolution_check"
        CHECK ("resolution" IN ('replayed', 'discarded', 'fixed')),
    CONSTRAINT "{prefix}_dead_letters_resolved_check"
        CHECK (("resolution" IS NULL) = ("resolved_at" IS NULL))
)""",
        f"""\
CREATE INDEX "{prefix}_dead_letters_unresolved_idx"
    ON {dead_letters} ("listener", "id")
    WHERE "resolution" IS NULL""",
        f"""\
CREATE INDEX "{prefix}_dead_letters_error_idx"
    ON {dead_letters} ("error_fingerprint", "id", "listener", "failed_at")
    WHERE "resolution" IS NULL""",
    )


def _idempotency_keys(schema: str | None, prefix: str) -> tuple[str, ...]:
    idempotency_keys = qualified(schema, prefix + "_idempotency_keys")
    return (
        f"""\
CREATE TABLE {idempotency_keys} (
    "tenant" text NOT NULL DEFAULT '',
    "event_type" text NOT NULL,
    "key" text NOT NULL,
    "event_id" uuid NOT NULL,
    "first_seen_at" timestamp with time zone NOT NULL DEFAULT clock_timestamp(),
    "last_seen_at" timestamp with time zone NOT NULL DEFAULT clock_timestamp(),
    "expires_at" timestamp with time zone NOT NULL,
    CONSTRAINT "{prefix}_idempotency_keys_pkey" PRIMARY KEY ("tenant", "event_type", "key")
)""",
        f"""\
CREATE INDEX "{prefix}_idempotency_keys_expires_at_idx"
    ON {idempotency_keys} ("expires_at")""",
    )


def _audit(schema: str | None, prefix: str) -> tuple[str, ...]:
    audit = qualified(schema, prefix + "_audit")
    return (
        f"""\
CREATE TABLE {audit} (
    "id" bigint NOT NULL GENERATED ALWAYS AS IDENTITY,
    "recorded_at" timestamp with time zone NOT NULL DEFAULT clock_timestamp(),
    "action" text NOT NULL,
    "event_id" uuid,
    "event_type" text,
    "listener" text,
    "tenant" text,
    "project_id" text,
    "actor_type" text,
    "actor_id" text,
    "request_id" text,
    "correlation_id" text,
    "attempt" integer,
    "detail" jsonb NOT NULL DEFAULT '{{}}',
    CONSTRAINT "{prefix}_audit_pkey" PRIMARY KEY ("id")
)""",
        f'CREATE INDEX "{prefix}_audit_event_id_idx" ON {audit} ("event_id")',
    )


def _inbox(schema: str | None, prefix: str) -> tuple[str, ...]:
    inbox = qualified(schema, prefix + "_inbox")
    return (
        f"""\
CREATE TABLE {inbox} (
    "consumer" text NOT NULL,
    "message_id" text NOT NULL,
    "received_at" timestamp with time zone NOT NULL DEFAULT clock_timestamp(),
    "expires_at" timestamp with time zone NOT NULL,
    CONSTRAINT "{prefix}_inbox_pkey" PRIMARY KEY ("consumer", "message_id")
)""",
        f'CREATE INDEX "{prefix}_inbox_expires_at_idx" ON {inbox} ("expires_at")',
    )


def _results(schema: str | None, prefix: str) -> tuple[str, ...]:
    results = qualified(schema, prefix + "_results")
    return (
        f"""\
CREATE TABLE {results} (
    "event_id" uuid NOT NULL,
    "listener" text NOT NULL,
    "result_ref" text NOT NULL,
    "recorded_at" timestamp with time zone NOT NULL DEFAULT clock_timestamp(),
    "expires_at" timestamp with time zone NOT NULL,
    CONSTRAINT "{prefix}_results_pkey" PRIMARY KEY ("event_id", "listener")
)""",
        f'CREATE INDEX "{prefix}_results_expires_at_idx" ON {results} ("expires_at")',
    )


def _crons(schema: str | None, prefix: str) -> tuple[str, ...]:
    return (
        f"""\
CREATE TABLE {qualified(schema, prefix + "_crons")} (
    "name" text NOT NULL,
    "last_tick" timestamp with time zone NOT NULL,
    "updated_at" timestamp with time zone NOT NULL DEFAULT clock_timestamp(),
    CONSTRAINT "{prefix}_crons_pkey" PRIMARY KEY ("name")
)""",
    )


def _endpoints(schema: str | None, prefix: str) -> tuple[str, ...]:
    return (
        f"""\
CREATE TABLE {qualified(schema, prefix + "_endpoints")} (
    "name" text NOT NULL,
    "url" text NOT NULL,
    "settings" jsonb NOT NULL DEFAULT '{{}}',
    "secrets" jsonb NOT NULL DEFAULT '[]',
    "bearer" text,
    "disabled_at" timestamp with time zone,
    "disabled_why" text,
    "created_at" timestamp with time zone NOT NULL DEFAULT clock_timestamp(),
    "updated_at" timestamp with time zone NOT NULL DEFAULT clock_timestamp(),
    CONSTRAINT "{prefix}_endpoints_pkey" PRIMARY KEY ("name")
)""",
    )


def _backlog(schema: str | None, prefix: str) -> tuple[str, ...]:
    """What waits for each listener, for those who have SQL and nothing else: the figures of
    ``sa-outbox status``, by its rules (``sql/people/overview.py``, ``operations/overview.py``).

    Every count is bounded, also in a log of any length: up to 1000 events above a cursor, 1000
    deliveries and 1000 dead letters of a listener. The conditions of whoever asks for one listener
    apply to ``one``, before anything is counted.
    """
    log, dead = qualified(schema, prefix), qualified(schema, prefix + "_dead_letters")
    listeners, deliveries, ranges = (
        qualified(schema, prefix + suffix) for suffix in ("_listeners", "_deliveries", "_ranges")
    )
    return (
        f"""\
CREATE VIEW {qualified(schema, prefix + "_backlog")} AS
WITH RECURSIVE concerned AS (
    SELECT min(listener) AS name FROM {dead} WHERE resolution IS NULL
    UNION ALL
    SELECT (SELECT min(d.listener) FROM {dead} AS d
            WHERE d.resolution IS NULL AND d.listener > c.name)
    FROM concerned AS c WHERE c.name IS NOT NULL
)
SELECT one.name AS listener,
    cursors.partitions,
    cursors.waiting + coalesce(held.ids, 0) AS waiting,
    greatest(cursors.age, held.age) AS lag_seconds,
    cursors.waiting_by_partition,
    waiting.due, waiting.scheduled, waiting.parked, waiting.behind, waiting.next_due_at,
    letters.count AS dead_letters,
    cursors.paused_at, cursors.retry_count, cursors.lease_expired,
    ARRAY(
        SELECT DISTINCT owner FROM unnest(cursors.owners || held.owners) AS o (owner)
        WHERE owner IS NOT NULL ORDER BY owner
    ) AS owners,
    least(cursors.lease_seconds, held.lease_seconds) AS lease_seconds
FROM (
    SELECT name FROM {listeners} UNION SELECT name FROM concerned WHERE name IS NOT NULL
) AS one
CROSS JOIN LATERAL ({_BACKLOG_OF_CURSORS.format(log=log, listeners=listeners)}) AS cursors
CROSS JOIN LATERAL ({_BACKLOG_OF_DELIVERIES.format(deliveries=deliveries)}) AS waiting
CROSS JOIN LATERAL ({_BACKLOG_OF_RANGES.format(log=log, ranges=ranges)}) AS held
CROSS JOIN LATERAL ({_BACKLOG_OF_DEAD_LETTERS.format(dead=dead)}) AS letters""",  # noqa: S608 - checked names
    )


# Without a backslash and a percent sign: drivers and Alembic read them.
_AS_LIKE = (
    "replace(replace(replace(replace("
    "{}, chr(92), chr(92) || chr(92)), chr(37), chr(92) || chr(37)), '_', chr(92) || '_'),"
    " '*', chr(37))"
)
_MATCHES = """CASE
                WHEN NOT (wants.everything OR o.event_type LIKE ANY (wants.patterns))
                     OR o.event_type LIKE ANY (wants.others)
                     OR (l.tenant IS NOT NULL AND o.tenant IS DISTINCT FROM l.tenant) THEN false
                WHEN l.payload_filter IS NULL OR pg_column_size(o.payload) > 8192 THEN true
                ELSE o.payload @> l.payload_filter END AS matches"""
_BACKLOG_OF_DELIVERIES = """
    SELECT count(*) FILTER (WHERE state = 'scheduled') AS scheduled,
        count(*) FILTER (WHERE state = 'parked') AS parked,
        count(*) FILTER (WHERE state = 'behind') AS behind,
        count(*) FILTER (WHERE due_at <= clock_timestamp()) AS due,
        min(due_at) AS next_due_at
    FROM (
        SELECT state, CASE WHEN state IN ('scheduled', 'parked') AND range IS NULL
                           THEN due_at END AS due_at
        FROM {deliveries} WHERE listener = one.name
        ORDER BY position LIMIT 1000
    ) AS few
"""
_BACKLOG_OF_RANGES = """
    SELECT sum(gap.hi - gap.lo + 1) AS ids,
        array_agg(DISTINCT CAST(r.locked_by AS text)) FILTER (
            WHERE r.lease_expires_at > clock_timestamp()) AS owners,
        CAST(extract(epoch FROM min(r.lease_expires_at) FILTER (
            WHERE r.locked_by IS NOT NULL AND r.lease_expires_at > clock_timestamp())
            - clock_timestamp()) AS float8) AS lease_seconds,
        (SELECT greatest(0, CAST(extract(epoch FROM clock_timestamp() - o.created_at) AS float8))
         FROM {log} AS o WHERE o.id = min(gap.lo) AND isfinite(o.created_at)) AS age
    FROM {ranges} AS r
    CROSS JOIN LATERAL (
        SELECT CAST(part ->> 0 AS bigint) AS lo, CAST(part ->> 1 AS bigint) AS hi
        FROM jsonb_array_elements(r.gaps) AS part
    ) AS gap
    WHERE r.listener = one.name
"""
_BACKLOG_OF_DEAD_LETTERS = """
    SELECT count(*) AS count FROM (
        SELECT FROM {dead} AS d
        WHERE d.listener = one.name AND d.resolution IS NULL LIMIT 1000
    ) AS few
"""
_BACKLOG_OF_CURSORS = f"""
    SELECT count(*) AS partitions,
        coalesce(max(c.waiting), 0) AS waiting,
        array_agg(c.waiting ORDER BY c.partition) AS waiting_by_partition,
        max(c.age) AS age,
        coalesce(max(c.retry_count), 0) AS retry_count,
        coalesce(bool_or(c.lease_expired), false) AS lease_expired,
        min(c.paused_at) FILTER (WHERE c.partition = 0) AS paused_at,
        array_agg(DISTINCT c.owner) FILTER (WHERE c.owner IS NOT NULL) AS owners,
        min(c.lease_seconds) FILTER (WHERE c.owner IS NOT NULL) AS lease_seconds
    FROM (
        SELECT found.partition, found.paused_at, found.retry_count, found.owner,
            found.lease_expired, found.lease_seconds,
            found.in_gaps + CASE
                WHEN found.looked_at >= 1000 AND found.above > 0 THEN greatest(found.above,
                    CAST(round(CAST(found.above AS float8) / 1000
                               * (found.last_id - found.position)) AS bigint))
                WHEN found.looked_at >= 1000 AND (found.in_gaps <> 0 OR found.age >= 10) THEN 1
                ELSE found.above END AS waiting,
            CASE WHEN found.age IS NULL OR (found.looked_at >= 1000 AND found.above = 0
                           AND found.in_gaps = 0 AND found.age < 10) THEN NULL
                 ELSE greatest(0, found.age) END AS age
        FROM (
            SELECT l.partition, l.last_processed_id AS position, l.paused_at, l.retry_count,
                CASE WHEN l.lease_expires_at > clock_timestamp()
                     THEN CAST(l.locked_by AS text) END AS owner,
                l.locked_by IS NOT NULL AND l.lease_expires_at <= clock_timestamp()
                    AS lease_expired,
                CAST(extract(epoch FROM l.lease_expires_at - clock_timestamp()) AS float8)
                    AS lease_seconds,
                (SELECT max(id) FROM {{log}}) AS last_id,
                above.looked_at, above.count AS above, gaps.ids - late.others AS in_gaps,
                CAST(extract(epoch FROM clock_timestamp() - least(
                    CASE WHEN above.looked_at >= 1000 AND above.created_at IS NULL
                         THEN above.last_at ELSE above.created_at END,
                    late.created_at)) AS float8) AS age
            FROM {{listeners}} AS l
            CROSS JOIN LATERAL (
                SELECT l.event_types IS NULL OR '*' = ANY (l.event_types) AS everything,
                    ARRAY(SELECT {_AS_LIKE.format("t")} FROM unnest(l.event_types) AS t
                          WHERE left(t, 1) <> '!') AS patterns,
                    ARRAY(SELECT {_AS_LIKE.format("substr(t, 2)")}
                          FROM unnest(l.event_types) AS t WHERE left(t, 1) = '!') AS others
            ) AS wants
            CROSS JOIN LATERAL (
                SELECT count(*) AS looked_at, count(*) FILTER (WHERE few.matches) AS count,
                    min(few.created_at) FILTER (WHERE few.matches) AS created_at,
                    max(few.created_at) AS last_at
                FROM (
                    SELECT o.created_at, {_MATCHES} FROM {{log}} AS o
                    WHERE o.id > l.last_processed_id ORDER BY o.id LIMIT 1000
                ) AS few
            ) AS above
            CROSS JOIN LATERAL (
                SELECT CAST(coalesce(sum(
                    CAST(gap ->> 1 AS bigint) - CAST(gap ->> 0 AS bigint) + 1), 0) AS bigint) AS ids
                FROM jsonb_array_elements(l.gaps) AS gap
            ) AS gaps
            CROSS JOIN LATERAL (
                SELECT count(*) FILTER (WHERE NOT o.matches) AS others,
                    min(o.created_at) FILTER (WHERE o.matches) AS created_at
                FROM (SELECT CAST(g.gap ->> 0 AS bigint) AS lo, CAST(g.gap ->> 1 AS bigint) AS hi
                      FROM jsonb_array_elements(l.gaps) WITH ORDINALITY AS g (gap, number)
                      ORDER BY g.number LIMIT 20) AS gap
                CROSS JOIN LATERAL (
                    SELECT o.created_at, {_MATCHES} FROM {{log}} AS o
                    WHERE o.id BETWEEN gap.lo AND gap.hi ORDER BY o.id LIMIT 100
                ) AS o
            ) AS late
            WHERE l.name = one.name
        ) AS found
    ) AS c"""  # noqa: S608 - checked names


def _version(schema: str | None, prefix: str) -> tuple[str, ...]:
    meta = qualified(schema, prefix + "_meta")
    row = f"""\
INSERT INTO {meta} ("schema_version", "compatible_since", "partition_size", "database_oid")
    SELECT 1, 1, {PARTITION_SIZE}, oid FROM pg_catalog.pg_database
    WHERE datname = current_database()"""  # noqa: S608 - checked names
    # Some hosts keep this function from ordinary roles; then it is filled in later.
    system_identifier = f"""\
DO $outbox$
BEGIN
    UPDATE {meta}
    SET "system_identifier" = (SELECT system_identifier FROM pg_catalog.pg_control_system());
EXCEPTION
    WHEN insufficient_privilege OR undefined_function OR feature_not_supported THEN NULL;
END
$outbox$"""  # noqa: S608 - checked names
    return row, system_identifier
