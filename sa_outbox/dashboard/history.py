"""Recent history: samples of the overview, in memory, as many as a chart has room for.

A sample is taken when someone loads a page and the last one is old; or all the time, by ``watch``.
Concurrent requests share a sample: watching costs the database the same for one visitor as for
twenty.
"""

from __future__ import annotations

import itertools
import time
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import anyio

from sa_outbox.operations.overview import overview
from sa_outbox.operations.throughput import handled_since, positions

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from datetime import datetime

    from sqlalchemy import Connection

    from sa_outbox.database.tables import Tables
    from sa_outbox.operations.overview import Overview

    from .database import Database

SAMPLES: Final = 720
SAMPLE_SECONDS: Final = 2.0
"""Seconds between two samples; so the chart shows the last 24 minutes."""


@dataclass(frozen=True, slots=True)
class Point:
    """One listener at one time."""

    position: int
    lag_events: int
    lag_seconds: float
    handled: float | None = None
    """Events since the previous sample; None: there was none."""


@dataclass(frozen=True, slots=True)
class Sample:
    at: datetime
    last_id: int
    points: dict[str, Point]


@dataclass(frozen=True, slots=True)
class Rate:
    """Rates between two consecutive samples."""

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
        """The current overview, at most ``SAMPLE_SECONDS`` old."""
        async with self._lock:
            if self._latest is None or self._clock() - self._taken >= SAMPLE_SECONDS * 0.9:
                before = {} if self._latest is None else positions(self._latest)
                seen, handled = await self._database.read(_look, before)
                self._latest, self._taken = seen, self._clock()
                self.add(seen, handled)
            return self._latest

    def add(self, seen: Overview, handled: Mapping[str, float]) -> None:
        by_name = {each.name: each for each in seen.listeners}
        self.samples.append(
            Sample(
                at=seen.at,
                last_id=seen.log.last_id or 0,
                points={
                    name: Point(
                        position=position,
                        lag_events=by_name[name].lag_events,
                        lag_seconds=by_name[name].lag_seconds or 0.0,
                        handled=handled.get(name),
                    )
                    for name, position in positions(seen).items()
                },
            )
        )

    def rates(self) -> Iterator[Rate]:
        """Events a second."""
        samples = list(self.samples)
        for before, after in itertools.pairwise(samples):
            seconds = (after.at - before.at).total_seconds()
            if seconds <= 0:
                continue
            yield Rate(
                at=after.at,
                written=max(0, after.last_id - before.last_id) / seconds,
                handled={
                    name: point.handled / seconds
                    for name, point in after.points.items()
                    if point.handled is not None
                },
            )


def _look(
    connection: Connection, tables: Tables, before: Mapping[str, int]
) -> tuple[Overview, dict[str, float]]:
    seen = overview(connection, tables)
    return seen, handled_since(connection, tables, before, positions(seen))
