"""LISTEN: be woken to check for events. A hint; the table is the truth.

A notification may be lost, doubled or late without harm, for the consumer polls as well: seldom
while this connection is known to listen, often while it is not. Nothing here raises when the
database is away. LISTEN connections die silently (a firewall, a pooler, a server that is
gone), so it is asked from time to time what it listens on. Whoever may connect may notify, ten
thousand times a second: each kind is obeyed at once, and only so often.
"""

from __future__ import annotations

import asyncio
import secrets
from random import uniform
from time import monotonic
from typing import TYPE_CHECKING

import anyio
from anyio import TASK_STATUS_IGNORED

from sa_outbox.observe import DatabaseAway, Listening, Notified, Place
from sa_outbox.policy.backoff import Backoff
from sa_outbox.sql.server.notify import ADOPTED, CANCEL, RELEASED

from ..connection.connections import close
from ..shared.sync import AutoResetEvent

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from anyio.abc import TaskStatus

    from sa_outbox.observe import Observers
    from sa_outbox.settings import ConsumerSettings

    from ..connection.connections import Connect, Driver
    from ..connection.statements import Statements

CLOSE_SECONDS = 1.0
READS_PER_SECOND, READS_AT_ONCE = 200.0, 100
"""For events. A producer's process notifies a hundred times a second at most."""
SURVEYS_PER_SECOND, SURVEYS_AT_ONCE = 20.0, 20
"""For what was released or cancelled."""
VERIFICATIONS_PER_SECOND, VERIFICATIONS_AT_ONCE = 0.2, 2
PING = "ping "
"""Beginning of a message that only its sender reacts to."""


class NotListening(Exception):
    """The connection answers and receives nothing: a pooler lends its server connection to others.
    Give the consumer an address that bypasses it (``--listen-url``)."""


class Throttle:
    """Passes calls on: *burst* of them at once, and *per_second* in the long run.

    A call beyond that is not lost but delayed, and stands for all that come until then. So an
    occasional caller is served at once, whatever the limit.
    """

    def __init__(self, call: Callable[[], None], *, per_second: float, burst: float) -> None:
        self._call = call
        self._rate = per_second
        self._burst = burst
        self._left = burst
        self._reckoned_at = monotonic()
        self._owed: asyncio.TimerHandle | None = None

    def __call__(self) -> None:
        if self._owed is not None:
            return
        now = monotonic()
        earned = (now - self._reckoned_at) * self._rate
        self._left, self._reckoned_at = min(self._burst, self._left + earned), now
        if self._left >= 1:
            self._left -= 1
            self._call()
        else:
            pause = (1 - self._left) / self._rate
            self._owed = asyncio.get_running_loop().call_later(pause, self._pay)

    def close(self) -> None:
        """Drop what is still owed."""
        if self._owed is not None:
            self._owed.cancel()
            self._owed = None

    def _pay(self) -> None:
        self._owed = None
        self()


class Wakeup:
    def __init__(
        self,
        connect: Connect,
        channel: str,
        statements: Statements,
        settings: ConsumerSettings,
        observers: Observers,
        *,
        ping: Callable[..., Awaitable[object]],
        notified: Callable[[], None],
        released: Callable[[], None],
        cancelled: Callable[[], None],
        adopted: Callable[[], None],
        reconnected: Callable[[bool], None],
        lost: Callable[[], None],
    ) -> None:
        self._connect = connect
        self._channel = channel
        self._statements = statements
        self._probe_interval = settings.probe_interval.total_seconds()
        self._probe_timeout = settings.probe_timeout.total_seconds()
        self._observers = observers
        self._ping = ping
        self._pinged = ""
        self._answered = AutoResetEvent()
        reads = {"per_second": READS_PER_SECOND, "burst": READS_AT_ONCE}
        surveys = {"per_second": SURVEYS_PER_SECOND, "burst": SURVEYS_AT_ONCE}
        verified = {"per_second": VERIFICATIONS_PER_SECOND, "burst": VERIFICATIONS_AT_ONCE}
        self._notified = Throttle(notified, **reads)
        self._released = Throttle(released, **surveys)
        self._cancelled = Throttle(cancelled, **surveys)
        self._adopted = Throttle(adopted, **verified)
        self._reconnected = reconnected
        self._lost = lost
        self._had_trouble = False
        self.is_listening: bool = False

    async def run(self, *, task_status: TaskStatus[None] = TASK_STATUS_IGNORED) -> None:
        task_status.started()
        try:
            await self._keep_listening()
        finally:
            for each in (self._notified, self._released, self._cancelled, self._adopted):
                each.close()

    async def _keep_listening(self) -> None:
        backoff, pause = Backoff(), 0.0
        while True:
            try:
                await self._listen()
            except Exception as error:  # noqa: BLE001 - whatever a driver raises: poll, try again
                self._had_trouble = True
                if self.is_listening:  # a new outage
                    backoff.reset()
                    self.is_listening = False
                    self._lost()  # those who sleep until the next poll rely on us
                name, pause = type(error).__name__, backoff.next()
                self._observers.emit(DatabaseAway(Place("LISTEN"), name, pause))
            finally:
                self.is_listening = False
            # Spread: many consumers lose their server at the same moment.
            await anyio.sleep(pause * uniform(0.5, 1.0))  # noqa: S311 - no secret

    async def _listen(self) -> None:
        # Shielded: asyncpg leaves an unretrieved error in the loop when a connect is cancelled.
        with anyio.fail_after(self._probe_timeout, shield=True):
            driver = await self._connect()
        ended = AutoResetEvent()
        try:
            driver.add_termination_listener(lambda _: ended.ring())
            with anyio.fail_after(self._probe_timeout):
                await driver.add_listener(self._channel, self._hear)
            await self._try()
            self.is_listening = True
            self._observers.emit(Listening(self._channel))
            # Nobody was notified of what was committed before LISTEN.
            self._reconnected(self._had_trouble)
            while not await ended.wait(self._probe_interval):
                await self._probe(driver)
            raise ConnectionError("the server ended the connection")
        finally:
            await close(driver, CLOSE_SECONDS)

    async def _try(self) -> None:
        """Send a notification to ourselves, over another connection. Behind a pooler in transaction
        mode LISTEN succeeds, the channel is even listed, and nothing is ever received."""
        self._pinged = f"{PING}{secrets.token_hex(8)}"
        with anyio.fail_after(self._probe_timeout):
            await self._ping(message=self._pinged)
        if not await self._answered.wait(self._probe_timeout):
            raise NotListening

    async def _probe(self, driver: Driver) -> None:
        with anyio.fail_after(self._probe_timeout):
            rows = await driver.fetch(self._statements.listening.sql)
        if self._channel not in {row["channel"] for row in rows}:
            raise NotListening

    def _hear(self, _driver: object, _pid: int, _channel: str, message: object) -> None:
        if message == RELEASED:
            self._observers.emit(Notified("released"))
            self._released()
        elif message == CANCEL:
            self._observers.emit(Notified("cancelled"))
            self._cancelled()
        elif message == ADOPTED:
            self._observers.emit(Notified("adopted"))
            self._adopted()
        elif isinstance(message, str) and message.startswith(PING):
            if message == self._pinged:
                self._answered.ring()
        else:
            self._observers.emit(Notified("events"))
            self._notified()


def poll_interval(settings: ConsumerSettings, wakeup: Wakeup | None) -> float:
    """Seconds between two polls: long while notifications are received, short otherwise."""
    interval = settings.poll_interval
    if wakeup is None or not wakeup.is_listening:
        interval = min(interval, settings.poll_interval_without_notify)
    return interval.total_seconds()
