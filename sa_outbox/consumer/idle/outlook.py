"""What the database says about the time to come: what is committed, and when something is due."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sa_outbox.clock import clock
from sa_outbox.sql.listener.deliveries import next_due_of_all

from ..connection.connections import Query

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sa_outbox.declare.recurring import Crons, Recurring

    from ..shared.context import ConsumerContext
    from ..supervisor import Supervisor


@dataclass(frozen=True, slots=True)
class Due:
    """Seconds, or None if there is no such time."""

    own: float | None
    """Until something that is known is due: a retry, a scheduled event, a cron. 0: a tick that has
    passed has no event yet, because the database refused it."""
    others: float | None
    """Until what another consumer holds would be free if that consumer has died."""


async def committed_to(services: Supervisor) -> int | None:
    """The last visible event, if no transaction is open that has written to the log; else None.

    Then every event up to it is final: the ceiling is read before the holders.
    """
    context = services.context
    (row,) = await context.connections.rows(context.statements.read_horizon, position=0)
    return None if row["holders"] else int(row["ceiling"])


async def due(services: Supervisor, crons: Crons) -> Due:
    context, leases = services.context, services.leases
    queues = [each.listener.name for each in services.workload.queues]
    query = Query(next_due_of_all(context.tables, ranges=bool(queues)))
    names = [name for name in (*leases.names, *queues) if name not in context.withheld]
    (row,) = await context.connections.rows(query, names=names, owner=leases.owner)
    now = clock.current()
    ticks = (each.cron.next_after(now) for each in crons)
    times = [(at - now).total_seconds() for at in ticks if at is not None]
    times += [] if row["own"] is None else [row["own"]]
    times += [0.0] if await _is_owed(context, {each.name: each for each in crons}) else []
    return Due(min(times, default=None), row["others"])


async def _is_owed(context: ConsumerContext, crons: Mapping[str, Recurring]) -> bool:
    if not crons:
        return False
    rows = await context.connections.rows(context.statements.crons_standing, names=list(crons))
    return any(
        row["last_tick"] is not None and crons[row["name"]].due(row["last_tick"], row["now"])
        for row in rows
    )
