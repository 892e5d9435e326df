"""Transactions that have written events and do not end."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sa_outbox.sql.people import doctor as statements

from .case import in_words
from .finding import Finding
from .query_shape import shape

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .case import Case

_MEANS = (
    'Its events are not visible before it commits. Listeners with order="total" wait for it, for '
    "gap_wait at most, all others continue."
)


def find(case: Case) -> Iterator[Finding]:
    for row in case.connection.execute(statements.holders(case.tables)):
        if row.gid is not None and (row.seconds or 0) >= case.thresholds.held:
            name = row.gid.replace("'", "''")
            yield Finding(
                code="horizon-prepared",
                what=f"A prepared transaction wrote events {in_words(row.seconds)} ago, and "
                f"nobody has ended it; it survives restarts. {_MEANS}",
                fix=f"COMMIT PREPARED '{name}'; or ROLLBACK PREPARED '{name}'; whichever the "
                "transaction manager that prepared it decided.",
                evidence={"gid": row.gid, "role": row.role, "seconds": round(row.seconds, 1)},
            )
        elif row.pid is not None and (row.seconds or 0) >= case.thresholds.held:
            yield Finding(
                code="horizon-held",
                what=f"A transaction that has written events has been open for "
                f"{in_words(row.seconds)}. {_MEANS}",
                fix="Have the program end it; if it does not: "
                f"SELECT pg_terminate_backend({row.pid}); which rolls it back, with its events.",
                evidence={
                    "pid": row.pid,
                    "role": row.role,
                    "application_name": row.application_name,
                    "state": row.state,
                    "seconds": round(row.seconds, 1),
                    "query": shape(row.query),
                },
            )
        elif row.pid is not None and row.seconds is None:
            yield Finding(
                code="not-examined",
                what="A transaction of another role has written events; this role may not see "
                "since when.",
                fix="GRANT pg_read_all_stats TO the role that runs the doctor.",
                evidence={"part": "horizon", "pid": row.pid},
            )
