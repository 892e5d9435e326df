"""How long our transactions may idle: the server ends one whose process is suspended.

A suspended process (SIGSTOP, a closed laptop, a virtual machine being moved) keeps its connections,
and with them the locks of an unfinished transaction. Whoever takes its work over would wait for
them forever.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import bindparam, text
from sqlalchemy.types import Double, Integer

if TYPE_CHECKING:
    from sqlalchemy import TextClause

BOUND = (
    "set_config('idle_in_transaction_session_timeout',"
    " CAST(CAST(CAST(:duration AS float8) * 1000 AS bigint) AS text), true)"
)
"""For the select list of a statement that is sent anyway and has :duration: after it, until the
transaction ends, the server waits at most that many seconds for the next statement."""
COMMIT, ROLLBACK = "COMMIT", "ROLLBACK"
RELEASE_SAVEPOINT = "RELEASE SAVEPOINT {0}"
NEXT_SAVEPOINT = "RELEASE SAVEPOINT {0}; SAVEPOINT {0}"
"""Two statements in one message: keep what was done since the savepoint, and set it again."""
PING = "SELECT 1"
"""Any answer will do: the connection is alive."""


def begin(seconds: float) -> str:
    """Begin a transaction in READ COMMITTED that may idle for *seconds*.

    Two statements in one message, without parameters: one round trip, and nothing of it is left on
    the connection when the transaction ends.
    """
    patience = f"SET LOCAL idle_in_transaction_session_timeout = {max(1, int(seconds * 1000))}"
    return f"BEGIN ISOLATION LEVEL READ COMMITTED; {patience}"


def ping() -> TextClause:
    """One row, on any connection."""
    return text(PING)


def end_backend() -> TextClause:
    """End the server process :pid, and its transaction, if it has one that this role may see. One
    row if so. A number that a pooler made up ends nobody."""
    return text(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid = :pid"
        " AND datname = current_database() AND xact_start IS NOT NULL"
    ).bindparams(bindparam("pid", type_=Integer))


def bound() -> TextClause:
    """Let the transaction idle for at most :duration seconds. One row."""
    return text(f"SELECT {BOUND}").bindparams(bindparam("duration", type_=Double))


def abort() -> TextClause:
    """Fail, so that the transaction, or the savepoint, can only be rolled back."""
    return text("DO $$BEGIN RAISE 'a rule or trigger on the log has swallowed events'; END$$")
