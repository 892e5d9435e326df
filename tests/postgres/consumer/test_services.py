"""Every service starts, stops and starts again at any moment, and leaves nothing behind.

Each runs alone, on a real PostgreSQL, and is cancelled at random: anywhere, or in the middle of a
statement. The check is tried on services that are broken on purpose.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from logging import ERROR
from time import monotonic
from typing import Any

import anyio
import pytest
from anyio import TASK_STATUS_IGNORED
from anyio.abc import TaskStatus
from sqlalchemy.ext.asyncio import AsyncEngine

from sa_outbox import Event, Outbox
from sa_outbox.consumer.assembly import OWN_CONNECTIONS, make_context, make_supervisor
from sa_outbox.consumer.connection.connections import Query
from sa_outbox.consumer.connection.engines import Engines, engines
from sa_outbox.consumer.idle.restarts import Restarts
from sa_outbox.consumer.idle.watcher import IdleWatcher
from sa_outbox.consumer.services import endpoints as serving
from sa_outbox.consumer.services.endpoints import Endpoints, EndpointWatcher
from sa_outbox.consumer.services.registration import register
from sa_outbox.consumer.shared.sync import Broadcast
from sa_outbox.consumer.supervisor import Service, Supervisor
from sa_outbox.observe import BacklogMeasured, DeliverySettled, Observers
from sa_outbox.settings import ConsumerSettings
from tests.support.loop_errors import reported
from tests.support.recorder import Recorder

from .conftest import Database, Producer

pytestmark = [pytest.mark.anyio, pytest.mark.woken_by("notify")]

KINDS = (
    "BacklogMeter",
    "ClockWatcher",
    "CronService",
    "EndpointWatcher",
    "HorizonWatcher",
    "IdleWatcher",
    "LeaseKeeper",
    "MaintenanceService",
    "Pulse",
    "Queue",
    "Verification",
    "Wakeup",
)
ROUNDS = 30
MAX_TURNS = 1_200
PROMPTLY = 3.0
"""Seconds; none of them has to wait for more than the answer to one statement."""
MOMENT = timedelta(milliseconds=5)
SETTINGS = ConsumerSettings(
    lease_duration=timedelta(seconds=1),
    poll_interval=MOMENT,
    poll_interval_without_notify=MOMENT,
    probe_interval=MOMENT,
    verify_interval=MOMENT,
    measure_interval=MOMENT,
    maintenance_interval=MOMENT,
)
"""Whatever is done from time to time is done all the time."""
OWNER = "stressed"


class Measuring(Recorder):
    wants_measures = True


@dataclass
class Sent:
    """Counts the statements on the consumer's own connections."""

    count: int = 0


@dataclass
class Moment:
    """Some turns of the event loop after some statements were sent, or *most* turns at all."""

    sent: Sent
    statements: int
    turns: int
    most: int = MAX_TURNS

    async def comes(self) -> None:
        until = self.sent.count + self.statements
        for _ in range(self.most):
            if self.sent.count >= until:
                break
            await anyio.lowlevel.checkpoint()
        for _ in range(self.turns):
            await anyio.lowlevel.checkpoint()


@dataclass
class Stage:
    """The parts of a consumer that does not run, each to be started by itself."""

    supervisor: Supervisor
    database: Database
    engine: AsyncEngine
    recorder: Recorder
    log: pytest.LogCaptureFixture
    sent: Sent

    def service(self, kind: str) -> Service:
        return next(each for each in self.supervisor.services if type(each).__name__ == kind)

    async def read_horizon(self) -> None:
        """So that loops and queues find something to do without the service that reads it."""
        watcher: Any = self.service("HorizonWatcher")
        await watcher._reader.read()

    def moment(self, chance: random.Random) -> Moment:
        """Anywhere, or just when a statement is under way whose answer has not come yet."""
        if chance.random() < 0.5:
            return Moment(self.sent, 0, chance.randrange(MAX_TURNS))
        return Moment(self.sent, chance.randrange(1, 8), chance.randrange(1, 30))

    def left(self) -> dict[str, object]:
        """What should not be there while no service runs."""
        leases = "SELECT name FROM outbox_listeners WHERE locked_by = :owner"
        ranges = "SELECT listener FROM outbox_ranges WHERE locked_by = :owner"
        in_use = OWN_CONNECTIONS - self.supervisor.context.connections._limit.value
        pool: Any = self.engine.pool
        found = {
            "own connections": in_use,
            "connections of the engine": pool.checkedout(),
            "leases": [row.name for row in self.database.rows(leases, owner=OWNER)],
            "ranges": [row.listener for row in self.database.rows(ranges, owner=OWNER)],
            "at work": self.supervisor.workload.is_at_work,
            "in the log": [each.getMessage() for each in self.log.records if each.levelno >= ERROR],
        }
        return {name: value for name, value in found.items() if value}


@pytest.fixture
async def stage(
    outbox: Outbox,
    producer: Producer,
    database: Database,
    async_engine: AsyncEngine,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> AsyncIterator[Stage]:
    monkeypatch.setattr(serving, "REFRESH_SECONDS", 0.002)
    outbox.cron("* * * * *", "order.checked", {"n": 0}, time_zone="UTC")

    @outbox.listener("by_key", on="order.placed", concurrency=3)
    async def by_key(event: Event[Any]) -> None:
        # Without a statement: cut off in one, its session costs a connection, which the pool logs.
        await anyio.sleep(0)

    @outbox.listener("in_total", on="order.placed", order="total")
    async def in_total(event: Event[Any]) -> None: ...

    @outbox.listener("queue", on="order.placed", order="none", concurrency=3)
    async def queue(event: Event[Any]) -> None: ...

    sent, arguments = Sent(), Query.arguments

    def counted(query: Query, values: dict[str, Any]) -> list[Any]:
        sent.count += 1
        return arguments(query, values)

    monkeypatch.setattr(Query, "arguments", counted)
    made = engines(async_engine, None, tuple(outbox.listeners))
    recorder = Measuring()
    async with staged(outbox, made, recorder) as supervisor:
        yield Stage(supervisor, database, async_engine, recorder, caplog, sent)


@asynccontextmanager
async def staged(outbox: Outbox, made: Engines, recorder: Recorder) -> AsyncIterator[Supervisor]:
    observers, listeners = Observers((recorder,)), tuple(outbox.listeners)
    progressed = Broadcast()
    context = make_context(
        outbox,
        outbox.tables,
        made,
        SETTINGS,
        observers,
        owner=OWNER,
        stop=lambda why, reason: None,
        progressed=progressed.ring,
    )
    endpoints = Endpoints(outbox, outbox.tables, made.asynchronous, observers)
    await endpoints.read()

    def idle_watcher() -> IdleWatcher:
        """It never falls asleep: here it would stop nothing."""
        restarts = Restarts(outbox, SETTINGS, observers, lambda reason: False)
        return IdleWatcher(
            outbox, 2 * MOMENT.total_seconds(), lambda: supervisor, progressed.wait, restarts
        )

    supervisor = make_supervisor(
        context,
        outbox,
        made,
        listeners,
        owner=OWNER,
        listen_connect=None,
        only_drains=False,
        more=[EndpointWatcher(endpoints, lambda: None), idle_watcher()],
    )
    await supervisor.verification.verify()
    await register(context, listeners, [each.name for each in listeners])
    try:
        yield supervisor
    finally:
        await supervisor.leases.withdraw()
        await context.connections.close(1.0)


async def start_and_stop(
    run: Callable[..., Any], when: Moment, *, waits: bool, within: float
) -> None:
    """Stopped twice: the second time is harmless. *waits*: until it says that it has started."""
    async with anyio.create_task_group() as tasks:
        if waits:
            await tasks.start(run)
        else:
            tasks.start_soon(run)
        await when.comes()
        tasks.cancel_scope.cancel()
        tasks.cancel_scope.cancel()
        asked_at = monotonic()
    seconds = monotonic() - asked_at
    assert seconds < within, f"stopped only after {seconds:.1f} s, at {when}"


async def stress(
    stage: Stage, service: Service, producer: Producer, *, rounds: int, within: float = PROMPTLY
) -> None:
    """Fails if *service* leaves anything behind, whenever it is stopped."""
    chance = random.Random(7)
    async with reported() as errors:
        for number in range(rounds):
            producer.add(number, key=f"key {number % 3}")
            await stage.read_horizon()
            before = asyncio.all_tasks()
            when = stage.moment(chance)
            waits = chance.random() < 0.25
            await start_and_stop(service.run, when, waits=waits, within=within)
            assert asyncio.all_tasks() - before == set(), f"a task is left after {when}"
            assert stage.left() == {}, f"left after {when}"
    assert errors == []


@pytest.mark.parametrize("kind", KINDS)
async def test_a_service_leaves_nothing_behind_whenever_it_is_stopped(
    kind: str, stage: Stage, producer: Producer
) -> None:
    await stress(stage, stage.service(kind), producer, rounds=ROUNDS)

    # It has not only ended well: it works when it is started once more, with all others.
    settled = len(stage.recorder.of(DeliverySettled, outcome="done"))
    stage.recorder.forget()
    producer.add(ROUNDS, key="the last")
    left = 3 * (ROUNDS + 1) - settled
    async with anyio.create_task_group() as tasks:
        await stage.supervisor.start(tasks)
        await stage.recorder.seen(DeliverySettled, outcome="done", times=left)
        await stage.recorder.seen(BacklogMeasured)
        tasks.cancel_scope.cancel()
    assert stage.left() == {}


async def test_all_together_leave_nothing_behind_either(stage: Stage, producer: Producer) -> None:
    class All:
        async def run(self, *, task_status: TaskStatus[None] = TASK_STATUS_IGNORED) -> None:
            async with anyio.create_task_group() as tasks:
                await stage.supervisor.start(tasks)
                task_status.started()

    await stress(stage, All(), producer, rounds=ROUNDS)


async def test_to_stop_or_cancel_the_work_twice_or_before_it_started_is_harmless(
    stage: Stage, producer: Producer
) -> None:
    supervisor = stage.supervisor
    producer.add(1)
    supervisor.cancel()
    async with anyio.create_task_group() as tasks:
        await supervisor.start(tasks)
        await stage.recorder.seen(DeliverySettled, times=3)
        for _ in range(2):
            supervisor.stop()
        for _ in range(2):
            supervisor.cancel()
        tasks.cancel_scope.cancel()
    supervisor.stop()
    supervisor.cancel()

    assert stage.left() == {}


async def test_every_service_of_a_consumer_is_among_those_that_are_tried(stage: Stage) -> None:
    assert sorted({type(each).__name__ for each in stage.supervisor.services}) == sorted(KINDS)


class Broken:
    """A service that does what no service may do when it is stopped."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._connections = stage.supervisor.context.connections
        self._leases = stage.supervisor.leases
        self.kept: list[Any] = []

    async def run(self, *, task_status: TaskStatus[None] = TASK_STATUS_IGNORED) -> None:
        await self.breaks()
        task_status.started()
        await anyio.sleep_forever()

    async def breaks(self) -> None:
        raise NotImplementedError


class LeavesATask(Broken):
    async def breaks(self) -> None:
        self.kept.append(asyncio.ensure_future(asyncio.Event().wait()))


class KeepsAConnection(Broken):
    async def breaks(self) -> None:
        await self._connections._limit.acquire()


class KeepsALease(Broken):
    async def breaks(self) -> None:
        await self._leases.claim()


class LeavesAnError(Broken):
    async def breaks(self) -> None:
        asyncio.get_running_loop().create_future().set_exception(ValueError("nobody sees it"))


class DoesNotStop(Broken):
    async def breaks(self) -> None:
        with anyio.move_on_after(0.5, shield=True):
            await anyio.sleep_forever()


@pytest.mark.parametrize(
    ("broken", "found"),
    [
        (LeavesATask, "a task is left"),
        (KeepsAConnection, "own connections"),
        (KeepsALease, "leases"),
        (LeavesAnError, "nobody sees it"),
    ],
)
async def test_a_service_that_is_broken_is_found(
    broken: type[Broken], found: str, stage: Stage, producer: Producer
) -> None:
    service = broken(stage)
    with pytest.raises(AssertionError, match=found):
        await stress(stage, service, producer, rounds=10)
    for task in service.kept:
        task.cancel()
    await stage.supervisor.leases.release_all()


async def test_a_service_that_does_not_stop_is_found(stage: Stage, producer: Producer) -> None:
    with pytest.raises(AssertionError, match="stopped only after"):
        await stress(stage, DoesNotStop(stage), producer, rounds=10, within=0.3)
