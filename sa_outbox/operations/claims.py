"""What the processes of queues have claimed: which range, how much is left, until when."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sa_outbox.sql.people.claims import claimed_ranges

from .statement_runner import OperatorRunner

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from sa_outbox.database.tables import Tables

MAX_LISTED = 1000


@dataclass(frozen=True, kw_only=True, slots=True)
class ClaimedRange:
    """A range of events that one process has taken out of a queue."""

    queue: str
    number: int
    events: int
    """Ids that are not settled."""
    first_id: int
    owner: str | None
    """The process, as host:process:start; None: it died or left, and the next process claims it."""
    lease_seconds: float | None
    """Until the claim ends, unless it is renewed."""
    crashes: int
    """How often a process that held it was not heard of again."""


def list_claimed(
    connection: Connection, tables: Tables, queue: str | None = None
) -> tuple[ClaimedRange, ...]:
    """All claimed ranges, at most 1000, or those of one *queue*; none is claimed when a queue is
    idle."""
    rows = OperatorRunner(connection, tables).rows(
        claimed_ranges(tables), queue=queue, limit=MAX_LISTED
    )
    return tuple(ClaimedRange(**row) for row in rows)
