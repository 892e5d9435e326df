"""How it went lately: samples of the overview, in memory, as many as a picture has room for.

A sample is taken when somebody looks and the last one is old; or all the time, by ``watch``.
Whoever asks at the same time gets the same one: watching costs the database the same for one
person as for twenty.
"""

from __future__ import annotations

import itertools
import time
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import anyio

from sa_outbox.operations.overview import overview

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from datetime import datetime

    from sa_outbox.operations.overview import Overview

    from .database import Database

SAMPLES: Final = 720
EVERY: Final = 2.0
"""Seconds between two samples; so the picture shows the last 24 minutes."""


@dataclass(frozen=True, slots=True)
class Point:
    """Of one listener, at one time."""

    position: int
    lag_events: int
    lag_seconds: float


@dataclass(frozen=True, slots=True)
class Sample:
    at: datetime
    last_id: int
    points: dict[str, Point]


@dataclass(frozen=True, slots=True)
class Rate:
    """Between two samples that follow each other."""

    at: datetime
    written: float
    handled: dict[str, float]


class History:
    def __init__(self, database: Database, clock: Callable[[], float] = time.monotonic) -> None:
        self._database = database
        self._clock = clock
        self._lock = anyio.Lock()
        self._taken = float("-inf")
        self._latest: Overview | None = None
        self.samples: deque[Sample] = deque(maxlen=SAMPLES)

    async def look(self) -> Overview:
        """How everything stands, at most so many seconds ago."""
        async with self._lock:
            if self._latest is None or self._clock() - self._taken >= EVERY * 0.9:
                self._latest = await self._database.read(overview)
                self._taken = self._clock()
                self.add(self._latest)
            return self._latest

    def add(self, seen: Overview) -> None:
        self.samples.append(
            Sample(
                at=seen.at,
                last_id=seen.log.last_id or 0,
                points={
                    each.name: Point(
                        position=min(cursor.position for cursor in each.cursors),
                        lag_events=each.lag_events,
                        lag_seconds=each.lag_seconds or 0.0,
                    )
                    for each in seen.listeners
                    if each.cursors
                },
            )
        )

    def rates(self) -> Iterator[Rate]:
        """Events a second. A cursor that was set back handled nothing meanwhile."""
        samples = list(self.samples)
        for before, after in itertools.pairwise(samples):
            seconds = (after.at - before.at).total_seconds()
            if seconds <= 0:
                continue
            yield Rate(
                at=after.at,
                written=max(0, after.last_id - before.last_id) / seconds,
                handled={
                    name: max(0, point.position - before.points[name].position) / seconds
                    for name, point in after.points.items()
                    if name in before.points
                },
            )
