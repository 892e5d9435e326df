"""How long a transaction of ours may stand still: the server ends one whose process sleeps.

A process that is stopped (SIGSTOP, a laptop that is closed, a virtual machine that is moved) keeps
its connections, and with them the locks of a transaction it was in the middle of. Whoever takes its
work over would wait for them for ever.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import bindparam, text
from sqlalchemy.types import Double

if TYPE_CHECKING:
    from sqlalchemy import TextClause

BOUND = (
    "set_config('idle_in_transaction_session_timeout',"
    " CAST(CAST(CAST(:duration AS float8) * 1000 AS bigint) AS text), true)"
)
"""For the list of a statement that is sent anyway and has :duration: from its end on, until the
transaction ends, the server waits for the next statement so many seconds."""
COMMIT, ROLLBACK = "COMMIT", "ROLLBACK"


def begin(seconds: float) -> str:
    """Begin a transaction in READ COMMITTED that may stand still for so many *seconds*.

    Two statements in one message, without parameters: one round trip, and nothing of it is left on
    the connection when the transaction ends.
    """
    patience = f"SET LOCAL idle_in_transaction_session_timeout = {max(1, int(seconds * 1000))}"
    return f"BEGIN ISOLATION LEVEL READ COMMITTED; {patience}"


def bound() -> TextClause:
    """Let the transaction stand still for :duration seconds at most. One row."""
    return text(f"SELECT {BOUND}").bindparams(bindparam("duration", type_=Double))
