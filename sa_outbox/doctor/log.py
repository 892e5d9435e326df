"""The partitions of the log."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sa_outbox.sql import doctor as statements

from .finding import Finding

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .case import Case

MOST_COUNTED = 1000


def find(case: Case) -> Iterator[Finding]:
    bounds = case.connection.execute(statements.log_bounds(case.tables)).one()
    last = case.overview.log.last_id or 0
    upper = bounds.upper or 0
    in_rest = case.connection.scalar(
        statements.events_from(case.tables), {"first": upper, "most": MOST_COUNTED}
    )
    if in_rest:
        yield Finding(
            code="events-in-rest",
            what="Events are in the partition that takes what no other takes. They are delivered "
            "like all others, but can't be removed by dropping a partition.",
            mend=case.command("prune"),
            evidence={"events": in_rest, "at_least": in_rest == MOST_COUNTED, "from": upper},
        )
    elif upper - last <= bounds.size:
        yield Finding(
            code="partitions-run-out",
            what=f"The last partition of the log ends at {upper}, and the log is at {last}. What "
            "comes after goes to the partition that takes the rest. A consumer whose role owns the "
            "tables makes partitions ahead by itself.",
            mend=case.command("prune"),
            evidence={"last_id": last, "upper": upper, "size": bounds.size},
        )
