"""Notices that there is nothing to do, and for how long, so that the consumer can close its
connections: a database that is suspended while nobody is connected (Neon, Aurora) then is.

Nothing to do is: everything that is committed is handled or waits for its time, no transaction that
is open has written events, and that has not changed for ``idle_after``. A notification that is sent
while nobody listens is lost, so whoever sleeps has to be woken: ``Consumer.wake``.
"""

from __future__ import annotations

from time import monotonic
from typing import TYPE_CHECKING

import anyio
from anyio import TASK_STATUS_IGNORED

from sa_outbox.clock import clock
from sa_outbox.sql.listener.deliveries import next_due_of_all

from .connection.connections import Query
from .connection.errors import is_database_error
from .drain import until_drained
from .shared.tally import Tally

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from anyio.abc import TaskStatus

    from sa_outbox.outbox import Outbox

    from .supervisor import Supervisor

LOOKS = 4
"""How often it looks within ``idle_after``."""


class IdleWatcher:
    """Runs until there has been nothing to do for long enough; then calls *asleep* with the seconds
    until something that is known is due, or None."""

    def __init__(
        self,
        outbox: Outbox,
        idle_seconds: float,
        services: Callable[[], Supervisor | None],
        next_progress: Callable[[], Awaitable[None]],
        asleep: Callable[[float | None], None],
    ) -> None:
        self._outbox = outbox
        self._idle_seconds = idle_seconds
        self._services = services
        self._next_progress = next_progress
        self._asleep = asleep

    async def run(self, *, task_status: TaskStatus[None] = TASK_STATUS_IGNORED) -> None:
        task_status.started()
        before, since = None, monotonic()
        while True:
            await anyio.sleep(self._idle_seconds / LOOKS)
            seen = await self._handled_up_to()
            if seen is None or seen != before:
                before, since = seen, monotonic()
            elif monotonic() - since >= self._idle_seconds:
                known, seconds = await self._seconds_until_due()
                # Not worth it, for a moment.
                if known and (seconds is None or seconds > self._idle_seconds):
                    self._asleep(seconds)
                    return

    async def _handled_up_to(self) -> int | None:
        """The last event, if it and all before are handled; None: there is something to do."""
        services = self._services()
        if services is None:
            return None
        context = services.context
        with anyio.move_on_after(self._idle_seconds):
            waiting = await until_drained(
                services, self._next_progress, Tally(), stopped=lambda: False, retries=False
            )
            if waiting or not services.workload.is_idle:
                return None
            try:
                if await context.connections.rows(context.statements.holders):
                    return None  # what they have written is not visible yet
                found: int = await context.connections.value(context.statements.ceiling)
            except Exception as error:
                if not is_database_error(error):
                    raise
                return None
            return found
        return None

    async def _seconds_until_due(self) -> tuple[bool, float | None]:
        """Whether the database answered, and what it knows."""
        services = self._services()
        if services is None:
            return False, None
        context = services.context
        names = [*services.leases.names, *(each.listener.name for each in services.workload.queues)]
        try:
            query = Query(next_due_of_all(context.tables))
            due = await context.connections.value(query, names=names)
        except Exception as error:
            if not is_database_error(error):
                raise
            return False, None
        now = clock.current()
        ticks = (each.cron.next_after(now) for each in self._outbox.crons)
        known = [(at - now).total_seconds() for at in ticks if at is not None]
        return True, min([*known, *([] if due is None else [due])], default=None)
