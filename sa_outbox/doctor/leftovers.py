"""What has expired and still exists, and what waits for something that is gone."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sa_outbox.sql.people import doctor as statements
from sa_outbox.sql.server.names import quoted

from .finding import Finding

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .case import Case

MAX_COUNTED = 10_000


def find(case: Case) -> Iterator[Finding]:
    yield from _expired(case)
    yield from _without_event(case)


def _without_event(case: Case) -> Iterator[Finding]:
    values = {"most": MAX_COUNTED}
    for row in case.connection.execute(statements.without_event(case.tables), values):
        yield Finding(
            code="event-gone",
            what=f"Deliveries of listener {row.listener!r} wait for events that are no longer in "
            "the log: someone deleted them by hand. Later events of their keys wait behind them. "
            "A consumer deletes such deliveries by itself, in its next round of maintenance.",
            fix=case.command("prune"),
            evidence=dict(row._mapping),  # noqa: SLF001 - its public name
        )


def _expired(case: Case) -> Iterator[Finding]:
    ours = case.tables
    for table in (ours.idempotency_keys, ours.inbox, ours.results):
        values = {"seconds": case.thresholds.expired, "most": MAX_COUNTED}
        count = case.connection.scalar(statements.expired(table), values)
        if count:
            yield Finding(
                code="keys-expired",
                what=f"Rows of {table.name} expired long ago, and nothing deletes them: the "
                "table only grows. A consumer does this by itself.",
                fix=f"DELETE FROM {quoted(table)} WHERE expires_at < now();",  # noqa: S608 - advice
                evidence={
                    "table": table.name,
                    "rows": count,
                    "at_least": count == MAX_COUNTED,
                },
            )
