"""What the catalog says about the tables of a schema, in a form that can be compared."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import text

if TYPE_CHECKING:
    from sqlalchemy import Connection

_PARTITION = "{prefix}_(p[0-9]+|rest)"

_QUERIES = {
    "tables": """
        SELECT c.relname, c.relkind, c.relpersistence, pg_get_partkeydef(c.oid),
               (SELECT array_agg(o ORDER BY o) FROM unnest(c.reloptions) o)
        FROM pg_class c WHERE c.relnamespace = :schema AND c.relkind IN ('r', 'p')""",
    "columns": """
        SELECT c.relname, a.attnum, a.attname, format_type(a.atttypid, a.atttypmod), a.attnotnull,
               a.attidentity, a.attgenerated, pg_get_expr(d.adbin, d.adrelid), a.attcollation
        FROM pg_class c
        JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
        LEFT JOIN pg_attrdef d ON d.adrelid = c.oid AND d.adnum = a.attnum
        WHERE c.relnamespace = :schema AND c.relkind IN ('r', 'p')""",
    "constraints": """
        SELECT c.relname, k.conname, k.contype, pg_get_constraintdef(k.oid)
        FROM pg_constraint k JOIN pg_class c ON c.oid = k.conrelid
        WHERE k.connamespace = :schema AND k.contype <> 'n'""",
    "indexes": """
        SELECT t.relname, i.relname, x.indisunique, x.indisprimary, i.reloptions,
               (SELECT array_agg(pg_get_indexdef(i.oid, n, false) || ' ' || x.indoption[n - 1])
                FROM generate_series(1, x.indnatts) n),
               pg_get_expr(x.indpred, x.indrelid)
        FROM pg_index x
        JOIN pg_class i ON i.oid = x.indexrelid JOIN pg_class t ON t.oid = x.indrelid
        WHERE i.relnamespace = :schema""",
    "sequences": """
        SELECT c.relname, c.relname, format_type(s.seqtypid, NULL), s.seqstart, s.seqincrement,
               s.seqmin, s.seqmax, s.seqcache, s.seqcycle
        FROM pg_sequence s JOIN pg_class c ON c.oid = s.seqrelid WHERE c.relnamespace = :schema""",
    "partitions": """
        SELECT c.relname, p.relname, pg_get_expr(c.relpartbound, c.oid)
        FROM pg_class c JOIN pg_inherits i ON i.inhrelid = c.oid
        JOIN pg_class p ON p.oid = i.inhparent
        WHERE c.relnamespace = :schema AND c.relkind IN ('r', 'p')""",
}


def snapshot(
    connection: Connection,
    schema: str = "public",
    *,
    prefix: str = "outbox",
    partitions: bool = True,
) -> dict[str, list[tuple[object, ...]]]:
    """Everything about the outbox in *schema*; without Alembic's own version tables."""
    found: dict[str, list[tuple[object, ...]]] = {}
    for what, query in _QUERIES.items():
        rows = connection.execute(
            text(
                f"SELECT * FROM ({query}) AS q (owner) WHERE (owner = :prefix OR owner ~ :ours)"
                " AND owner !~ 'alembic_version' AND (:partitions OR owner !~ :partition)"
            ).bindparams(prefix=prefix, ours=f"^{prefix}_", partition=f"^{_partition(prefix)}$"),
            {"schema": _oid(connection, schema), "partitions": partitions},
        )
        found[what] = sorted((tuple(map(_plain, row)) for row in rows), key=repr)
    return found


def _partition(prefix: str) -> str:
    return _PARTITION.format(prefix=prefix)


def _oid(connection: Connection, schema: str) -> int:
    oid: int = connection.execute(
        text("SELECT CAST(oid AS bigint) FROM pg_namespace WHERE nspname = :schema"),
        {"schema": schema},
    ).scalar_one()
    return oid


def _plain(value: object) -> object:
    return tuple(value) if isinstance(value, list) else value
