"""The doctor's queries on the server's catalogs, statistics and settings.

Cheap on a log of any length: counts are bounded. None locks anything.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import bindparam
from sqlalchemy.dialects.postgresql import ARRAY
from sqlalchemy.types import BigInteger, Double, Integer, Text

from ..server.names import log_name, quoted
from ..server.timed_text import text
from ..server.times import NOW, SERVER_NOW

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sqlalchemy import Table, TextClause

    from ...database.tables import Tables


def holders(tables: Tables) -> TextClause:
    """The transactions that have written to the log and not ended, oldest first.

    pid, role, application_name, state, seconds, query; gid: of a prepared transaction, which has no
    pid. Only members of pg_read_all_stats see more than the pid of other roles' sessions.
    """
    return text(
        f"""
        SELECT l.pid, p.gid, CAST(coalesce(a.usename, p.owner, '') AS text) AS role,
               coalesce(a.application_name, '') AS application_name, coalesce(a.state, '') AS state,
               coalesce(a.query, '') AS query,
               CAST(extract(epoch FROM {SERVER_NOW} - coalesce(a.xact_start, p.prepared))
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


def interceptors(tables: Tables) -> TextClause:
    """Enabled rules for INSERT, and enabled triggers before it for each row, on the log or one of
    its partitions: kind (rule, trigger), name, schema and table."""
    log = f"CAST('{log_name(tables)}' AS regclass)"
    return text(
        f"""
        WITH ours AS (
            SELECT {log} AS oid UNION ALL
            SELECT inhrelid FROM pg_catalog.pg_inherits WHERE inhparent = {log}
        ), found AS (
            SELECT 'rule' AS kind, rulename AS name, ev_class AS oid FROM pg_catalog.pg_rewrite
            WHERE ev_type = '3' AND ev_enabled IN ('O', 'A')
            UNION ALL
            SELECT 'trigger', tgname, tgrelid FROM pg_catalog.pg_trigger
            WHERE NOT tgisinternal AND tgenabled IN ('O', 'A') AND tgparentid = 0
              AND tgtype & 7 = 7  -- for each row, before, insert
        )
        SELECT f.kind, CAST(f.name AS text) AS name, CAST(n.nspname AS text) AS schema,
               CAST(c.relname AS text) AS table
        FROM found f JOIN ours USING (oid) JOIN pg_catalog.pg_class c ON c.oid = f.oid
        JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
        ORDER BY c.relname, f.kind, f.name
        """
    )


def wide_grants(tables: Tables) -> TextClause:
    """Who, besides the owner, may write the ids of the log, or directly into a partition: role
    (None: PUBLIC), schema and table, is_log. Members of these roles may do so too, and are not
    listed."""
    log = f"CAST('{log_name(tables)}' AS regclass)"
    return text(
        f"""
        SELECT DISTINCT CAST(r.rolname AS text) AS role, CAST(n.nspname AS text) AS schema,
               CAST(c.relname AS text) AS table, c.oid = {log} AS is_log
        FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
        CROSS JOIN LATERAL (
            SELECT grantee, privilege_type FROM aclexplode(c.relacl)
            UNION ALL
            SELECT acl.grantee, acl.privilege_type FROM pg_catalog.pg_attribute a
            CROSS JOIN LATERAL aclexplode(a.attacl) AS acl
            WHERE a.attrelid = c.oid AND (a.attname = 'id' OR c.oid <> {log})
        ) AS given
        LEFT JOIN pg_catalog.pg_roles r ON r.oid = given.grantee
        WHERE given.privilege_type = 'INSERT' AND given.grantee <> c.relowner
          AND (c.oid = {log} OR c.oid IN (
                SELECT inhrelid FROM pg_catalog.pg_inherits WHERE inhparent = {log}))
        ORDER BY 3, 1
        """
    )


def storage(tables: Iterable[Table]) -> TextClause:
    """For each of these tables: name, options (as in ``ALTER TABLE ... SET``), bytes, and dead:
    dead rows according to the statistics."""
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
    """Schema and name of the log's partitions for which autovacuum is off."""
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
    """One row: upper, the id from which on only the default partition takes events (None: there is
    no other), and size, ids per partition."""
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
            WHERE expires_at < {NOW} - make_interval(secs => :seconds) LIMIT :most
        ) AS few
        """
    ).bindparams(bindparam("seconds", type_=Double), bindparam("most", type_=Integer))


def without_event(tables: Tables) -> TextClause:
    """Deliveries that wait for an event that is no longer in the log, nor in a dead letter:
    listener, deliveries (how many), position (the lowest), among the first :most of all. Primary
    keys."""
    return text(
        f"""
        SELECT d.listener, count(*) AS deliveries, min(d.position) AS position
        FROM (SELECT listener, position, state, dead_letter FROM {quoted(tables.deliveries)}
              ORDER BY listener, position LIMIT :most) AS d
        LEFT JOIN LATERAL (
            SELECT true AS there FROM {log_name(tables)}
            WHERE d.dead_letter IS NULL AND id = d.position
            UNION ALL
            SELECT true FROM {quoted(tables.dead_letters)} WHERE id = d.dead_letter LIMIT 1
        ) AS event ON true
        WHERE event.there IS NULL AND d.state <> 'cancelled'
        GROUP BY d.listener ORDER BY d.listener
        """
    ).bindparams(bindparam("most", type_=Integer))


def settings(names: Iterable[str]) -> TextClause:
    """Name and value of these server settings, as in effect for this session."""
    return text(
        "SELECT name, setting FROM pg_catalog.pg_settings WHERE name = ANY (CAST(:names AS text[]))"
    ).bindparams(bindparam("names", list(names), type_=ARRAY(Text)))


def server() -> TextClause:
    """One row: version (as a number), connections in use, and the time there."""
    return text(
        f"""
        SELECT CAST(current_setting('server_version_num') AS integer) AS version,
               current_setting('server_version') AS version_name,
               CAST((SELECT sum(numbackends) FROM pg_catalog.pg_stat_database) AS integer)
                   AS connections,
               CAST(current_database() AS text) AS database,
               CAST(extract(epoch FROM {SERVER_NOW}) AS float8) AS now
        """
    )
