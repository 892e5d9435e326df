"""The consumer: one task group for everything, from the start to the last lease given back."""

from __future__ import annotations

import os
import secrets
import socket
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING

import anyio
from anyio import TASK_STATUS_IGNORED, CancelScope

from sa_outbox.errors import ConfigError, NotDrained
from sa_outbox.observe import ConsumerStarted, ConsumerStopped, ConsumerStopping, Observers
from sa_outbox.settings import ConsumerSettings

from .connections import Connections, swallow
from .cursor import Cursor
from .draining import until_drained
from .endpoints import Endpoints
from .engines import connect_to, engines
from .gate import Gate
from .horizon import Horizon
from .leasing import Leasing
from .looking import Looker
from .measuring import Measuring
from .queue import Queue
from .registration import chosen, register
from .retention import Retention
from .services import Services
from .session import AsyncHandlerSession, HandlerSession
from .shared import Shared
from .statements import statements
from .tenure import Tenures
from .ticking import Ticking
from .unwrapping import one_error
from .verifying import Verifying
from .wakeup import Wakeup
from .watchdog import Watchdog

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, Sequence

    from anyio.abc import TaskStatus
    from sqlalchemy import URL, Engine
    from sqlalchemy.ext.asyncio import AsyncEngine

    from sa_outbox.listener import Listener
    from sa_outbox.observe import Observer
    from sa_outbox.outbox import Outbox

    from .engines import Engines
    from .lease import Lease

OWN_CONNECTIONS = 6
"""Most connections for looks, cursors and leases; one more is for LISTEN."""
CLOSING = 1.0


class Consumer:
    """Delivers the events of an outbox to its listeners, in this process.

    ::

        consumer = Consumer(outbox, "postgresql://...")
        await consumer.run()        # until it is stopped or cancelled
        await consumer.drain()      # or: until everything that is committed now is handled

    *database* is an address or an engine; handlers get sessions on it. Any number of processes may
    run for one database: each listener is worked for by one of them at a time.
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
        self.settings = settings or ConsumerSettings()
        self.observers = Observers(tuple(observers))
        self.owner = f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(4)}"
        self.reason = ""
        """Why it stopped."""
        self._declared: Sequence[Listener] = chosen(outbox, listeners)
        self._serves = outbox.endpoints is not None and listeners is None
        self._listeners: Sequence[Listener] = self._declared
        """With those of webhook endpoints, while it runs."""
        self._endpoints: Endpoints | None = None
        self._again = False
        """It is being stopped to begin again, with the endpoints that there are now."""
        self._database = database
        self._sync_engine = sync_engine
        self._listen_connect = None if listen_url is None else connect_to(listen_url)
        self._running = False
        self._only_drains = False
        """It leaves soon: no share of the listeners is made for it."""
        self._stop = anyio.Event()
        self._progressed = anyio.Event()
        self._services: Services | None = None

    async def run(self, *, task_status: TaskStatus[None] = TASK_STATUS_IGNORED) -> None:
        """Deliver events until ``stop()`` or cancellation.

        Raises :class:`SchemaError` when the tables are not there or what the reading stands on
        does not hold; nothing was touched then. A database that goes away later is waited for.
        """
        if self._running:
            raise ConfigError("this consumer is running already")
        self._running = True
        made = engines(self._database, self._sync_engine, self._declared)
        try:
            with one_error(), Watchdog(self.settings.blocked_after, self.observers):
                if self._serves:
                    self._endpoints = Endpoints(self.outbox, made.asynchronous, self.observers)
                    await self._serve_endpoints(made, task_status)
                else:
                    await self._run(made, task_status)
        finally:
            self._running = self._only_drains = self._again = False
            self._stop = anyio.Event()
            self._endpoints = None
            await swallow(made.dispose(), CLOSING)

    async def _serve_endpoints(self, made: Engines, task_status: TaskStatus[None]) -> None:
        """Run, and again with other listeners whenever the table of endpoints was changed."""
        endpoints = self._endpoints
        assert endpoints is not None  # noqa: S101 - for the type checker
        await endpoints.read()
        while True:
            self._again = False
            self._listeners = (*self._declared, *endpoints.listeners)
            await self._run(made, task_status)
            if not self._again:
                return
            self._stop = anyio.Event()
            task_status = TASK_STATUS_IGNORED
            # It was running: a database that is away now is waited for.
            await endpoints.read_again(self._stop)
            if self._stop.is_set():
                return

    async def drain(self, *, retries: bool = True) -> None:
        """Return when every listener has handled all that was committed when this was called.

        Handled is: done, or a dead letter. Without *retries*, an event that failed and waits for
        its next attempt is left for the next time, and listeners that another process holds are
        left to it. Runs the consumer if it is not running, and stops it again. Raises
        :class:`NotDrained` when something else stops it before.
        """
        drained = False
        if self._running:
            drained = await self._has_drained(retries=retries)
        else:
            self._only_drains = True
            with one_error():
                async with anyio.create_task_group() as tasks:
                    await tasks.start(self._start)
                    drained = await self._has_drained(retries=retries)
                    if drained and self._running:
                        self.stop("drained")
                    # Else it is being stopped, and handlers finish: not to be cut off by an error.
        if not drained:
            raise NotDrained(f"the consumer was stopped before it had drained: {self.reason}")

    def stop(self, reason: str = "stopped") -> None:
        """Begin nothing new, let handlers finish for the grace period, give the leases back.

        For the thread of the event loop. Called before ``run``, that returns at once.
        """
        if not self._stop.is_set() or self._again:
            self._again = False
            self.reason = reason
            self._stop.set()

    async def _start(self, *, task_status: TaskStatus[None] = TASK_STATUS_IGNORED) -> None:
        await self.run(task_status=task_status)

    async def _has_drained(self, *, retries: bool) -> bool:
        services = self._services
        return services is not None and await until_drained(
            services, self._next_progress, stopped=self._stop.is_set, retries=retries
        )

    async def _run(self, made: Engines, task_status: TaskStatus[None]) -> None:
        async with self._sharing(made) as shared:
            services = self._services = self._serve(made, shared)
            await services.verifying.verify()
            known = [each.name for each in self.outbox.listeners]
            known += [] if self._endpoints is None else self._endpoints.names
            await register(shared, self._listeners, known)
            names = tuple(each.name for each in self._listeners)
            self.observers.tell(ConsumerStarted(self.owner, names))
            try:
                async with anyio.create_task_group() as tasks:
                    await services.start(tasks)
                    tasks.start_soon(Measuring(shared, made.asynchronous, services).run)
                    if self._endpoints is not None and not self._only_drains:
                        tasks.start_soon(self._watch_endpoints, self._endpoints)
                    task_status.started()
                    await self._until_stopped()
                    await self._wind_down(services)
                    tasks.cancel_scope.cancel()
            finally:
                self._stop.set()
                await swallow(services.leasing.withdraw(), CLOSING)
                self._services = None
                self._progress()
                for each in self._listeners:
                    if each.forwarding is not None:
                        await swallow(each.forwarding.close(), CLOSING)
        self.observers.tell(ConsumerStopped(self.owner))

    async def _watch_endpoints(self, endpoints: Endpoints) -> None:
        await endpoints.changed()
        if not self._stop.is_set():
            self.reason, self._again = "the webhook endpoints were changed", True
            self._stop.set()

    async def _until_stopped(self) -> None:
        try:
            await self._stop.wait()
        except anyio.get_cancelled_exc_class():
            # Cancelled from outside, or because one of the services failed: no time to finish.
            self.reason = self.reason or "cancelled"
            self.observers.tell(ConsumerStopping(self.reason, 0.0))
            raise

    async def _wind_down(self, services: Services) -> None:
        grace = self.settings.grace_period.total_seconds()
        self.observers.tell(ConsumerStopping(self.reason, grace))
        services.stop()
        await swallow(services.leasing.withdraw(), CLOSING)
        with anyio.move_on_after(grace):
            while services.is_at_work:
                await self._next_progress()
        services.cancel()
        while services.is_at_work:
            await self._next_progress()

    @asynccontextmanager
    async def _sharing(self, made: Engines) -> AsyncIterator[Shared]:
        own = Connections.of(made.connect, self.settings, most=OWN_CONNECTIONS)
        try:
            yield self._share(made, own)
        finally:
            with CancelScope(shield=True):
                await own.close(CLOSING)

    def _share(self, made: Engines, own: Connections) -> Shared:
        outbox, options = self.outbox, {"expire_on_commit": False}
        sync_sessions = None
        if made.synchronous is not None:
            sync_sessions = outbox.sessionmaker(made.synchronous, class_=HandlerSession, **options)
        kind = AsyncHandlerSession
        async_sessions = outbox.async_sessionmaker(made.asynchronous, class_=kind, **options)
        return Shared(
            connections=own,
            statements=statements(outbox.tables, outbox.settings.names.notify_channel),
            tables=outbox.tables,
            settings=self.settings,
            horizon=Horizon(),
            gate=Gate(),
            observers=self.observers,
            threads=anyio.CapacityLimiter(self.settings.threads),
            redact=outbox.settings.redact,
            audit=outbox.settings.audit,
            alert_depth=outbox.settings.alert_depth,
            lifetime=outbox.settings.key_lifetime_of,
            async_sessions=async_sessions,
            sync_sessions=sync_sessions,
            stop=self.stop,
            look_again=self._look_again,
            progressed=self._progress,
        )

    def _serve(self, made: Engines, shared: Shared) -> Services:
        settings = self.outbox.settings
        queues = [each for each in self._listeners if each.order == "none"]
        ordered = [each for each in self._listeners if each.order != "none"]
        leasing = Leasing(shared, ordered, queues, self.owner, shares=not self._only_drains)
        verifying = Verifying(shared, made.asynchronous, self.outbox, self._listeners)
        services = Services(shared, leasing, Looker(shared, self._listeners), verifying)
        services.queues = [Queue(shared, each, self.owner) for each in queues]

        by_name = {each.name: each for each in ordered}

        def cursor(lease: Lease) -> Cursor:
            services.ring("start")
            return Cursor(shared, by_name[lease.listener], lease)

        services.tenures = Tenures(shared, leasing, cursor)
        verifying.copies.follow(services.tenures, leasing.bell)
        for queue in services.queues:
            verifying.copies.follow(queue.stints, queue.bell)
        services.ticking = Ticking.of(shared, self.outbox)
        services.retention = None if self._only_drains else Retention(shared)
        if settings.notifies:
            services.wakeup = Wakeup(
                self._listen_connect or made.connect,
                settings.names.notify_channel,
                shared.statements,
                self.settings,
                self.observers,
                ping=partial(shared.connections.rows, shared.statements.ping),
                notified=lambda: services.ring("notify"),
                released=services.released,
                cancelled=services.look_for_requests,
                adopted=verifying.bell.ring,
                reconnected=services.reconnected,
                lost=services.lost_notifications,
            )
        return services

    def _look_again(self) -> None:
        if self._services is not None:
            self._services.ring("open events")

    async def _next_progress(self) -> None:
        await self._progressed.wait()

    def _progress(self) -> None:
        self._progressed.set()
        self._progressed = anyio.Event()
