"""Whether a consumer that stops restarts, and after what: its webhook endpoints were changed,
or it sleeps."""

from __future__ import annotations

from typing import TYPE_CHECKING

import anyio

from sa_outbox.observe import ConsumerAsleep, ConsumerAwake
from sa_outbox.producer.notifier import notifier

from ..connection.connections import best_effort
from .outlook import committed_to, due
from .sleep import Sleep, until_it_answers

if TYPE_CHECKING:
    from collections.abc import Callable

    from sa_outbox.observe import Observers
    from sa_outbox.outbox import Outbox
    from sa_outbox.settings import ConsumerSettings

    from ..connection.engines import Engines
    from ..services.endpoints import Endpoints
    from ..supervisor import Supervisor
    from .outlook import Due

CLOSE_SECONDS = 1.0


class Restarts:
    """*stop* has the run wind down, unless it is being stopped already: then it returns False."""

    def __init__(
        self,
        outbox: Outbox,
        settings: ConsumerSettings,
        observers: Observers,
        stop: Callable[[str], bool],
    ) -> None:
        self._outbox = outbox
        self._settings = settings
        self._observers = observers
        self._stop = stop
        self._sleep: Sleep | None = None
        self._handled_to = 0
        """What was handled when it fell asleep."""
        self._is_sure = True
        """Nothing has happened since the sleep was decided."""
        self.wakes: int = 0
        """How often ``wake`` was called, also while there was no sleep."""
        self.is_due: bool = False
        """It restarts when it has stopped."""

    def serve_again(self) -> None:
        """With the webhook endpoints that there are now."""
        self.is_due = self._stop("the webhook endpoints were changed") or self.is_due

    def fall_asleep(self, handled_to: int, next_due: Due) -> None:
        if self._stop("there is nothing to do"):
            self.is_due = True
            self._handled_to = handled_to
            self._sleep = Sleep(_least(next_due, self._settings))
            self._outbox.observers.add(self._sleep)

    def wake(self, by: str = "wake") -> None:
        """For any thread."""
        self.wakes += 1
        sleep = self._sleep
        if sleep is not None:
            sleep.wake(by)

    def cancel(self) -> None:
        """It is to stop for good."""
        self.is_due = False
        self.wake("stop")

    def forget(self) -> None:
        """It runs again, or it is over."""
        self.is_due = False
        if self._sleep is not None:
            self._outbox.observers.remove(self._sleep)
            self._sleep = None

    async def ask_again(self, services: Supervisor) -> None:
        """Ask the database once more, when the last lease is released and nobody listens any more:
        what was committed before there was a sleep is visible by now."""
        sleep = self._sleep
        if sleep is not None:
            self._is_sure = False
            await best_effort(self._confirm(sleep, services), CLOSE_SECONDS)
            if not self._is_sure:
                sleep.end("events")

    async def _confirm(self, sleep: Sleep, services: Supervisor) -> None:
        if await committed_to(services) == self._handled_to:
            seconds = _least(await due(services, self._outbox.crons), self._settings)
            self._is_sure = seconds is None or sleep.shorten(seconds)

    async def until_it_may_begin(
        self, made: Engines, stopped: anyio.Event, endpoints: Endpoints | None
    ) -> None:
        """Until it is awake and the database answers, or until *stopped*. It was running: a
        database that is away now is waited for."""
        slept = self._sleep is not None
        if self._sleep is not None and not self._sleep.is_over:
            await self._rest(made, self._sleep)
        if stopped.is_set():
            return
        if endpoints is not None:
            await endpoints.read_again(stopped)
        elif slept:
            await until_it_answers(made.asynchronous, stopped, self._observers)

    async def _rest(self, made: Engines, sleep: Sleep) -> None:
        await best_effort(made.rest(), CLOSE_SECONDS)
        await anyio.to_thread.run_sync(notifier.close, CLOSE_SECONDS)  # of what handlers added
        self._observers.emit(ConsumerAsleep(sleep.seconds))
        self._observers.emit(ConsumerAwake(await sleep.until_woken()))


def _least(next_due: Due, settings: ConsumerSettings) -> float | None:
    poll = settings.idle_poll_interval
    limits = [next_due.own, next_due.others, None if poll is None else poll.total_seconds()]
    return min((each for each in limits if each is not None), default=None)
