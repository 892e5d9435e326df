"""Maintenance while a consumer runs: one round per ``maintenance_interval``.

Every process does it, and none holds a lock between two statements: whoever comes second finds it
done.
"""

from __future__ import annotations

from random import uniform
from time import monotonic
from typing import TYPE_CHECKING

from anyio import TASK_STATUS_IGNORED

from sa_outbox.observe import DatabaseAway, DatabaseBack, Place, RetentionRefused
from sa_outbox.sql.log import partitions

from ..connection.connections import Query
from ..connection.errors import is_database_error
from ..shared.sync import AutoResetEvent
from .round import MaintenanceRound

if TYPE_CHECKING:
    from anyio.abc import TaskStatus

    from sa_outbox.observe import Observation

    from ..shared.context import ConsumerContext

PLACE = Place("retention")
FIRST_ROUND_SECONDS = 30.0
"""Maximum seconds until the first round: a starting consumer has events to deliver first."""
REPEAT_AFTER_SECONDS = 600.0
"""Seconds until the same observation is emitted again."""


class MaintenanceService:
    def __init__(self, context: ConsumerContext) -> None:
        self._context = context
        self._upkeep = MaintenanceRound(context.tables, context.settings, self._emit)
        self._state = Query(partitions.state(context.tables))
        self._interval = context.settings.maintenance_interval.total_seconds()
        self._emitted_at: dict[tuple[str, str], float] = {}
        self._before: tuple[int, float] | None = None
        self._away = False
        self.bell: AutoResetEvent = AutoResetEvent()
        """Rung when the clock was moved: more may be old."""

    async def run(self, *, task_status: TaskStatus[None] = TASK_STATUS_IGNORED) -> None:
        task_status.started()
        pause = min(self._interval, FIRST_ROUND_SECONDS)
        while True:
            # Not all processes at once.
            await self.bell.wait(pause * uniform(0.5, 1.0))  # noqa: S311 - not a secret
            await self._round()
            pause = self._interval

    async def _round(self) -> None:
        try:
            async with self._context.connections.connection() as connection:
                last: int = (await connection.rows(self._state))[0]["last"]
                for each in await self._upkeep.run(connection, self._rate(last)):
                    self._emit_once("held", each.listener, each)
        except Exception as error:
            if not is_database_error(error):
                raise
            self._away = True
            self._context.observers.emit(DatabaseAway(PLACE, type(error).__name__, self._interval))
            return
        if self._away:
            self._away = False
            self._context.observers.emit(DatabaseBack(PLACE))

    def _rate(self, last: int) -> float:
        """Events per second since the last round."""
        before, now = self._before, monotonic()
        self._before = last, now
        if before is None or now <= before[1]:
            return 0.0
        return max(0.0, (last - before[0]) / (now - before[1]))

    def _emit(self, observation: Observation) -> None:
        if isinstance(observation, RetentionRefused):
            self._emit_once("refused", observation.step.partition(" ")[0], observation)
        else:
            self._context.observers.emit(observation)

    def _emit_once(self, what: str, name: str, observation: Observation) -> None:
        now = monotonic()
        emitted_at = self._emitted_at.get((what, name))
        if emitted_at is None or now - emitted_at >= REPEAT_AFTER_SECONDS:
            self._emitted_at[what, name] = now
            self._context.observers.emit(observation)
