"""One task group for everything, from the start to the last lease given back."""

from __future__ import annotations

import os
import secrets
import socket
from typing import TYPE_CHECKING

import anyio
from anyio import TASK_STATUS_IGNORED

from sa_outbox.errors import ConfigError
from sa_outbox.logs import Log, program_log
from sa_outbox.observe import (
    ConsumerStarted,
    ConsumerStopped,
    ConsumerStopping,
    Observers,
)
from sa_outbox.settings import ConsumerSettings

from .assembly import closing, make_context, make_supervisor
from .connection.connections import best_effort
from .connection.engines import connect_to, engines, require_asyncio
from .connection.schema_location import locate
from .connection.shield import to_its_end
from .idle.restarts import Restarts
from .idle.watcher import restart_watchers
from .lifespans import Lifespans
from .services.endpoints import Endpoints
from .services.registration import chosen, register
from .services.watchdog import Watchdog
from .shared.stop_reason import StopReason
from .shared.sync import Broadcast
from .shared.task_errors import one_error

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from anyio.abc import TaskStatus
    from sqlalchemy import URL, Engine
    from sqlalchemy.ext.asyncio import AsyncEngine

    from sa_outbox.declare.listener import Listener
    from sa_outbox.observe import Observer
    from sa_outbox.outbox import Outbox

    from .connection.engines import Engines
    from .shared.context import ConsumerContext
    from .shared.tally import Tally
    from .supervisor import Supervisor

CLOSE_SECONDS = 1.0


class Runner:
    """Runs the listeners of an outbox until it is stopped, and again when something has changed."""

    def __init__(
        self,
        outbox: Outbox,
        database: str | URL | Engine | AsyncEngine,
        *,
        listeners: Sequence[str] | None = None,
        listen_url: str | URL | None = None,
        sync_engine: Engine | None = None,
        settings: ConsumerSettings | None = None,
        observers: Iterable[Observer] = (),
    ) -> None:
        self.outbox = outbox
        self.settings: ConsumerSettings = settings or ConsumerSettings()
        self.observers: Observers = Observers(tuple(observers))
        self.owner: str = f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(4)}"
        self.reason: str = ""
        self.stop_reason: StopReason = StopReason.REQUESTED
        """Why it stopped."""
        self._declared: Sequence[Listener] = chosen(outbox, listeners)
        self._serves = outbox.endpoints is not None and listeners is None
        self._listeners: Sequence[Listener] = self._declared
        """With those of webhook endpoints, while it runs."""
        self._endpoints: Endpoints | None = None
        self._tables = outbox.tables
        """With their schema, while it runs."""
        self._restarts = Restarts(outbox, self.settings, self.observers, self._stop_to_restart)
        self._database = database
        self._sync_engine = sync_engine
        self._listen_connect = None if listen_url is None else connect_to(listen_url)
        self._running = False
        self._only_drains = False
        """It leaves soon: no share of the listeners is made for it."""
        self._tally: Tally | None = None
        """Of the drain for which it runs."""
        self._holds_leases = False
        """Of the last run: perhaps, for the database could not be asked at its end."""
        self._stop = anyio.Event()
        self._grace_ends: float | None = None
        """When handlers and lifespans have to have ended, in the time of the event loop."""
        self._lifespans = Lifespans((), self._grace_left)
        self._progressed = Broadcast()
        self._services: Supervisor | None = None
        self._has_started = False
        """All services of this run."""

    async def run(self, *, task_status: TaskStatus[None] = TASK_STATUS_IGNORED) -> None:
        """Deliver events until ``stop()`` or cancellation.

        Raises :class:`SchemaError` when the tables are not there or what the reading stands on
        does not hold, and :class:`ConfigError` under another event loop than asyncio's (trio);
        nothing was touched then. A database that goes away later is waited for.
        """
        require_asyncio()
        if self._running:
            raise ConfigError("this consumer is running already")
        self._running = True
        if not self.observers.include(Log):
            self.observers.add(program_log(self.settings.log_level, self.settings.log_starts))
        made = engines(self._database, self._sync_engine, self._declared)
        try:
            self._lifespans = Lifespans(tuple(self.outbox.lifespans), self._grace_left)
            with one_error(), Watchdog(self.settings.blocked_after, self.observers):
                names = self.outbox.settings.names
                self._tables = await to_its_end(locate(made.asynchronous, names))
                async with self._lifespans.around():
                    await self._run_again_and_again(made, task_status)
        finally:
            self._running = self._only_drains = False
            self._progressed.ring()
            self._restarts.forget()
            self._tally = None
            self._stop = anyio.Event()
            self._grace_ends = None
            self._endpoints = None
            await best_effort(made.dispose(), CLOSE_SECONDS)

    async def _run_again_and_again(self, made: Engines, task_status: TaskStatus[None]) -> None:
        """Run, and again with other listeners whenever the table of endpoints was changed, and
        after each sleep."""
        if self._serves:
            self._endpoints = Endpoints(
                self.outbox, self._tables, made.asynchronous, self.observers
            )
            await self._endpoints.read()
        while True:
            self._restarts.forget()
            served = () if self._endpoints is None else self._endpoints.listeners
            self._listeners = (*self._declared, *served)
            await self._run(made, task_status)
            if not self._restarts.is_due:
                return
            self._stop = anyio.Event()
            task_status = TASK_STATUS_IGNORED
            await self._restarts.until_it_may_begin(made, self._stop, self._endpoints)
            if self._stop.is_set():
                return

    def wake(self) -> None:
        """Restart at once, if it sleeps (``idle_after``); otherwise nothing happens.

        For any thread, and for a handler of a signal."""
        self._restarts.wake()

    def stop(self, reason: str = "stopped") -> None:
        """Begin nothing new, let handlers finish for the grace period, give the leases back.

        For the thread of the event loop. Called before ``run``, that returns at once.
        """
        self._stop_for(StopReason.REQUESTED, reason)

    def _stop_for(self, why: StopReason, reason: str) -> None:
        if not self._stop.is_set() or self._restarts.is_due:
            self._restarts.cancel()
            self.stop_reason, self.reason = why, reason
            self._stop.set()

    def _stop_to_restart(self, reason: str) -> bool:
        if self._stop.is_set():
            return False
        self.reason = reason
        self._stop.set()
        return True

    async def _run(self, made: Engines, task_status: TaskStatus[None]) -> None:
        shared = make_context(
            self.outbox,
            self._tables,
            made,
            self.settings,
            self.observers,
            owner=self.owner,
            stop=self._stop_for,
            progressed=self._progressed.ring,
            tally=self._tally,
        )
        async with closing(shared) as context:
            services = self._services = self._supervise(made, context)
            await services.verification.verify()
            known = [each.name for each in self.outbox.listeners]
            known += [] if self._endpoints is None else self._endpoints.names
            await register(context, self._listeners, known)
            await self._lifespans.enter()
            names = tuple(each.name for each in self._listeners)
            self.observers.emit(ConsumerStarted(self.owner, names))
            try:
                async with anyio.create_task_group() as tasks:
                    await services.start(tasks)
                    task_status.started()
                    self._has_started = True
                    self._progressed.ring()
                    await self._until_stopped(services)
                    await self._wind_down(services)
                    tasks.cancel_scope.cancel()
            finally:
                self._has_started = False
                self._stop.set()
                await self._leave(services)
                await self._restarts.ask_again(services)
                self._services = None
                self._progressed.ring()
                for each in self._listeners:
                    if each.forwarding is not None:
                        await best_effort(each.forwarding.close(), CLOSE_SECONDS)
        self.observers.emit(ConsumerStopped(self.owner))

    async def _until_stopped(self, services: Supervisor) -> None:
        try:
            await self._stop.wait()
        except anyio.get_cancelled_exc_class():
            # Cancelled from outside, or because one of the services failed: no time to finish.
            services.hurry()
            self.reason = self.reason or "cancelled"
            self._grace_ends = anyio.current_time()
            self.observers.emit(ConsumerStopping(self.reason, 0.0))
            raise

    async def _wind_down(self, services: Supervisor) -> None:
        grace = self.settings.grace_period.total_seconds()
        self._grace_ends = anyio.current_time() + grace
        self.observers.emit(ConsumerStopping(self.reason, grace, restarts=self._restarts.is_due))
        await services.wind_down(grace, self._progressed.wait)

    def _grace_left(self) -> float:
        """Seconds that lifespans may take to end: what handlers have left of the grace period."""
        if self._grace_ends is None:  # it has not begun to stop: something failed
            return self.settings.grace_period.total_seconds()
        return max(CLOSE_SECONDS, self._grace_ends - anyio.current_time())

    async def _leave(self, services: Supervisor) -> None:
        limit = self.settings.probe_timeout.total_seconds() if self._only_drains else CLOSE_SECONDS

        async def leave() -> None:
            await services.leave()
            self._holds_leases = False

        self._holds_leases = True
        await best_effort(leave(), limit)

    def _supervise(self, made: Engines, context: ConsumerContext) -> Supervisor:
        watchers = restart_watchers(
            self.outbox,
            self._restarts,
            self._endpoints,
            self.settings.idle_after,
            lambda: self._services,
            self._progressed.wait,
        )
        return make_supervisor(
            context,
            self.outbox,
            made,
            self._listeners,
            owner=self.owner,
            listen_connect=self._listen_connect,
            only_drains=self._only_drains,
            more=() if self._only_drains else watchers,
        )
