"""The transactions that may still add events, and their sessions.

Plain text without parameters, like the statements of the overview: see ``people/overview.py``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..server.names import table_name
from ..server.times import SERVER_NOW

if TYPE_CHECKING:
    from ...database.names import Names


def holders(names: Names) -> str:
    """The transactions that hold RowExclusiveLock on the log, as in ``horizon.holders``, with pid,
    application_name, state and age in seconds, oldest first.

    For a prepared transaction pid is None and the rest unknown. Other roles' application_name,
    state and age are visible only to members of pg_read_all_stats. Reads no table, and takes no
    lock on the log.
    """
    return f"""
        SELECT l.virtualtransaction AS transaction, l.pid,
               coalesce(a.application_name, '') AS application_name,
               coalesce(a.state, '') AS state,
               coalesce(CAST(extract(epoch FROM {SERVER_NOW} - a.xact_start) AS float8), 0)
                   AS seconds
        FROM pg_catalog.pg_locks l LEFT JOIN pg_catalog.pg_stat_activity a ON a.pid = l.pid
        WHERE l.locktype = 'relation' AND l.relation = CAST('{table_name(names)}' AS regclass)
          AND l.database = (SELECT oid FROM pg_catalog.pg_database
                            WHERE datname = current_database())
          AND l.mode = 'RowExclusiveLock' AND l.granted
        ORDER BY seconds DESC
        """
