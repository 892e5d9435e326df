"""The consumer: one task group for everything, from the start to the last lease given back."""

from __future__ import annotations

import os
import secrets
import socket
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import anyio
from anyio import TASK_STATUS_IGNORED, CancelScope

from sa_outbox.errors import ConfigError, NotDrained
from sa_outbox.logs import Log, program_log
from sa_outbox.observe import (
    ConsumerStarted,
    ConsumerStopped,
    ConsumerStopping,
    Observers,
)
from sa_outbox.settings import ConsumerSettings

from .assembly import make_context, make_supervisor
from .connection.connections import best_effort
from .connection.engines import connect_to, engines, require_asyncio
from .connection.schema_location import locate
from .connection.shield import to_its_end
from .drain import until_drained
from .idle.restarts import Restarts
from .idle.watcher import IdleWatcher
from .lifespans import Lifespans
from .services.endpoints import Endpoints, EndpointWatcher
from .services.registration import chosen, register
from .services.watchdog import Watchdog
from .shared.stop_reason import StopReason
from .shared.sync import Broadcast
from .shared.tally import Tally
from .shared.task_errors import one_error

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, Sequence

    from anyio.abc import TaskStatus
    from sqlalchemy import URL, Engine
    from sqlalchemy.ext.asyncio import AsyncEngine

    from sa_outbox.declare.listener import Listener
    from sa_outbox.observe import Observer
    from sa_outbox.outbox import Outbox

    from .connection.engines import Engines
    from .shared.context import ConsumerContext
    from .shared.tally import Drained
    from .supervisor import Supervisor

CLOSE_SECONDS = 1.0


class Consumer:
    """Delivers the events of an outbox to its listeners, in this process.

    ::

        consumer = Consumer(outbox, "postgresql://...")
        await consumer.run()        # until it is stopped or cancelled
        await consumer.drain()      # or: until everything that is committed now is handled

    *database* is an address or an engine; handlers get sessions on it. Any number of processes may
    run for one database: each listener is worked for by one of them at a time. It logs through the
    program's structlog, or else its ``logging``, unless a ``sa_outbox.logs.Log`` is among its
    *observers* or ``log_level`` is ``"off"``.
    """

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

    async def drain(self, *, retries: bool = True, limit: int | None = None) -> Drained:
        """Return when every listener has handled all that was committed when this was called, and
        how much that was.

        Handled is: done, or a dead letter. Without *retries*, an event that failed and waits for
        its next attempt is left for the next time, and listeners that another process holds are
        left to it. Runs the consumer if it is not running, and stops it again. Raises
        :class:`NotDrained` when something else stops it before; and within 30 seconds for a relay
        whose other side is away and that forwards nothing meanwhile, without *retries* within 5.
        All else is handled then.

        With *limit*, no more than that many attempts are begun: one event for two listeners counts
        twice, and each retry counts. Then it returns; what is left stays for the next time. Not for
        a consumer that is running already: others rely on it.

        Invariant: a drain that ran the consumer and returns holds no lease. Every statement that
        takes one is answered before the end (``lease/lease.py``), what is held is given
        back, and at last whatever the database still has under our name.
        """
        require_asyncio()
        if limit is not None and (type(limit) is not int or limit < 1):
            raise ConfigError(f"drain(limit={limit!r}): it must be a number of at least 1")
        waiting: dict[str, str] | None = None
        tally = Tally(limit)
        if self._running:
            if limit is not None:
                raise ConfigError("drain(limit=...) is for a consumer that is not running")
            waiting = await self._until_drained(tally, retries=retries)
        else:
            self._only_drains, self._tally = True, tally
            with one_error():
                async with anyio.create_task_group() as tasks:
                    await tasks.start(self._start)
                    waiting = await self._until_drained(tally, retries=retries)
                    if waiting is not None and self._running:
                        self._stop_for(StopReason.DRAINED, "drained")
                    # Else it is being stopped, and handlers finish: not to be cut off by an error.
            if waiting is not None and self._holds_leases:
                raise NotDrained(
                    "everything is handled, but the database went away before the leases were "
                    f"given back: they expire in {self.settings.lease_duration}"
                )
        if waiting is None:
            raise NotDrained(f"the consumer was stopped before it had drained: {self.reason}")
        if waiting:
            away = ", ".join(f"{name!r} ({why})" for name, why in waiting.items())
            raise NotDrained(
                f"the other side of a relay is away, and events wait for it: {away}. Everything "
                "else is handled",
                waiting=waiting,
            )
        return tally.result()

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

    async def _start(self, *, task_status: TaskStatus[None] = TASK_STATUS_IGNORED) -> None:
        await self.run(task_status=task_status)

    async def _until_drained(self, tally: Tally, *, retries: bool) -> dict[str, str] | None:
        """The relays that are not waited for; None: it was stopped before."""
        self.wake()
        while self._running and (self._restarts.is_due or not self._stop.is_set()):
            services, stop = self._services, self._stop
            if services is None or not self._has_started or stop.is_set():
                await self._progressed.wait()  # it sleeps, or restarts
                continue
            progress = self._progressed.wait
            with services.context.tallied(tally):
                waiting = await until_drained(
                    services, progress, tally, stopped=stop.is_set, retries=retries, others=retries
                )
            if waiting is not None:
                return waiting
        return None

    async def _run(self, made: Engines, task_status: TaskStatus[None]) -> None:
        async with self._sharing(made) as context:
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

    def _idle_watcher(self) -> list[IdleWatcher]:
        after = self.settings.idle_after
        if after is None or self._only_drains:
            return []
        return [
            IdleWatcher(
                self.outbox,
                after.total_seconds(),
                lambda: self._services,
                self._progressed.wait,
                self._restarts,
            )
        ]

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
        services.stop()
        await best_effort(services.leases.withdraw(), CLOSE_SECONDS)
        with anyio.move_on_after(grace):
            while services.workload.is_at_work:
                await self._progressed.wait()
        services.cancel()
        while services.workload.holds_leases:
            await self._progressed.wait()

    def _grace_left(self) -> float:
        """Seconds that lifespans may take to end: what handlers have left of the grace period."""
        if self._grace_ends is None:  # it has not begun to stop: something failed
            return self.settings.grace_period.total_seconds()
        return max(CLOSE_SECONDS, self._grace_ends - anyio.current_time())

    async def _leave(self, services: Supervisor) -> None:
        """The last words to the database. Nothing is worked for any more."""
        limit = self.settings.probe_timeout.total_seconds() if self._only_drains else CLOSE_SECONDS

        async def leave() -> None:
            await services.leases.withdraw()
            await services.leases.release_all()
            self._holds_leases = False

        self._holds_leases = True
        await best_effort(leave(), limit)

    @asynccontextmanager
    async def _sharing(self, made: Engines) -> AsyncIterator[ConsumerContext]:
        context = make_context(
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
        try:
            yield context
        finally:
            with CancelScope(shield=True):
                await context.connections.close(CLOSE_SECONDS)

    def _supervise(self, made: Engines, context: ConsumerContext) -> Supervisor:
        endpoints = None if self._only_drains else self._endpoints
        watched = (
            [] if endpoints is None else [EndpointWatcher(endpoints, self._restarts.serve_again)]
        )
        return make_supervisor(
            context,
            self.outbox,
            made,
            self._listeners,
            owner=self.owner,
            listen_connect=self._listen_connect,
            only_drains=self._only_drains,
            more=[*watched, *self._idle_watcher()],
        )
