"""A consumer that sleeps: without a connection, until something wakes it."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING

import anyio

from sa_outbox.observe import EventsAdded, Place
from sa_outbox.sql.server.transactions import ping

from ..connection.errors import is_database_error
from ..shared.outage import Outage

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncEngine

    from sa_outbox.observe import Observation, Observers

ANSWER_SECONDS = 5.0


class Sleep:
    """One sleep. An observer of the outbox meanwhile: what this process adds wakes it.

    Made in the event loop; any thread may wake it, also before it is waited for."""

    wants_only: frozenset[type[Observation]] = frozenset({EventsAdded})

    def __init__(self, seconds: float | None) -> None:
        """*seconds* from now: something that is known is due, or it looks by itself."""
        self._until = None if seconds is None else anyio.current_time() + seconds
        self._loop = asyncio.get_running_loop()
        self._woken = anyio.Event()
        self._by = "time"

    @property
    def seconds(self) -> float | None:
        """That are left of it, if there is an end."""
        return None if self._until is None else max(0.0, self._until - anyio.current_time())

    @property
    def is_over(self) -> bool:
        return self._woken.is_set() or self.seconds == 0.0

    def shorten(self, seconds: float) -> bool:
        """Let it be over in *seconds* at the latest. False: that is now."""
        until = anyio.current_time() + seconds
        self._until = until if self._until is None else min(self._until, until)
        return seconds > 0

    def __call__(self, observation: Observation) -> None:
        if isinstance(observation, EventsAdded):
            self.wake("events")

    def wake(self, by: str) -> None:
        with suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self.end, by)

    def end(self, by: str) -> None:
        """``wake``, in the event loop."""
        if not self._woken.is_set():
            self._by = by
            self._woken.set()

    async def until_woken(self) -> str:
        """What woke it."""
        with anyio.move_on_after(self.seconds):
            await self._woken.wait()
        return self._by


async def until_it_answers(engine: AsyncEngine, stopped: anyio.Event, observers: Observers) -> None:
    """Return when the database answers, which may have been suspended; or when *stopped*."""
    outage = Outage(Place("wake"), observers.emit)
    while not stopped.is_set():
        try:
            # Shielded: a connect that is cancelled midway leaves an error in the loop.
            with anyio.fail_after(ANSWER_SECONDS, shield=True):
                async with engine.connect() as connection:
                    await connection.execute(ping())
        except Exception as error:
            if not is_database_error(error):
                raise
            with anyio.move_on_after(outage.goes_on(error)):
                await stopped.wait()
        else:
            if outage.is_away:
                outage.ends()
            return
