"""Queries about the database itself: what exists, who owns it, what is allowed.

Run when the schema is created or verified, never on an event's path. They read the system catalogs,
which any role may read, and lock only what they say.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlalchemy import bindparam, case, column, func, literal, select, table, text
from sqlalchemy.dialects.postgresql import ARRAY
from sqlalchemy.types import BigInteger, Boolean, Text

from .names import quoted, table_name

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from sqlalchemy import Select, TextClause

    from sa_outbox.database.names import Names
    from sa_outbox.database.rights import Rights
    from sa_outbox.database.tables import Tables

_MIGRATION_LOCK = 0x5A_0B0C
"""Key of the advisory lock, one for all outboxes of a database: migrations are rare."""


def take_migration_lock() -> Select[Any]:
    """Wait for the right to change the schema, and hold it until the transaction ends."""
    return select(func.pg_advisory_xact_lock(_MIGRATION_LOCK))


def migration_lock_held() -> TextClause:
    """Whether this session still holds that lock: in AUTOCOMMIT it ended with its own statement."""
    return text(
        """
        SELECT EXISTS (
            SELECT FROM pg_catalog.pg_locks
            WHERE locktype = 'advisory' AND pid = pg_backend_pid() AND classid = 0
              AND objid = :key AND objsubid = 1
        )
        """
    ).bindparams(key=_MIGRATION_LOCK)


def this_session() -> Select[str, str, bool, bool, str, str]:
    """Role, database, whether it is a standby, whether it is read-only, isolation level, and the
    encoding of the database."""
    return select(
        func.current_user().label("role"),
        func.current_database().label("database"),
        func.pg_is_in_recovery().label("in_recovery"),
        (func.current_setting("transaction_read_only") == literal("on")).label("read_only"),
        func.current_setting("transaction_isolation").label("isolation"),
        func.current_setting("server_encoding").label("encoding"),
    )


def schema_of(candidates: Iterable[str]) -> TextClause:
    """The schema in which ``search_path`` finds the first of *candidates* that exists.

    Without any, the schema in which a new table would be created.
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
    """Those of the relations *names* in *schema* that exist, one row each.

    name; kind, as in pg_class; visible: its bare name resolves to it and not to another table
    earlier in the ``search_path``; columns; of these, insertable and readable by the current role;
    is_owner: it has the rights of the owner.
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
               ARRAY(
                   SELECT CAST(a.attname AS text) FROM pg_catalog.pg_attribute a
                   WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
                     AND has_column_privilege(c.oid, a.attnum, 'INSERT')
               ) AS insertable,
               ARRAY(
                   SELECT CAST(a.attname AS text) FROM pg_catalog.pg_attribute a
                   WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
                     AND has_column_privilege(c.oid, a.attnum, 'SELECT')
               ) AS readable,
               pg_has_role(c.relowner, 'USAGE') AS is_owner
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
    cache, increment, cycle; may_read: whether the role may read the sequence; default_partition:
    whether there is one.
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


def missing_rights(tables: Tables, wanted: Mapping[str, Rights]) -> TextClause:
    """Those of the rights *wanted* on tables (by their suffix) that the current role lacks: a row
    for each table, right and column (None: it is wanted for the whole table)."""
    values = ", ".join(
        f"('{table_name(tables.names, suffix)}', '{right}', {_literal(column)})"
        for suffix, rights in wanted.items()
        for right, columns in rights.items()
        for column in columns or (None,)
    )
    return text(
        f"""
        SELECT name, lacking, col FROM (VALUES {values}) AS needed (name, lacking, col)
        WHERE NOT CASE WHEN col IS NULL THEN has_table_privilege(name, lacking)
                       ELSE has_column_privilege(name, CAST(col AS text), lacking) END
        """
    )


def _literal(column: str | None) -> str:
    return "NULL" if column is None else f"'{column}'"


def own_everything(names: Names, role: str) -> str:
    """Make *role* the owner of every table and view of the outbox, and of the log's partitions.
    Plain text, for an operator to run. The sequences follow their tables."""
    suffixes = (
        *("", "meta", "listeners", "consumers", "deliveries", "ranges", "dead_letters"),
        *("idempotency_keys", "audit", "inbox", "results", "crons", "endpoints", "backlog"),
    )
    tables = ", ".join(f"'{table_name(names, each)}'" for each in suffixes)
    whom = "'" + role.replace("'", "''") + "'"
    return f"""DO $$DECLARE each regclass; BEGIN
    FOR each IN
        SELECT CAST(name AS regclass) FROM unnest(ARRAY[{tables}]) AS name
        UNION ALL
        SELECT inhrelid FROM pg_inherits WHERE inhparent = CAST('{table_name(names)}' AS regclass)
    LOOP
        EXECUTE format('ALTER TABLE %s OWNER TO %I', each, {whom});
    END LOOP;
END$$;"""


def row_security(tables: Tables) -> TextClause:
    """The tables with row-level security: name, quoted (with its schema, if it was given), and
    active: whether it hides rows from the current
    role. It hides none from the owner, unless forced, nor from superusers and BYPASSRLS."""
    names = ", ".join(f"'{quoted(each)}'" for each in tables.metadata.tables.values())
    return text(
        f"""
        SELECT CAST(c.relname AS text) AS name, ours.name AS quoted,
               row_security_active(c.oid) AS active
        FROM unnest(ARRAY[{names}]) AS ours (name)
        JOIN pg_catalog.pg_class c ON c.oid = to_regclass(ours.name)
        WHERE c.relrowsecurity ORDER BY c.relname
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
