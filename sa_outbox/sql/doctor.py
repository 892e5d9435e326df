"""Questions of the doctor: what the catalogs, the statistics and the settings of the server say.

Cheap on a log of any length: what is counted is counted up to a bound. None locks anything.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import bindparam, text
from sqlalchemy.dialects.postgresql import ARRAY
from sqlalchemy.types import BigInteger, Double, Integer, Text

from .names import log_name, quoted

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sqlalchemy import Table, TextClause

    from ..tables import Tables


def holders(tables: Tables) -> TextClause:
    """The transactions that have written to the log and not ended, the oldest first.

    pid, role, application_name, state, seconds, query; gid: of a prepared transaction, which has
    no pid. Of other roles' sessions only members of pg_read_all_stats see more than the pid.
    """
    return text(
        f"""
        SELECT l.pid, p.gid, CAST(coalesce(a.usename, p.owner, '') AS text) AS role,
               coalesce(a.application_name, '') AS application_name, coalesce(a.state, '') AS state,
               coalesce(a.query, '') AS query,
               CAST(extract(epoch FROM clock_timestamp() - coalesce(a.xact_start, p.prepared))
                   AS float8) AS seconds
        FROM pg_catalog.pg_locks l
        LEFT JOIN pg_catalog.pg_stat_activity a ON a.pid = l.pid
        LEFT JOIN pg_catalog.pg_locks x ON l.pid IS NULL AND x.pid IS NULL
          AND x.locktype = 'transactionid' AND x.virtualtransaction = l.virtualtransaction
        LEFT JOIN pg_catalog.pg_prepared_xacts p ON p.transaction = x.transactionid
        WHERE l.locktype = 'relation' AND l.relation = CAST('{log_name(tables)}' AS regclass)
          AND l.database = (SELECT oid FROM pg_catalog.pg_database
                            WHERE datname = current_database())
          AND l.mode = 'RowExclusiveLock' AND l.granted
        ORDER BY seconds DESC NULLS LAST
        """
    )


def storage(tables: Iterable[Table]) -> TextClause:
    """Of each of these tables: name, options (as ``ALTER TABLE ... SET`` has them), bytes, and
    dead: dead rows as the statistics know them."""
    names = ", ".join(f"CAST('{quoted(each)}' AS regclass)" for each in tables)
    return text(
        f"""
        SELECT CAST(c.relname AS text) AS name, coalesce(c.reloptions, '{{}}') AS options,
               pg_relation_size(c.oid) AS bytes, coalesce(s.n_dead_tup, 0) AS dead
        FROM pg_catalog.pg_class c LEFT JOIN pg_catalog.pg_stat_all_tables s ON s.relid = c.oid
        WHERE c.oid = ANY (ARRAY[{names}]) ORDER BY c.relname
        """
    )


def unvacuumed_partitions(tables: Tables) -> TextClause:
    """Schema and name of the partitions of the log for which autovacuum is switched off."""
    return text(
        f"""
        SELECT CAST(n.nspname AS text) AS schema, CAST(c.relname AS text) AS name
        FROM pg_catalog.pg_inherits i JOIN pg_catalog.pg_class c ON c.oid = i.inhrelid
        JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
        CROSS JOIN LATERAL pg_options_to_table(c.reloptions) AS o
        WHERE i.inhparent = CAST('{log_name(tables)}' AS regclass)
          AND o.option_name = 'autovacuum_enabled' AND o.option_value IN ('false', 'off', '0', 'no')
        ORDER BY c.relname
        """
    )


def rows_of(table: Table) -> TextClause:
    """How many rows a small table has."""
    return text(f"SELECT count(*) FROM {quoted(table)}")


def log_bounds(tables: Tables) -> TextClause:
    """One row: upper, the id from which on no partition but the default one takes events (None:
    there is no other), and size, ids in a partition."""
    return text(
        f"""
        SELECT (SELECT max(CAST(substring(pg_get_expr(c.relpartbound, 0)
                                          FROM 'TO \\(''?([0-9]+)''?\\)') AS bigint))
                FROM pg_catalog.pg_inherits i JOIN pg_catalog.pg_class c ON c.oid = i.inhrelid
                WHERE i.inhparent = CAST('{log_name(tables)}' AS regclass)) AS upper,
               (SELECT partition_size FROM {quoted(tables.meta)}) AS size
        """
    )


def events_from(tables: Tables) -> TextClause:
    """How many events have an id from :first on, counted up to :most. Their primary key."""
    return text(
        f"SELECT count(*) FROM (SELECT FROM {log_name(tables)} WHERE id >= :first"
        " LIMIT :most) AS few"
    ).bindparams(bindparam("first", type_=BigInteger), bindparam("most", type_=Integer))


def expired(table: Table) -> TextClause:
    """How many rows have expired more than :seconds ago, counted up to :most. Their index."""
    return text(
        f"""
        SELECT count(*) FROM (
            SELECT FROM {quoted(table)}
            WHERE expires_at < clock_timestamp() - make_interval(secs => :seconds) LIMIT :most
        ) AS few
        """
    ).bindparams(bindparam("seconds", type_=Double), bindparam("most", type_=Integer))


def settings(names: Iterable[str]) -> TextClause:
    """Name and value of these settings of the server, as they hold for this session."""
    return text(
        "SELECT name, setting FROM pg_catalog.pg_settings WHERE name = ANY (CAST(:names AS text[]))"
    ).bindparams(bindparam("names", list(names), type_=ARRAY(Text)))


def server() -> TextClause:
    """One row: version (as a number), connections in use, and the time there."""
    return text(
        """
        SELECT CAST(current_setting('server_version_num') AS integer) AS version,
               current_setting('server_version') AS version_name,
               CAST((SELECT sum(numbackends) FROM pg_catalog.pg_stat_database) AS integer)
                   AS connections,
               CAST(current_database() AS text) AS database,
               CAST(extract(epoch FROM clock_timestamp()) AS float8) AS now
        """
    )
