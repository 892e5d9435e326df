"""Measure the backlog: queried from the database periodically, for observers that want it.

Not for each request to a monitor: however often and by however many it is queried, this costs a few
cheap statements per ``measure_interval``. No delivery depends on it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import anyio
from anyio import TASK_STATUS_IGNORED

from sa_outbox.errors import OutboxError
from sa_outbox.observe import BacklogMeasured, DatabaseAway, DatabaseBack, Place
from sa_outbox.operations.overview import overview

from ..connection.errors import is_database_error

if TYPE_CHECKING:
    from collections.abc import Iterable

    from anyio.abc import TaskStatus
    from sqlalchemy.ext.asyncio import AsyncEngine

    from sa_outbox.declare.listener import Listener
    from sa_outbox.operations.overview import ListenerOverview

    from ..shared.context import ConsumerContext
    from .workload import Workload

PLACE = Place("measuring")


class BacklogMeter:
    def __init__(
        self,
        context: ConsumerContext,
        engine: AsyncEngine,
        workload: Workload,
        listeners: Iterable[Listener],
    ) -> None:
        self._context = context
        self._engine = engine
        self._workload = workload
        self._names = {each.name for each in listeners}
        self._away = False

    async def run(self, *, task_status: TaskStatus[None] = TASK_STATUS_IGNORED) -> None:
        task_status.started()
        interval = self._context.settings.measure_interval.total_seconds()
        while True:
            if self._context.observers.want_measures:
                await self._measure(interval)
            await anyio.sleep(interval)

    async def _measure(self, interval: float) -> None:
        limit = self._context.settings.statement_timeout.total_seconds()
        try:
            # Shielded: if it were cancelled midway, the engine's pool would log an error.
            with anyio.fail_after(limit, shield=True):
                async with self._engine.connect() as connection:
                    found = await connection.run_sync(overview, self._context.tables)
        except Exception as error:
            # Includes a missing right: no reason to stop delivering.
            if not is_database_error(error) and not isinstance(error, OutboxError):
                raise
            self._away = True
            self._context.observers.emit(DatabaseAway(PLACE, type(error).__name__, interval))
            return
        if self._away:
            self._away = False
            self._context.observers.emit(DatabaseBack(PLACE))
        in_flight = self._workload.in_flight()
        for each in found.listeners:
            if each.name in self._names:
                self._context.observers.emit(_measured(each, in_flight[each.name]))


def _measured(found: ListenerOverview, in_flight: int) -> BacklogMeasured:
    waiting = found.deliveries
    return BacklogMeasured(
        found.name,
        events=found.lag_events + found.ranges.events,
        seconds=found.lag_seconds or 0.0,
        scheduled=waiting.scheduled,
        parked=waiting.parked,
        behind=waiting.behind,
        dead_letters=found.dead_letters,
        in_flight=in_flight,
        paused=found.paused_at is not None,
    )
