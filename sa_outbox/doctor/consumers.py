"""Is a consumer running?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .finding import Finding

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .case import Case

START = "python -m sa_outbox.consume MODULE:ATTRIBUTE"


def find(case: Case) -> Iterator[Finding]:
    listeners = [each for each in case.overview.listeners if each.cursors]
    ours = [each for each in listeners if case.declared is None or each.name in case.declared]
    waiting = [each for each in ours if each.paused_at is None and each.lag_events]
    if waiting and not case.overview.consumers:
        yield Finding(
            code="no-consumer",
            what="Events are waiting and no consumer is running.",
            fix=START,
            evidence={each.name: each.lag_events for each in waiting},
        )
    for each in ours:
        expired = sum(cursor.lease_expired for cursor in each.cursors)
        if (expired or each.ranges.free) and each.name not in case.attended:
            yield Finding(
                code="lease-expired",
                what=f"The consumer of listener {each.name!r} vanished without releasing it, and "
                "no other has taken over. Nothing is lost: the next consumer takes over.",
                fix=START,
                evidence={"listener": each.name, "leases": expired, "ranges": each.ranges.free},
            )
