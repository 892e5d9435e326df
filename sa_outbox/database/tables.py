"""The tables as SQLAlchemy Core describes them.

``docs/schema.md`` explains their purpose. ``migrations`` creates them, never ``create_all``: this
module describes what the newest migration produces (a test compares the two), so that statements
can be built on it.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

import sqlalchemy as sa
from sqlalchemy import Column, MetaData, Table
from sqlalchemy.dialects.postgresql import ARRAY, JSONB

from ..event.validation import MAX_EVENT_TYPE_CHARACTERS, MAX_KEY_BYTES

if TYPE_CHECKING:
    from .names import Names

STATES = ("scheduled", "parked", "behind", "cancelled")
"""States of a delivery that has a row; a lease tells whether it is running."""

RESOLUTIONS = ("replayed", "discarded", "fixed")
"""How an operator resolved a dead letter."""

BACKLOG = "backlog"
"""The one view, which no statement of ours reads: for dashboards and scalers that have SQL only."""

_AWAITING = ("scheduled", "parked")

_SMALL_AND_HOT = {
    "fillfactor": 50,
    "autovacuum_vacuum_scale_factor": 0,
    "autovacuum_vacuum_threshold": 100,
    "autovacuum_analyze_scale_factor": 0,
    "autovacuum_analyze_threshold": 1000,
    "autovacuum_vacuum_cost_delay": 0,
}


@dataclass(frozen=True, kw_only=True)
class Tables:
    """The tables of one outbox, in a ``MetaData`` of their own.

    Not in the user's: their ``create_all`` and autogenerate must not touch these.
    """

    names: Names
    metadata: MetaData
    meta: Table
    outbox: Table
    listeners: Table
    consumers: Table
    deliveries: Table
    ranges: Table
    dead_letters: Table
    idempotency_keys: Table
    audit: Table
    inbox: Table
    results: Table
    crons: Table
    endpoints: Table

    @property
    def relation_names(self) -> list[str]:
        """Of all tables, and the view."""
        found = [table.name for table in self.metadata.tables.values()]
        return [*found, self.names.table(BACKLOG)]


@cache
def tables(names: Names) -> Tables:
    """Describe the tables under these names. Cached: they are immutable. Does not touch a
    database."""
    metadata = MetaData(schema=names.schema)
    return Tables(
        names=names,
        metadata=metadata,
        meta=_meta(metadata, names.table("meta")),
        outbox=_outbox(metadata, names.table()),
        listeners=_listeners(metadata, names.table("listeners")),
        consumers=_consumers(metadata, names.table("consumers")),
        deliveries=_deliveries(metadata, names.table("deliveries")),
        ranges=_ranges(metadata, names.table("ranges")),
        dead_letters=_dead_letters(metadata, names.table("dead_letters")),
        idempotency_keys=_idempotency_keys(metadata, names.table("idempotency_keys")),
        audit=_audit(metadata, names.table("audit")),
        inbox=_inbox(metadata, names.table("inbox")),
        results=_results(metadata, names.table("results")),
        crons=_crons(metadata, names.table("crons")),
        endpoints=_endpoints(metadata, names.table("endpoints")),
    )


def _meta(metadata: MetaData, name: str) -> Table:
    return Table(
        name,
        metadata,
        Column("singleton", sa.Boolean, nullable=False, server_default=sa.true()),
        Column("schema_version", sa.Integer, nullable=False),
        Column("compatible_since", sa.Integer, nullable=False),
        Column("epoch", sa.BigInteger, nullable=False, server_default=sa.literal(1)),
        Column("system_identifier", sa.BigInteger),
        Column("database_oid", sa.BigInteger),
        Column("partition_size", sa.BigInteger, nullable=False),
        _time("created_at"),
        _time("migrated_at"),
        sa.PrimaryKeyConstraint("singleton", name=f"{name}_pkey"),
        sa.CheckConstraint(sa.column("singleton", sa.Boolean), name=f"{name}_singleton_check"),
    )


def _outbox(metadata: MetaData, name: str) -> Table:
    table = Table(
        name,
        metadata,
        Column("id", sa.BigInteger, sa.Identity(always=True, cache=1), nullable=False),
        *_event(),
        _time("created_at"),
        sa.PrimaryKeyConstraint("id", name=f"{name}_pkey"),
        *_bounds(name),
        postgresql_partition_by="RANGE (id)",
    )
    c = table.c
    sa.Index(f"{name}_urgent_idx", c.id, postgresql_where=c.priority > 0)
    sa.Index(
        f"{name}_event_id_idx",
        c.event_id,
        postgresql_using="brin",
        postgresql_with={"pages_per_range": 16},
    )
    return table


def _bounds(name: str) -> tuple[sa.CheckConstraint, ...]:
    """Limits that ``add_event`` enforces and plain SQL must respect too: an index can't hold a
    longer key, and nothing can be subtracted from infinity."""
    run_at, created_at = (
        sa.func.isfinite(sa.column("run_at")),
        sa.func.isfinite(sa.column("created_at")),
    )
    bounds = {
        "type": sa.func.char_length(sa.column("event_type"))
        <= sa.literal(MAX_EVENT_TYPE_CHARACTERS),
        "key": sa.func.octet_length(sa.column("key")) <= sa.literal(MAX_KEY_BYTES),
        "tenant": sa.func.octet_length(sa.column("tenant")) <= sa.literal(MAX_KEY_BYTES),
        "time": run_at & created_at,
    }
    return tuple(
        sa.CheckConstraint(bound, name=f"{name}_{what}_check") for what, bound in bounds.items()
    )


def _listeners(metadata: MetaData, name: str) -> Table:
    return Table(
        name,
        metadata,
        Column("name", sa.Text, nullable=False),
        _count("partition", sa.SmallInteger),
        Column("partition_count", sa.SmallInteger, nullable=False, server_default=sa.literal(1)),
        _count("last_processed_id", sa.BigInteger),
        _count("revision", sa.BigInteger),
        _json("gaps", "[]"),
        _count("retry_count", sa.Integer),
        Column("retry_position", sa.BigInteger),
        _count("crashes", sa.Integer),
        _terms("crashed_terms"),
        _json("suspects", "{}"),
        _time("retry_after", nullable=True),
        _json("errors", "[]"),
        Column("last_error_code", sa.Text),
        Column("last_error", sa.Text),
        _time("last_error_at", nullable=True),
        *_lease(),
        _time("paused_at", nullable=True),
        Column("barrier", sa.BigInteger),
        _time("barrier_expires_at", nullable=True),
        Column("fingerprint", sa.Text),
        Column("event_types", ARRAY(sa.Text)),
        Column("payload_filter", JSONB),
        Column("tenant", sa.Text),
        Column("ordering", sa.Text),
        _time("created_at"),
        _time("updated_at"),
        sa.PrimaryKeyConstraint("name", "partition", name=f"{name}_pkey"),
        sa.CheckConstraint(
            (sa.column("partition") >= 0) & (sa.column("partition") < sa.column("partition_count")),
            name=f"{name}_partition_check",
        ),
        postgresql_with=_SMALL_AND_HOT,
    )


def _consumers(metadata: MetaData, name: str) -> Table:
    return Table(
        name,
        metadata,
        Column("owner", sa.Text, nullable=False),
        Column("listeners", ARRAY(sa.Text), nullable=False),
        Column("queues", ARRAY(sa.Text), nullable=False, server_default=sa.literal("{}")),
        _time("started_at"),
        Column("expires_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("owner", name=f"{name}_pkey"),
        postgresql_with=_SMALL_AND_HOT,
    )


def _deliveries(metadata: MetaData, name: str) -> Table:
    table = Table(
        name,
        metadata,
        Column("listener", sa.Text, nullable=False),
        Column("position", sa.BigInteger, nullable=False),
        _count("partition", sa.SmallInteger),
        Column("event_id", sa.Uuid, nullable=False),
        Column("event_type", sa.Text, nullable=False),
        Column("key", sa.Text),
        Column("tenant", sa.Text),
        Column("state", sa.Text, nullable=False),
        _count("priority", sa.SmallInteger),
        _time("due_at", nullable=True),
        _count("attempts", sa.Integer),
        _json("errors", "[]"),
        Column("last_error_code", sa.Text),
        Column("last_error", sa.Text),
        Column("range", sa.BigInteger),
        Column("dead_letter", sa.BigInteger),
        _time("cancel_requested_at", nullable=True),
        Column("cancel_reason", sa.Text),
        Column("cancel_actor", JSONB),
        _time("created_at"),
        _time("updated_at"),
        sa.PrimaryKeyConstraint("listener", "position", name=f"{name}_pkey"),
        sa.CheckConstraint(sa.column("state").in_(STATES), name=f"{name}_state_check"),
        sa.CheckConstraint(
            sa.column("due_at").is_not(None) | sa.column("state").not_in(_AWAITING),
            name=f"{name}_due_check",
        ),
        postgresql_with={
            "fillfactor": 70,
            "autovacuum_vacuum_scale_factor": 0.02,
            "autovacuum_vacuum_threshold": 500,
            "autovacuum_analyze_scale_factor": 0.05,
        },
    )
    c, due = table.c, table.c.state.in_(_AWAITING) & table.c.range.is_(None)
    sa.Index(f"{name}_due_idx", c.listener, c.priority.desc(), c.due_at, postgresql_where=due)
    sa.Index(f"{name}_next_idx", c.listener, c.due_at, postgresql_where=due)
    has_key = c.key.is_not(None)
    sa.Index(f"{name}_key_idx", c.listener, c.key, c.position, postgresql_where=has_key)
    requested = c.range.is_not(None) & c.cancel_requested_at.is_not(None)
    sa.Index(f"{name}_requested_idx", c.listener, postgresql_where=requested)
    return table


def _ranges(metadata: MetaData, name: str) -> Table:
    return Table(
        name,
        metadata,
        Column("listener", sa.Text, nullable=False),
        Column("number", sa.BigInteger, sa.Identity(always=True), nullable=False),
        Column("last_processed_id", sa.BigInteger, nullable=False),
        _count("revision", sa.BigInteger),
        Column("gaps", JSONB, nullable=False),
        _count("crashes", sa.Integer),
        _terms("crashed_terms"),
        _json("suspects", "{}"),
        *_lease(first_token=1),
        _time("created_at"),
        _time("updated_at"),
        sa.PrimaryKeyConstraint("listener", "number", name=f"{name}_pkey"),
        postgresql_with=_SMALL_AND_HOT,
    )


def _dead_letters(metadata: MetaData, name: str) -> Table:
    table = Table(
        name,
        metadata,
        Column("id", sa.BigInteger, sa.Identity(always=True), nullable=False),
        Column("listener", sa.Text, nullable=False),
        Column("position", sa.BigInteger, nullable=False),
        *_event(),
        Column("event_created_at", sa.DateTime(timezone=True), nullable=False),
        Column("reason", sa.Text, nullable=False),
        _count("attempts", sa.Integer),
        _count("crashes", sa.Integer),
        _json("errors", "[]"),
        _time("failed_at"),
        Column("resolution", sa.Text),
        _time("resolved_at", nullable=True),
        Column("resolved_by", sa.Text),
        Column("resolved_why", sa.Text),
        _count("edits", sa.Integer),
        Column("original", JSONB),
        Column("error_fingerprint", sa.Text),
        sa.PrimaryKeyConstraint("id", name=f"{name}_pkey"),
        sa.CheckConstraint(
            sa.column("resolution").in_(RESOLUTIONS), name=f"{name}_resolution_check"
        ),
        sa.CheckConstraint(
            sa.column("resolution").is_(None) == sa.column("resolved_at").is_(None),
            name=f"{name}_resolved_check",
        ),
    )
    open_ = table.c.resolution.is_(None)
    sa.Index(f"{name}_unresolved_idx", table.c.listener, table.c.id, postgresql_where=open_)
    # With everything that counting them by error reads.
    sa.Index(
        f"{name}_error_idx",
        *(table.c[each] for each in ("error_fingerprint", "id", "listener", "failed_at")),
        postgresql_where=open_,
    )
    return table


def _idempotency_keys(metadata: MetaData, name: str) -> Table:
    table = Table(
        name,
        metadata,
        Column("tenant", sa.Text, nullable=False, server_default=sa.literal("")),
        Column("event_type", sa.Text, nullable=False),
        Column("key", sa.Text, nullable=False),
        Column("event_id", sa.Uuid, nullable=False),
        _time("first_seen_at"),
        _time("last_seen_at"),
        Column("expires_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("tenant", "event_type", "key", name=f"{name}_pkey"),
    )
    sa.Index(f"{name}_expires_at_idx", table.c.expires_at)
    return table


def _audit(metadata: MetaData, name: str) -> Table:
    table = Table(
        name,
        metadata,
        Column("id", sa.BigInteger, sa.Identity(always=True), nullable=False),
        _time("recorded_at"),
        Column("action", sa.Text, nullable=False),
        Column("event_id", sa.Uuid),
        Column("event_type", sa.Text),
        Column("listener", sa.Text),
        Column("tenant", sa.Text),
        Column("project_id", sa.Text),
        Column("actor_type", sa.Text),
        Column("actor_id", sa.Text),
        Column("request_id", sa.Text),
        Column("correlation_id", sa.Text),
        Column("attempt", sa.Integer),
        _json("detail", "{}"),
        sa.PrimaryKeyConstraint("id", name=f"{name}_pkey"),
    )
    sa.Index(f"{name}_event_id_idx", table.c.event_id)
    return table


def _inbox(metadata: MetaData, name: str) -> Table:
    table = Table(
        name,
        metadata,
        Column("consumer", sa.Text, nullable=False),
        Column("message_id", sa.Text, nullable=False),
        _time("received_at"),
        Column("expires_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("consumer", "message_id", name=f"{name}_pkey"),
    )
    sa.Index(f"{name}_expires_at_idx", table.c.expires_at)
    return table


def _results(metadata: MetaData, name: str) -> Table:
    table = Table(
        name,
        metadata,
        Column("event_id", sa.Uuid, nullable=False),
        Column("listener", sa.Text, nullable=False),
        Column("result_ref", sa.Text, nullable=False),
        _time("recorded_at"),
        Column("expires_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("event_id", "listener", name=f"{name}_pkey"),
    )
    sa.Index(f"{name}_expires_at_idx", table.c.expires_at)
    return table


def _crons(metadata: MetaData, name: str) -> Table:
    return Table(
        name,
        metadata,
        Column("name", sa.Text, nullable=False),
        Column("last_tick", sa.DateTime(timezone=True), nullable=False),
        _time("updated_at"),
        sa.PrimaryKeyConstraint("name", name=f"{name}_pkey"),
    )


def _endpoints(metadata: MetaData, name: str) -> Table:
    return Table(
        name,
        metadata,
        Column("name", sa.Text, nullable=False),
        Column("url", sa.Text, nullable=False),
        _json("settings", "{}"),
        _json("secrets", "[]"),
        Column("bearer", sa.Text),
        _time("disabled_at", nullable=True),
        Column("disabled_why", sa.Text),
        _time("created_at"),
        _time("updated_at"),
        sa.PrimaryKeyConstraint("name", name=f"{name}_pkey"),
    )


def _event() -> tuple[Column[object], ...]:
    """The columns shared by the log and a dead letter's copy."""
    return (
        Column("event_id", sa.Uuid, nullable=False),
        Column("event_type", sa.Text, nullable=False),
        Column("key", sa.Text),
        Column("tenant", sa.Text),
        Column("payload", JSONB, nullable=False),
        _json("headers", "{}"),
        _time("run_at", nullable=True),
        _count("priority", sa.SmallInteger),
    )


def _lease(first_token: int = 0) -> tuple[Column[object], ...]:
    token = sa.literal(first_token)
    return (
        Column("locked_by", sa.Text),
        Column("lease_token", sa.BigInteger, nullable=False, server_default=token),
        _time("lease_expires_at", nullable=True),
    )


def _time(name: str, *, nullable: bool = False) -> Column[object]:
    # clock_timestamp, not now: now is frozen for the whole transaction.
    default = None if nullable else sa.func.clock_timestamp()
    return Column(name, sa.DateTime(timezone=True), nullable=nullable, server_default=default)


def _count(name: str, type_: type[sa.Integer]) -> Column[object]:
    return Column(name, type_, nullable=False, server_default=sa.literal(0))


def _terms(name: str) -> Column[object]:
    """Tokens of leases."""
    return Column(name, ARRAY(sa.BigInteger), nullable=False, server_default=sa.literal("{}"))


def _json(name: str, default: str) -> Column[object]:
    return Column(name, JSONB, nullable=False, server_default=sa.literal(default))
