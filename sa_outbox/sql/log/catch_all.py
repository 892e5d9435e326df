"""The catch-all partition: give its events partitions of their own.

They are copied to detached tables, which then replace it. docs/retention.md has the argument;
``partitions.py`` explains how locks are taken.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import bindparam
from sqlalchemy.types import BigInteger

from ..server.names import log_name
from ..server.timed_text import text
from .partitions import ALIKE, INSERT_ONLY, ONCE_INSIDE, beside, block

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sqlalchemy import TextClause

    from ...database.tables import Tables


def begin(
    tables: Tables, name: str, low: int, high: int, *, owner: str, patience: int
) -> TextClause:
    """Create a table that will become the partition *name*, with indexes and a constraint that lets
    it be attached without a scan. It is not visible in the log yet."""
    partition = beside(tables, name)
    return block(
        tables,
        patience,
        f"""
        IF to_regclass('{partition}') IS NOT NULL THEN
            RETURN;
        END IF;
        CREATE TABLE {partition} (
            LIKE {log_name(tables)} {ALIKE} INCLUDING INDEXES,
            CONSTRAINT "{name}_range_check" CHECK (id >= {low} AND id < {high})
        ) WITH ({INSERT_ONLY});
        ALTER TABLE {partition} OWNER TO {owner};
        """,
    )


def copy(tables: Tables, name: str, low: int, high: int, *, rest: str) -> TextClause:
    """Copy the next :limit events up to :final from *rest* to the table *name*; returns how many.

    In order of ids and only what is final, so the highest copied id shows what is missing. Events
    never change. Locks no row, and holds no lock of the log that readers check. For a transaction
    that runs nothing else. Primary keys.
    """
    columns = _columns(tables)
    return text(
        f"""
        WITH copied AS (
            INSERT INTO {beside(tables, name)} ({columns})
            SELECT {columns} FROM {beside(tables, rest)}
            WHERE {_above(tables, name, low, high)} AND id <= :final
            ORDER BY id LIMIT :limit RETURNING id
        )
        SELECT count(*) FROM copied
        """
    ).bindparams(bindparam("final", type_=BigInteger), bindparam("limit", type_=BigInteger))


def uncopied(
    tables: Tables, filled: Iterable[tuple[str, int, int]], *, rest: str, most: int
) -> TextClause:
    """How many events of *rest* are in none of the tables *filled* (name, low, high); *most* + 1
    means that many or more, for each. Primary keys."""
    return text(f"SELECT count(*) FROM ({_uncopied(tables, filled, rest, most)}) AS missing")


def _uncopied(tables: Tables, filled: Iterable[tuple[str, int, int]], rest: str, most: int) -> str:
    return " UNION ALL ".join(
        f"(SELECT id FROM {beside(tables, rest)} WHERE {_above(tables, *one)} LIMIT {most + 1})"
        for one in filled
    )


def _above(tables: Tables, name: str, low: int, high: int) -> str:
    highest = f"(SELECT max(id) FROM {beside(tables, name)})"
    return f"id > coalesce({highest}, {low} - 1) AND id < {high}"


def adopt(
    tables: Tables,
    filled: Iterable[tuple[str, int, int]],
    *,
    rest: str,
    most: int,
    patience: int,
) -> TextClause:
    """Replace *rest* by the tables *filled* (name, low, high), which hold its events.

    Under ACCESS EXCLUSIVE on the log: nobody writes, nobody reads, all drawn ids are final. The
    last events, up to *most*, are copied here; if there are more, or some that fit no table,
    nothing is done. A reader sees every event both before, in *rest*, and after.
    """
    log, catch_all, columns = log_name(tables), beside(tables, rest), _columns(tables)
    filled = list(filled)
    ready = ", ".join(f"to_regclass('{beside(tables, name)}')" for name, _, _ in filled)
    covered = " OR ".join(f"(id >= {low} AND id < {high})" for _, low, high in filled)
    copies = "".join(
        f"INSERT INTO {beside(tables, one[0])} ({columns})"
        f" SELECT {columns} FROM {catch_all} WHERE {_above(tables, *one)};\n"
        for one in filled
    )
    attached = "".join(
        f"ALTER TABLE {log} ATTACH PARTITION {beside(tables, name)}"
        f" FOR VALUES FROM ({low}) TO ({high});\n"
        f'ALTER TABLE {beside(tables, name)} DROP CONSTRAINT "{name}_range_check";\n'
        for name, low, high in filled
    )
    return block(
        tables,
        patience,
        f"""
        LOCK TABLE ONLY {log} IN ACCESS EXCLUSIVE MODE;
        PERFORM set_config('lock_timeout', '{ONCE_INSIDE}ms', true);
        IF (SELECT count(*) FROM pg_catalog.pg_class
            WHERE oid IN ({ready}) AND NOT relispartition) <> {len(filled)}
        THEN
            RETURN;
        END IF;
        IF (SELECT count(*) FROM ({_uncopied(tables, filled, rest, most)}) AS missing) > {most}
           OR EXISTS (SELECT FROM (SELECT min(id) AS id FROM {catch_all}
                      UNION ALL SELECT max(id) FROM {catch_all}) AS ends
                      WHERE id IS NOT NULL AND NOT ({covered}))
        THEN
            RETURN;
        END IF;
        {copies}
        DROP TABLE {catch_all};
        {attached}
        CREATE TABLE {catch_all} PARTITION OF {log} DEFAULT WITH ({INSERT_ONLY});
        """,
    )


def discard(tables: Tables, name: str, *, patience: int) -> TextClause:
    """Drop a table that was being filled and is no longer useful. Never a partition."""
    return block(
        tables,
        patience,
        f"""
        IF EXISTS (SELECT FROM pg_catalog.pg_class
                   WHERE oid = to_regclass('{beside(tables, name)}') AND NOT relispartition)
        THEN
            DROP TABLE {beside(tables, name)};
        END IF;
        """,
    )


def _columns(tables: Tables) -> str:
    return ", ".join(f'"{column.name}"' for column in tables.outbox.columns)
