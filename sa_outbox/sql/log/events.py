"""Statements that add events to the log."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import bindparam, case, insert
from sqlalchemy.dialects.postgresql import insert as postgresql_insert
from sqlalchemy.types import Text

from ...database.rights import WRITTEN
from ..server.timed_text import now_or, text
from ..server.times import NOW

if TYPE_CHECKING:
    from uuid import UUID

    from sqlalchemy import Insert
    from sqlalchemy.sql.dml import ReturningInsert

    from ...database.tables import Tables


def insert_events(tables: Tables) -> Insert:
    """Append events to the log, in the order of the one parameter ``document``.

    ``document`` is a JSON array of objects. One constant statement for any number of events: one
    entry in SQLAlchemy's cache, one prepared statement on the server, one round trip. It is a real
    Insert, so that ``get_bind`` routers and ``schema_translate_map`` treat it as a write to this
    table, and has no RETURNING: nobody needs the ids, and returning them costs a fifth.

    ``delay`` (seconds) is counted from the database's clock. A payload that is JSON null arrives as
    SQL NULL from the recordset and is turned back.

    Takes RowExclusiveLock on the log before the first id is drawn (readers depend on it).
    """
    source = (
        text(
            "SELECT event_id, event_type, key, tenant, coalesce(payload, 'null'),"
            " coalesce(headers, '{}'),"
            f" coalesce(run_at, {NOW} + make_interval(secs => delay)),"
            " coalesce(priority, 0)"
            " FROM ROWS FROM (json_to_recordset(CAST(:document AS json)) AS ("
            "event_id uuid, event_type text, key text, tenant text, payload jsonb, headers jsonb,"
            " run_at timestamptz, delay double precision, priority smallint))"
            " WITH ORDINALITY AS added(event_id, event_type, key, tenant, payload, headers,"
            " run_at, delay, priority, ordinal)"
            " ORDER BY ordinal"
        )
        .bindparams(bindparam("document", type_=Text))
        .columns()  # none by name: they would only make SQLAlchemy's cache key longer
    )
    appended = insert(tables.outbox).from_select(WRITTEN, source, include_defaults=False).inline()
    # SQLAlchemy keeps it for INSERT only on request: the number of rows written.
    return appended.execution_options(preserve_rowcount=True)


def claim_idempotency_keys(tables: Tables) -> ReturningInsert[str, str, str, UUID]:
    """Claim the keys in ``document`` (JSON array) for ``lifetime`` seconds each; return the holder
    of each.

    A row per key: ``(tenant, event_type, key, event_id)``. A different ``event_id`` than one's own
    means that the key is taken. Two writers of one key meet on its row: the second waits until the
    first has committed (taken) or rolled back (free). Keys are claimed in order, so that two
    transactions with several keys each can't deadlock. An expired key is free. No key may be in the
    document twice.

    Locks the rows of the keys until the transaction ends. Served by the primary key.
    """
    keys = tables.idempotency_keys
    columns = ("tenant", "event_type", "key", "event_id", "expires_at")
    source = (
        text(
            "SELECT tenant, event_type, key, event_id,"
            f" {NOW} + make_interval(secs => lifetime)"
            " FROM json_to_recordset(CAST(:document AS json)) AS claimed("
            "tenant text, event_type text, key text, event_id uuid, lifetime double precision)"
            " ORDER BY tenant, event_type, key"
        )
        .bindparams(bindparam("document", type_=Text))
        .columns()
    )
    claim = postgresql_insert(keys).from_select(columns, source, include_defaults=False)
    # The default of the row that was not inserted: one moment for all of the columns below, even
    # for a key that expires while this runs.
    now = now_or(claim.excluded.first_seen_at)
    expired = keys.c.expires_at <= now
    return claim.on_conflict_do_update(
        index_elements=[keys.c.tenant, keys.c.event_type, keys.c.key],
        set_={
            "last_seen_at": now,
            "event_id": case((expired, claim.excluded.event_id), else_=keys.c.event_id),
            "first_seen_at": case((expired, now), else_=keys.c.first_seen_at),
            "expires_at": case((expired, claim.excluded.expires_at), else_=keys.c.expires_at),
        },
    ).returning(keys.c.tenant, keys.c.event_type, keys.c.key, keys.c.event_id)
