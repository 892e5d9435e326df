"""Maintenance while a consumer runs: a round each ``maintenance_interval``.

Every process does it, none holds a lock between two statements: whoever comes second finds it done.
"""

from __future__ import annotations

from random import uniform
from time import monotonic
from typing import TYPE_CHECKING

from anyio import sleep

from sa_outbox.observe import DatabaseAway, DatabaseBack, RetentionRefused
from sa_outbox.sql import log_partitions

from .connections import Query, is_database_error
from .upkeep import Upkeep

if TYPE_CHECKING:
    from sa_outbox.observe import Observation

    from .shared import Shared

FIRST_AFTER = 30.0
"""Seconds until the first round, at most: one that starts has events to deliver first."""
TOLD_AGAIN_AFTER = 600.0
"""Seconds until the same thing is told again."""


class Retention:
    def __init__(self, shared: Shared) -> None:
        self._shared = shared
        self._upkeep = Upkeep(shared.tables, shared.settings, self._tell)
        self._state = Query(log_partitions.state(shared.tables))
        self._interval = shared.settings.maintenance_interval.total_seconds()
        self._told: dict[tuple[str, str], float] = {}
        self._before: tuple[int, float] | None = None
        self._away = False

    async def run(self) -> None:
        pause = min(self._interval, FIRST_AFTER)
        while True:
            # Not all processes at once.
            await sleep(pause * uniform(0.5, 1.0))  # noqa: S311 - no secret
            await self._round()
            pause = self._interval

    async def _round(self) -> None:
        try:
            async with self._shared.connections.connection() as connection:
                last: int = (await connection.rows(self._state))[0]["last"]
                for each in await self._upkeep.run(connection, self._rate(last)):
                    self._tell_once("held", each.listener, each)
        except Exception as error:
            if not is_database_error(error):
                raise
            self._away = True
            self._shared.tell(DatabaseAway("retention", type(error).__name__, self._interval))
            return
        if self._away:
            self._away = False
            self._shared.tell(DatabaseBack("retention"))

    def _rate(self, last: int) -> float:
        """Events a second since the last round."""
        before, now = self._before, monotonic()
        self._before = last, now
        if before is None or now <= before[1]:
            return 0.0
        return max(0.0, (last - before[0]) / (now - before[1]))

    def _tell(self, observation: Observation) -> None:
        if isinstance(observation, RetentionRefused):
            self._tell_once("refused", observation.step.partition(" ")[0], observation)
        else:
            self._shared.tell(observation)

    def _tell_once(self, what: str, name: str, observation: Observation) -> None:
        now = monotonic()
        told = self._told.get((what, name))
        if told is None or now - told >= TOLD_AGAIN_AFTER:
            self._told[what, name] = now
            self._shared.tell(observation)
