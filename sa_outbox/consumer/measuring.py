"""Measuring what waits: asked of the database from time to time, for observers that want it.

Not for each question of a monitor: however often and by however many they are asked, this is a few
cheap statements in each ``measure_interval``. Nothing of the work depends on it.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import anyio

from sa_outbox.errors import OutboxError
from sa_outbox.observe import BacklogMeasured, DatabaseAway, DatabaseBack
from sa_outbox.operations.overview import overview

from .connections import is_database_error

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncEngine

    from sa_outbox.operations.overview import ListenerOverview

    from .services import Services
    from .shared import Shared

WHERE = "measuring"


class Measuring:
    def __init__(self, shared: Shared, engine: AsyncEngine, services: Services) -> None:
        self._shared = shared
        self._engine = engine
        self._services = services
        queues = (queue.listener.name for queue in services.queues)
        self._names = {*services.leasing.names, *queues}
        self._away = False

    async def run(self) -> None:
        interval = self._shared.settings.measure_interval.total_seconds()
        while True:
            if self._shared.observers.want_measures:
                await self._measure(interval)
            await anyio.sleep(interval)

    async def _measure(self, interval: float) -> None:
        limit = self._shared.settings.statement_timeout.total_seconds()
        try:
            # Shielded: cancelled on the way, the engine's pool would log an error for it.
            with anyio.fail_after(limit, shield=True):
                async with self._engine.connect() as connection:
                    found = await connection.run_sync(overview, self._shared.tables)
        except Exception as error:
            # Also a right that is missing: no reason to stop delivering.
            if not is_database_error(error) and not isinstance(error, OutboxError):
                raise
            self._away = True
            self._shared.tell(DatabaseAway(WHERE, type(error).__name__, interval))
            return
        if self._away:
            self._away = False
            self._shared.tell(DatabaseBack(WHERE))
        in_hand = self._in_hand()
        for each in found.listeners:
            if each.name in self._names:
                self._shared.tell(_measured(each, in_hand[each.name]))

    def _in_hand(self) -> Counter[str]:
        services, found = self._services, Counter[str]()
        for tenures in (services.tenures, *(queue.stints for queue in services.queues)):
            for (name, _), cursor in tenures.cursors.items():
                found[name] += cursor.in_hand
        return found


def _measured(found: ListenerOverview, in_hand: int) -> BacklogMeasured:
    waiting = found.deliveries
    return BacklogMeasured(
        found.name,
        events=found.lag_events + found.ranges.events,
        seconds=found.lag_seconds or 0.0,
        scheduled=waiting.scheduled,
        parked=waiting.parked,
        behind=waiting.behind,
        dead_letters=found.dead_letters,
        in_hand=in_hand,
        paused=found.paused_at is not None,
    )
