"""A consumer in the test's own event loop, with notifications and without.

A test that asks for ``outbox`` runs twice: a notification wakes its consumer (``notify``), or a
poll does (``poll``). Delivery, order, leases, queues, drain, outages and crashes have to hold in
both. What does not depend on it runs once, half of it in each way: ``pytest.mark.woken_by("poll")``
for a module, a class or a test, the nearest of them.

Whoever leaves ``consuming`` has to leave nothing behind: no lease, no connection, no task, no error
in a log.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from dataclasses import dataclass, field, fields
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypeAlias

import anyio
import pytest
from sqlalchemy import URL, Connection, Engine, text
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from sa_outbox import Outbox, OutboxSession, RetryPolicy
from sa_outbox.consumer import Consumer, ConsumerSettings
from sa_outbox.consumer.connection.engines import APPLICATION_NAME
from sa_outbox.consumer.queue import remembered
from sa_outbox.consumer.settle import buffer
from sa_outbox.consumer.settle.writes import Write, plan
from sa_outbox.logs import program
from sa_outbox.observe import DeliverySettled, Listening
from sa_outbox.policy.delivery import is_legal
from sa_outbox.settings import Notify
from tests.support import PATIENCE, comes_true
from tests.support.drains import what_is_held
from tests.support.recorder import Recorder

if TYPE_CHECKING:
    from .kept import Kept

QUICK = RetryPolicy(attempts=3, base=timedelta(milliseconds=10), jitter=False)
"""Three attempts in a moment."""
ONCE = RetryPolicy(attempts=1)
LATER = RetryPolicy(attempts=2, base=timedelta(hours=1), jitter=False)
"""What fails stays parked for the whole test."""

_WAYS: dict[str, Notify] = {"notify": "on", "poll": "off"}
_SETTINGS = {each.name for each in fields(ConsumerSettings)}
_EFFECTS = """
CREATE TABLE IF NOT EXISTS effects (listener text, n bigint);
CREATE TABLE IF NOT EXISTS checked_late (n bigint UNIQUE DEFERRABLE INITIALLY DEFERRED);
DELETE FROM effects;
DELETE FROM checked_late
"""
_COUNT_WRITES = """
CREATE TABLE writes (id bigserial);
CREATE FUNCTION count_write() RETURNS trigger LANGUAGE plpgsql
    AS 'BEGIN INSERT INTO writes DEFAULT VALUES; RETURN NULL; END';
CREATE TRIGGER count_writes AFTER UPDATE ON outbox_listeners FOR EACH ROW
    WHEN (OLD.revision <> NEW.revision AND NEW.name = '{}') EXECUTE FUNCTION count_write();
"""
_CHECKS = (
    "SELECT conname, pg_get_constraintdef(oid) AS definition FROM pg_constraint"
    " WHERE conrelid = CAST('outbox' AS regclass) AND contype = 'c'"
)


@dataclass
class Running:
    """A consumer that runs, and what it told."""

    consumer: Consumer
    recorder: Recorder
    stopped: anyio.Event = field(default_factory=anyio.Event)
    """``run()`` has returned."""

    async def listening(self) -> None:
        """From here on nothing but a notification or a poll makes it look."""
        if self.consumer.outbox.settings.notifies:
            await self.recorder.seen(Listening)
        await self.consumer.drain()

    async def settled(self, listener: str, times: int = 1, **fields: Any) -> None:
        await self.recorder.seen(DeliverySettled, listener=listener, times=times, **fields)

    async def done(self, listener: str, times: int = 1) -> None:
        await self.settled(listener, times, outcome="done")

    async def dead(self, listener: str, times: int = 1) -> None:
        await self.settled(listener, times, outcome="dead")

    async def stop(self) -> None:
        self.consumer.stop()
        await self.stopped.wait()


Consuming: TypeAlias = Callable[..., AbstractAsyncContextManager[Running]]
RunUntil: TypeAlias = Callable[..., Awaitable[Running]]


class Database:
    """What the program writes and what an operator sees. Each statement its own transaction."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine

    def rows(self, statement: str, **values: object) -> list[Any]:
        with self.engine.begin() as connection:
            result = connection.execute(text(statement), values)
            return list(result) if result.returns_rows else []

    def value(self, statement: str, **values: object) -> Any:
        return self.rows(statement, **values)[0][0]

    def listener(self, name: str) -> Any:
        return self.rows("SELECT * FROM outbox_listeners WHERE name = :name", name=name)[0]

    def deliveries(self, listener: str) -> list[Any]:
        return self.rows(
            "SELECT * FROM outbox_deliveries WHERE listener = :name ORDER BY position",
            name=listener,
        )

    def dead_letters(self, listener: str) -> list[Any]:
        """The copy of the event as text: some of them no driver can read."""
        return self.rows(
            "SELECT position, event_id, event_type, key, tenant, payload::text, headers::text,"
            " priority, reason, attempts, crashes, errors, resolution"
            " FROM outbox_dead_letters WHERE listener = :name ORDER BY id",
            name=listener,
        )

    def effects(self, listener: str) -> list[int]:
        """In the order in which they were made, as near as a table tells."""
        found = self.rows("SELECT n FROM effects WHERE listener = :name ORDER BY n", name=listener)
        return [row.n for row in found]

    def write_raw(self, **columns: str) -> None:
        """An event as no session would write it. The values are SQL."""
        given = {"event_id": "gen_random_uuid()", "event_type": "'order.placed'", "payload": "'{}'"}
        given |= columns
        names, values = ", ".join(given), ", ".join(given.values())
        self.rows(f"INSERT INTO outbox ({names}) VALUES ({values})")

    def backends(self, application_name: str = APPLICATION_NAME) -> list[int]:
        found = self.rows(
            "SELECT pid FROM pg_stat_activity"
            " WHERE datname = current_database() AND application_name = :name",
            name=application_name,
        )
        return [row.pid for row in found]

    def waiting_backends(self) -> list[int]:
        """The consumer's, those that wait for a lock."""
        found = self.rows(
            "SELECT pid FROM pg_stat_activity WHERE datname = current_database()"
            " AND application_name = :name AND wait_event_type = 'Lock'",
            name=APPLICATION_NAME,
        )
        return [row.pid for row in found]

    def idle_in_transaction(self) -> list[int]:
        """Sessions of handlers and others that nobody has ended."""
        found = self.rows(
            "SELECT pid FROM pg_stat_activity WHERE datname = current_database()"
            " AND state LIKE 'idle in transaction%'"
        )
        return [row.pid for row in found]

    @asynccontextmanager
    async def locked(self, table: str) -> AsyncIterator[None]:
        """Meanwhile nobody reads or writes this table."""
        lock = text(f"LOCK TABLE {table} IN ACCESS EXCLUSIVE MODE")
        with self.engine.begin() as connection:
            # In a thread: a transaction of the consumer that has to end first is in this loop.
            await anyio.to_thread.run_sync(connection.execute, lock)
            yield

    @contextmanager
    def counting_writes(self, listener: str) -> Iterator[Callable[[], int]]:
        """How often the listener's cursor was written meanwhile. A queue's revision is no count."""
        self.rows(_COUNT_WRITES.format(listener))
        try:
            yield lambda: int(self.value("SELECT count(*) FROM writes"))
        finally:
            self.rows("DROP FUNCTION count_write CASCADE; DROP TABLE writes")

    def end_consumer_backends(self) -> None:
        """As an administrator does, or a server that shuts down. Without those of handlers."""
        for pid in self.backends():
            self.rows("SELECT pg_terminate_backend(:pid, 5000)", pid=pid)

    def end_other_backends(self) -> None:
        """All of them, but for this program's own."""
        self.engine.dispose()
        self.rows(
            "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity"
            " WHERE datname = current_database() AND pid <> pg_backend_pid()"
            " AND backend_type = 'client backend'"
        )

    def end_backend_of(self, connection: Connection) -> None:
        adapted: Any = connection.connection.dbapi_connection
        pid = adapted.driver_connection.get_server_pid()
        self.rows("SELECT pg_terminate_backend(:pid, 5000)", pid=pid)


class Producer:
    """A program that adds events. Their payload is ``{"n": number}``."""

    def __init__(self, outbox: Outbox, engine: Engine) -> None:
        self._sessions = outbox.sessionmaker(engine)

    def add(self, *numbers: int, event_type: str = "order.placed", **options: Any) -> None:
        """Commit one transaction with an event for each number."""
        with self.open() as session:
            for number in numbers:
                session.add_event(event_type, {"n": number}, **options)

    @contextmanager
    def open(self) -> Iterator[OutboxSession]:
        """A transaction, committed at the end."""
        with self._sessions.begin() as session:
            yield session


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "notify" in metafunc.fixturenames and not _chooses_its_way(metafunc.definition):
        marker = metafunc.definition.get_closest_marker("woken_by")
        ways = marker.args if marker else ("notify", "poll")
        metafunc.parametrize("notify", ways, indirect=True)


def _chooses_its_way(test: pytest.Function) -> bool:
    """By ``in_turns``."""
    return any("notify" in each.args[0] for each in test.iter_markers("parametrize"))


def in_turns(seeds: int) -> pytest.MarkDecorator:
    """``seed`` and ``notify``: by chance, so each seed in one of the two ways."""
    ways = [(seed, ("notify", "poll")[seed % 2]) for seed in range(seeds)]
    return pytest.mark.parametrize(("seed", "notify"), ways, indirect=["notify"])


@pytest.fixture
def notify(request: pytest.FixtureRequest) -> Notify:
    return _WAYS[request.param]


@pytest.fixture
def database(engine: Engine) -> Database:
    with engine.begin() as connection:
        connection.execute(text(_EFFECTS))
    return Database(engine)


@pytest.fixture
def unchecked(engine: Engine) -> Iterator[Database]:
    """For the time of the test the log takes what SQL writes: its constraints are dropped."""
    with engine.begin() as connection:
        connection.execute(text(_EFFECTS))
    database = Database(engine)
    dropped = database.rows(_CHECKS)
    for each in dropped:
        database.rows(f'ALTER TABLE outbox DROP CONSTRAINT "{each.conname}"')
    yield database
    database.rows("TRUNCATE outbox")
    for each in dropped:
        database.rows(f'ALTER TABLE outbox ADD CONSTRAINT "{each.conname}" {each.definition}')


@pytest.fixture
def outbox(notify: Notify) -> Outbox:
    return Outbox(notify=notify)


@pytest.fixture(autouse=True)
def illegal_moves(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Whatever a test leads to: no delivery is settled by a move that is not in the table."""
    illegal: list[str] = []

    def checked(statements: Any, lease: Any, items: Any, **options: Any) -> list[Write]:
        wrong = (each for each in items if not is_legal(each.state_before, each.outcome))
        illegal.extend(f"{each.state_before} to {each.outcome}" for each in wrong)
        return plan(statements, lease, items, **options)

    monkeypatch.setattr(buffer, "plan", checked)
    yield illegal
    assert illegal == []


@pytest.fixture
def saved_often(monkeypatch: pytest.MonkeyPatch) -> float:
    """Cursors that only pass events of others are saved after this many seconds: a tenth of the
    usual three."""
    assert pytest.approx(3) == buffer.SKIP_SAVE_SECONDS
    for module in (buffer, remembered):
        monkeypatch.setattr(module, "SKIP_SAVE_SECONDS", 0.3)
    return 0.3


@pytest.fixture
def producer(outbox: Outbox, engine: Engine) -> Producer:
    return Producer(outbox, engine)


@pytest.fixture(scope="session")
def shared_async_engine(migrated_url: URL) -> AsyncEngine:
    """For all tests of this worker: the statements it has compiled are worth keeping."""
    return create_async_engine(migrated_url.set(drivername="postgresql+asyncpg"))


@pytest.fixture
async def async_engine(
    shared_async_engine: AsyncEngine, engine: Engine
) -> AsyncIterator[AsyncEngine]:
    """What the program gives to its consumer, without a connection of another test's loop."""
    yield shared_async_engine
    await shared_async_engine.dispose()


@pytest.fixture
def consuming(
    async_engine: AsyncEngine, database: Database, caplog: pytest.LogCaptureFixture
) -> Consuming:
    """``async with consuming(outbox, **options) as running``: options of the consumer, and fields
    of its settings."""
    return Consumers(async_engine, database, caplog).consuming


@pytest.fixture
def run_until(outbox: Outbox, consuming: Consuming) -> RunUntil:
    """``running = await run_until(done=60, dead=1)``: a consumer ran until so many deliveries of
    the listener "billing" were settled so, and has stopped."""

    async def run(*, done: int = 0, dead: int = 0, **options: Any) -> Running:
        async with consuming(outbox, **options) as running:
            if dead:
                await running.dead("billing", dead)
            if done:
                await running.done("billing", done)
        return running

    return run


def make_consumer(
    outbox: Outbox, database: str | URL | Engine | AsyncEngine, **options: Any
) -> tuple[Consumer, Recorder]:
    """A consumer for tests, not running yet. Without notifications it looks 20 times a second."""
    given = {name: options.pop(name) for name in _SETTINGS & options.keys()}
    given = {"poll_interval_without_notify": timedelta(milliseconds=50), **given}
    recorder = Recorder()
    settings = ConsumerSettings(**given)
    return Consumer(outbox, database, settings=settings, observers=[recorder], **options), recorder


class Consumers:
    """The consumers of one test."""

    def __init__(
        self, engine: AsyncEngine, database: Database, log: pytest.LogCaptureFixture
    ) -> None:
        self._engine = engine
        self._database = database
        self._log = log
        self._running = 0

    @asynccontextmanager
    async def consuming(self, outbox: Outbox, **options: Any) -> AsyncIterator[Running]:
        tasks_before = asyncio.all_tasks()
        consumer, recorder = make_consumer(outbox, options.pop("engine", self._engine), **options)
        running = Running(consumer, recorder)
        self._running += 1
        try:
            async with anyio.create_task_group() as tasks:
                await tasks.start(self._run, running)
                yield running
                if not running.stopped.is_set():
                    consumer.stop()
                with anyio.fail_after(PATIENCE):
                    await running.stopped.wait()
        except BaseExceptionGroup as group:
            if len(group.exceptions) == 1:
                raise group.exceptions[0] from None
            raise
        finally:
            self._running -= 1
        await self._check_what_is_left(consumer)
        if not self._running:
            assert asyncio.all_tasks() <= tasks_before

    async def _run(self, running: Running, *, task_status: anyio.abc.TaskStatus[None]) -> None:
        try:
            await running.consumer.run(task_status=task_status)
        finally:
            running.stopped.set()

    async def _check_what_is_left(self, consumer: Consumer) -> None:
        held = what_is_held(consumer.outbox.tables, ":owner")
        assert self._database.rows(held, owner=consumer.owner) == []
        announced = "SELECT owner FROM outbox_consumers WHERE owner = :owner"
        assert self._database.rows(announced, owner=consumer.owner) == []
        if not self._running:
            assert self._engine.pool.checkedout() == 0  # type: ignore[attr-defined]  # a QueuePool
            # A server process ends a moment after its client has said goodbye.
            await comes_true(lambda: self._database.backends() == [])
            # A handler that is cancelled in the middle of a statement costs its connection, which
            # SQLAlchemy's pool reports as an error; the command leaves that out of its log too.
            # A consumer's own lines are its observations, and a dead letter is one of them.
            others = ("sqlalchemy.pool", program.NAME)
            errors = [each for each in self._log.records if each.levelno >= logging.ERROR]
            assert [each for each in errors if not each.name.startswith(others)] == []


@pytest.fixture(scope="module")
def kept_engine(migrated_url: URL) -> Iterator[Engine]:
    from .kept import migrated  # noqa: PLC0415 - it needs what is above

    with migrated(migrated_url) as engine:
        yield engine


@pytest.fixture
def kept(kept_engine: Engine, migrated_url: URL) -> Kept:
    """A log with partitions of ten ids, in a schema of its own."""
    from .kept import emptied_log  # noqa: PLC0415 - it imports this module

    return emptied_log(kept_engine, migrated_url)
