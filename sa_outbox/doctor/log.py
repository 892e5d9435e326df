"""The partitions of the log."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sa_outbox.sql.people import doctor as statements

from .finding import Finding

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .case import Case

MAX_COUNTED = 1000


def find(case: Case) -> Iterator[Finding]:
    bounds = case.connection.execute(statements.log_bounds(case.tables)).one()
    # Retention may have emptied it.
    cursors = (cursor for each in case.overview.listeners for cursor in each.cursors)
    last = max([case.overview.log.last_id or 0, *(each.position for each in cursors)])
    upper = bounds.upper or 0
    in_rest = case.connection.scalar(
        statements.events_from(case.tables), {"first": upper, "most": MAX_COUNTED}
    )
    if in_rest:
        yield Finding(
            code="events-in-rest",
            what="Events are in the catch-all partition. They are delivered "
            "like all others, but can't be removed by dropping a partition.",
            fix=case.command("prune"),
            evidence={"events": in_rest, "at_least": in_rest == MAX_COUNTED, "from": upper},
        )
    elif upper - last <= bounds.size:
        yield Finding(
            code="partitions-run-out",
            what=f"The last partition of the log ends at {upper}, and the log is at {last}. Later "
            "events go to the catch-all partition. A consumer whose role owns the tables creates "
            "partitions ahead by itself.",
            fix=case.command("prune"),
            evidence={"last_id": last, "upper": upper, "size": bounds.size},
        )
