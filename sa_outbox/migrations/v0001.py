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
    return tuple(f"DROP TABLE IF EXISTS {name}" for name in names)


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
