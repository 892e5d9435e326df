"""Puts one run of a consumer together: what its parts share, its loops, its services."""

from __future__ import annotations

from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import anyio
from anyio import CancelScope

from .connection.connections import Connections
from .connection.statements import statements
from .handler.session import AsyncHandlerSession, HandlerSession
from .lease.alibi import Alibis, Pulse
from .lease.continuity import Continuity
from .lease.renewal import Renewal
from .loop.holder import HeldLeases
from .loop.log_source import log_loop
from .position.horizon import Horizon
from .queue.queue import Queue
from .services.clock_watch import ClockWatcher
from .services.crons import CronService
from .services.horizon_reader import HorizonReader
from .services.lease_coordinator import LeaseCoordinator
from .services.verification import Verification
from .services.wakeup import Wakeup, poll_interval
from .shared.context import ConsumerContext
from .shared.sync import ExclusiveGate, HorizonBell
from .supervisor import Supervisor
from .upkeep.service import MaintenanceService
from .work.backlog import BacklogMeter
from .work.fan_out import FanOut
from .work.horizon_watch import HorizonWatcher
from .work.lease_keeper import LeaseKeeper
from .work.memory import Memory
from .work.workload import Workload

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable, Sequence

    from sa_outbox.database.tables import Tables
    from sa_outbox.declare.listener import Listener
    from sa_outbox.observe import Observers
    from sa_outbox.outbox import Outbox
    from sa_outbox.settings import ConsumerSettings

    from .connection.connections import Connect
    from .connection.engines import Engines
    from .lease.lease import Lease
    from .loop.log_source import LogSource
    from .loop.loop import DeliveryLoop
    from .shared.stop_reason import StopReason
    from .shared.tally import Tally
    from .supervisor import Service

CLOSE_SECONDS = 1.0
"""Seconds to close the consumer's own connections, at the end of a run."""
OWN_CONNECTIONS = 6
"""Most connections for the horizon, cursors and leases; one more is for LISTEN."""


def make_context(
    outbox: Outbox,
    tables: Tables,
    made: Engines,
    settings: ConsumerSettings,
    observers: Observers,
    *,
    owner: str,
    stop: Callable[[StopReason, str], None],
    progressed: Callable[[], None],
    tally: Tally | None = None,
) -> ConsumerContext:
    """*tally*: that of the drain for which it runs."""
    horizon = Horizon()
    continuity = Continuity(horizon)
    own = Connections.of(made.connect, settings, most=OWN_CONNECTIONS, broken=continuity.doubt)
    async_sessions, sync_sessions = _sessions(outbox, tables, made)
    return ConsumerContext(
        connections=own,
        statements=statements(tables, outbox.settings.names.notify_channel),
        tables=tables,
        owner=owner,
        settings=settings,
        horizon=horizon,
        bell=HorizonBell(),
        continuity=continuity,
        gate=ExclusiveGate(),
        alibis=Alibis(Pulse(settings.lease_duration.total_seconds())),
        observers=observers,
        threads=anyio.CapacityLimiter(settings.threads),
        redact=outbox.settings.redact,
        audit=outbox.settings.audit,
        alert_depth=outbox.settings.alert_depth,
        lifetime=outbox.settings.key_lifetime_of,
        async_sessions=async_sessions,
        sync_sessions=sync_sessions,
        stop=stop,
        progressed=progressed,
        tallies=[] if tally is None else [tally],
        limit=None if tally is None or tally.left is None else tally,
    )


@asynccontextmanager
async def closing(context: ConsumerContext) -> AsyncIterator[ConsumerContext]:
    """Close its connections at the end."""
    try:
        yield context
    finally:
        with CancelScope(shield=True):
            await context.connections.close(CLOSE_SECONDS)


def _sessions(
    outbox: Outbox, tables: Tables, made: Engines
) -> tuple[Callable[[], Any], Callable[[], Any] | None]:
    """Make an ``AsyncHandlerSession`` and a ``HandlerSession``, if one is needed."""
    options = {"expire_on_commit": False}
    kind = AsyncHandlerSession
    asynchronous = outbox.async_sessionmaker(made.asynchronous, class_=kind, **options)
    asynchronous.kw["sync_session_class"].outbox_tables = tables
    if made.synchronous is None:
        return asynchronous, None
    synchronous = outbox.sessionmaker(made.synchronous, class_=HandlerSession, **options)
    synchronous.class_.outbox_tables = tables
    return asynchronous, synchronous


def make_supervisor(
    context: ConsumerContext,
    outbox: Outbox,
    made: Engines,
    listeners: Sequence[Listener],
    *,
    owner: str,
    listen_connect: Connect | None,
    only_drains: bool,
    more: Iterable[Service] = (),
) -> Supervisor:
    """*only_drains*: it leaves soon, so it claims no share of the listeners and maintains nothing.
    *more* services are started last."""
    queued = [each for each in listeners if each.order_mode.is_queue]
    ordered = [each for each in listeners if not each.order_mode.is_queue]
    leases = LeaseCoordinator(context, ordered, queued, owner, shares=not only_drains)
    workload = _workload(context, leases, ordered, queued, owner)
    verification = Verification(context, made.asynchronous, outbox, listeners)
    verification.copies.follow(workload.holder, leases.bell)
    for queue in workload.queues:
        verification.copies.follow(queue.holder, queue.bell)
    duration = context.settings.lease_duration.total_seconds()
    renewal = Renewal(context.connections, owner, duration, context.withheld)
    memory = Memory(workload, renewal)
    context.continuity.follow(memory.doubt)
    context.continuity.follow(partial(context.bell.ring, "reconnect"))
    fan_out = FanOut(context, leases, workload, verification)
    wakeup = _wakeup(context, outbox, listen_connect or made.connect, fan_out)
    polls = partial(poll_interval, context.settings, wakeup)
    reader = HorizonReader(context, listeners, memory)
    maintenance = None if only_drains else MaintenanceService(context)
    crons = CronService.of(context, outbox)
    bells = [each.bell.ring for each in (maintenance, crons) if each is not None]
    services: list[Service | None] = [
        LeaseKeeper(context, leases, workload, memory, polls),
        context.alibis.pulse,
        HorizonWatcher(context, reader, workload, verification, polls),
        verification,
        *workload.queues,
        wakeup,
        maintenance,
        crons,
        ClockWatcher([fan_out.released, *bells]),
        BacklogMeter(context, made.asynchronous, workload, listeners),
        *more,
    ]
    needed = [each for each in services if each is not None]
    return Supervisor(context, leases, workload, memory, verification, needed)


def _workload(
    context: ConsumerContext,
    leases: LeaseCoordinator,
    ordered: Iterable[Listener],
    queued: Iterable[Listener],
    owner: str,
) -> Workload:
    by_name = {each.name: each for each in ordered}

    def make_loop(lease: Lease) -> DeliveryLoop[LogSource]:
        context.bell.ring("start")
        return log_loop(context, by_name[lease.listener], lease)

    holder = HeldLeases(context, leases, make_loop)
    return Workload(holder, [Queue(context, each, owner) for each in queued])


def _wakeup(
    context: ConsumerContext, outbox: Outbox, connect: Connect, fan_out: FanOut
) -> Wakeup | None:
    """None: nobody notifies."""
    if not outbox.settings.notifies:
        return None
    return Wakeup(
        connect,
        outbox.settings.names.notify_channel,
        context.statements,
        context.settings,
        context.observers,
        ping=partial(context.connections.rows, context.statements.ping),
        notified=partial(context.bell.ring, "notify"),
        released=fan_out.released,
        cancelled=fan_out.cancelled,
        adopted=fan_out.adopted,
        reconnected=fan_out.reconnected,
        lost=fan_out.lost,
    )
