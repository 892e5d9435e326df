"""Questions about the database itself: what is there, whose it is, what may be done with it.

Asked when the schema is made or verified, never on the way of an event. They read the system
catalogs, which any role may read, and lock nothing but what they say.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlalchemy import bindparam, case, column, func, literal, select, table, text
from sqlalchemy.dialects.postgresql import ARRAY
from sqlalchemy.types import BigInteger, Boolean, Text

from .names import quoted

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sqlalchemy import Select, Table, TextClause

    from sa_outbox.tables import Tables

_MIGRATION_LOCK = 0x5A_0B0C
"""Key of the advisory lock, one for all outboxes of a database: migrations are rare."""


def take_migration_lock() -> Select[Any]:
    """Wait for, and hold until the transaction ends, the right to change the schema."""
    return select(func.pg_advisory_xact_lock(_MIGRATION_LOCK))


def migration_lock_held() -> TextClause:
    """Whether this session still holds that lock: in AUTOCOMMIT it went with its own statement."""
    return text(
        """
        SELECT EXISTS (
            SELECT FROM pg_catalog.pg_locks
            WHERE locktype = 'advisory' AND pid = pg_backend_pid() AND classid = 0
              AND objid = :key AND objsubid = 1
        )
        """
    ).bindparams(key=_MIGRATION_LOCK)


def this_session() -> Select[str, str, bool, bool, str]:
    """Role, database, whether it is a standby, whether it is read-only, isolation level."""
    return select(
        func.current_user().label("role"),
        func.current_database().label("database"),
        func.pg_is_in_recovery().label("in_recovery"),
        (func.current_setting("transaction_read_only") == literal("on")).label("read_only"),
        func.current_setting("transaction_isolation").label("isolation"),
    )


def schema_of(candidates: Iterable[str]) -> TextClause:
    """The schema in which ``search_path`` finds the first of *candidates* that exists.

    Without any, the schema in which a new table would be made.
    """
    return text(
        """
        SELECT coalesce(
            (
                SELECT n.nspname
                FROM unnest(CAST(:candidates AS text[])) WITH ORDINALITY AS t (name, place)
                JOIN pg_catalog.pg_class c ON c.oid = to_regclass(quote_ident(t.name))
                JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
                ORDER BY t.place
                LIMIT 1
            ),
            current_schema()
        )
        """
    ).bindparams(bindparam("candidates", list(candidates), type_=ARRAY(Text)))


def relations(schema: str | None, names: Iterable[str]) -> TextClause:
    """Of the relations *names* in *schema*, those that exist, one row each.

    name; kind, as in pg_class; visible: its bare name leads to it and not to another table
    earlier in the ``search_path``; columns; may_insert and may_select of the current role.
    """
    return text(
        """
        SELECT CAST(c.relname AS text) AS name,
               CAST(c.relkind AS text) AS kind,
               pg_table_is_visible(c.oid) AS visible,
               ARRAY(
                   SELECT CAST(a.attname AS text) FROM pg_catalog.pg_attribute a
                   WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
               ) AS columns,
               has_table_privilege(c.oid, 'INSERT') AS may_insert,
               has_table_privilege(c.oid, 'SELECT') AS may_select
        FROM pg_catalog.pg_class c
        JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
        WHERE n.nspname = CAST(:schema AS text) AND c.relname = ANY (CAST(:names AS text[]))
          AND c.relkind IN ('r', 'p', 'v', 'm', 'f')
        """
    ).bindparams(
        bindparam("schema", schema, type_=Text),
        bindparam("names", list(names), type_=ARRAY(Text)),
    )


def schema_rights(schema: str | None) -> TextClause:
    """Whether *schema* exists (a row), and whether the current role may use it."""
    return text(
        """
        SELECT has_schema_privilege(oid, 'USAGE') AS may_use
        FROM pg_catalog.pg_namespace WHERE nspname = CAST(:schema AS text)
        """
    ).bindparams(bindparam("schema", schema, type_=Text))


def log_identity(schema: str, log: str) -> TextClause:
    """How ids are drawn and whether rows always find a partition. One row if the log exists.

    identity: 'a' for GENERATED ALWAYS; sequence_schema, sequence: None if there is no sequence;
    cache, increment, cycle; may_read: whether the role may look at the sequence;
    default_partition: whether there is one.
    """
    return text(
        """
        SELECT CAST(a.attidentity AS text) AS identity,
               CAST(sn.nspname AS text) AS sequence_schema,
               CAST(s.relname AS text) AS sequence,
               q.seqcache AS cache,
               q.seqincrement AS increment,
               q.seqcycle AS cycle,
               coalesce(has_sequence_privilege(s.oid, 'SELECT'), false) AS may_read,
               coalesce(p.partdefid, 0) <> 0 AS default_partition
        FROM pg_catalog.pg_class c
        JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
        JOIN pg_catalog.pg_attribute a ON a.attrelid = c.oid AND a.attname = 'id'
        LEFT JOIN pg_catalog.pg_partitioned_table p ON p.partrelid = c.oid
        LEFT JOIN pg_catalog.pg_depend d
               ON d.refclassid = CAST('pg_class' AS regclass) AND d.refobjid = c.oid
              AND d.refobjsubid = a.attnum AND d.classid = CAST('pg_class' AS regclass)
              AND d.deptype IN ('i', 'a')
              AND EXISTS (SELECT FROM pg_catalog.pg_sequence x WHERE x.seqrelid = d.objid)
        LEFT JOIN pg_catalog.pg_class s ON s.oid = d.objid
        LEFT JOIN pg_catalog.pg_namespace sn ON sn.oid = s.relnamespace
        LEFT JOIN pg_catalog.pg_sequence q ON q.seqrelid = s.oid
        WHERE n.nspname = CAST(:schema AS text) AND c.relname = CAST(:log AS text)
        """
    ).bindparams(bindparam("schema", schema, type_=Text), bindparam("log", log, type_=Text))


def last_drawn(schema: str, sequence: str) -> Select[int]:
    """The last id that was drawn; 0 if none was. Needs the right to SELECT from the sequence."""
    last_value, is_called = column("last_value", BigInteger), column("is_called", Boolean)
    return select(case((is_called, last_value), else_=last_value - 1)).select_from(
        table(sequence, last_value, is_called, schema=schema)
    )


_ALL = ("SELECT", "INSERT", "UPDATE", "DELETE")


def missing_rights(
    tables: Tables,
    *,
    queues: bool = False,
    crons: bool = False,
    audit: bool = False,
    endpoints: bool = False,
) -> TextClause:
    """What the current role lacks to consume: a row for each table and right.

    With *queues*, *crons*, an *audit* or *endpoints*, what these need too.
    """
    asked: list[tuple[Table, tuple[str, ...]]] = [
        (tables.outbox, ("SELECT", "INSERT") if crons else ("SELECT",)),
        (tables.listeners, ("SELECT", "INSERT", "UPDATE")),
        (tables.consumers, _ALL),
        (tables.deliveries, _ALL),
        (tables.dead_letters, ("SELECT", "INSERT")),
        (tables.results, ("SELECT", "INSERT", "UPDATE")),
    ]
    if queues:
        asked.append((tables.ranges, _ALL))
    if crons:
        asked.append((tables.crons, ("SELECT", "INSERT", "UPDATE")))
    if audit or endpoints:
        asked.append((tables.audit, ("INSERT",)))
    if endpoints:
        asked.append((tables.endpoints, ("SELECT", "UPDATE")))
    needed = [(table, right) for table, rights in asked for right in rights]
    rows = ", ".join(f"('{quoted(table)}', '{right}')" for table, right in needed)
    return text(
        f"""
        SELECT name, lacking FROM (VALUES {rows}) AS needed (name, lacking)
        WHERE NOT has_table_privilege(name, lacking)
        """
    )


def version(tables: Tables) -> Select[int, int]:
    """Version of the schema, and the oldest version whose library still works on it."""
    return select(tables.meta.c.schema_version, tables.meta.c.compatible_since)


def last_id(tables: Tables) -> Select[Any]:
    """The highest id in the log, None if it is empty. Served by the partitions' primary keys."""
    return select(func.max(tables.outbox.c.id))


def cursors_ahead(tables: Tables, last_value: int) -> Select[str, int]:
    """Name and cursor of the listeners that have passed an id that was never drawn."""
    listeners = tables.listeners
    return (
        select(listeners.c.name, func.max(listeners.c.last_processed_id))
        .where(listeners.c.last_processed_id > last_value)
        .group_by(listeners.c.name)
        .order_by(listeners.c.name)
    )
