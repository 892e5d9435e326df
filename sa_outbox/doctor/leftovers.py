"""What has expired and is still there."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sa_outbox.sql import doctor as statements
from sa_outbox.sql.names import quoted

from .finding import Finding

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .case import Case

MOST_COUNTED = 10_000


def find(case: Case) -> Iterator[Finding]:
    ours = case.tables
    for table in (ours.idempotency_keys, ours.inbox, ours.results):
        values = {"seconds": case.thresholds.expired, "most": MOST_COUNTED}
        count = case.connection.scalar(statements.expired(table), values)
        if count:
            yield Finding(
                code="keys-expired",
                what=f"Rows of {table.name} have expired long ago, and nobody deletes them: the "
                "table only grows. A consumer does it by itself.",
                mend=f"DELETE FROM {quoted(table)} WHERE expires_at < now();",  # noqa: S608 - advice
                evidence={
                    "table": table.name,
                    "rows": count,
                    "at_least": count == MOST_COUNTED,
                },
            )
