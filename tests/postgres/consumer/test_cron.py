"""Recurring events: one event per tick, whatever consumers do and whatever becomes of them.

No test waits for a tick of the clock: ``last_tick`` in the database is set back, which makes ticks
due. The crons tick every hour, the last time half an hour ago (``hour``), so that no tick comes
while a test runs. ``alarms`` stands in for the sleep until the next one.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import anyio
import pytest
from sqlalchemy import Engine, text

from sa_outbox import Event, Outbox
from sa_outbox.clock import Clock
from sa_outbox.clock import clock as the_clock
from sa_outbox.consumer.connection.connections import Connections, Query
from sa_outbox.consumer.services import crons as cron_service
from sa_outbox.observe import ConsumerStarted, DatabaseAway, DatabaseBack, Place, Ticked
from sa_outbox.sql.listener import crons
from tests.support import comes_true

from .conftest import Consuming, Database, make_consumer

pytestmark = [pytest.mark.anyio, pytest.mark.woken_by("notify")]

HOUR = timedelta(hours=1)
NAME = "maintenance.purge"


class Alarms:
    """Stands in for the bell: nobody wakes before the test says so."""

    def __init__(self) -> None:
        self.pauses: list[float] = []
        self._rung = anyio.Event()

    async def wait(self, pause: float) -> None:
        self.pauses.append(pause)
        await self._rung.wait()

    async def ring(self) -> None:
        """Wake who sleeps, and return when they sleep again."""
        await comes_true(lambda: self.pauses)
        before = len(self.pauses)
        self.wake()
        await comes_true(lambda: len(self.pauses) > before)

    def wake(self) -> None:
        self._rung.set()
        self._rung = anyio.Event()


@pytest.fixture
def alarms(monkeypatch: pytest.MonkeyPatch) -> Alarms:
    made = Alarms()
    monkeypatch.setattr(cron_service, "AutoResetEvent", lambda: made)
    return made


@pytest.fixture
def outbox(outbox: Outbox) -> Outbox:
    @outbox.listener("cleaning", on="maintenance.*")
    async def clean(event: Event[Any]) -> None:
        pass

    return outbox


@pytest.fixture
def clock() -> Iterator[Clock]:
    yield the_clock
    the_clock.reset()


@pytest.fixture
def hour() -> datetime:
    """The last tick."""
    return datetime.now(UTC).replace(second=0, microsecond=0) - HOUR / 2


def purge_every_hour(outbox: Outbox, hour: datetime, **options: Any) -> None:
    outbox.cron(f"{hour.minute} * * * *", NAME, {"days": 30}, **{"time_zone": "UTC", **options})


def two_crons(outbox: Outbox, hour: datetime, database: Database) -> None:
    """Both are due; the first is ``a``, and its event ``a.refused``."""
    outbox.cron(f"{hour.minute} * * * *", "a.refused", name="a", time_zone="UTC")
    purge_every_hour(outbox, hour)
    for name in ("a", NAME):
        set_last_tick(database, hour - HOUR, name)


def set_last_tick(database: Database, tick: datetime, name: str = NAME) -> None:
    database.rows(
        "INSERT INTO outbox_crons (name, last_tick) VALUES (:name, :tick)"
        " ON CONFLICT (name) DO UPDATE SET last_tick = :tick",
        name=name,
        tick=tick,
    )


def last_tick(database: Database, name: str = NAME) -> datetime:
    found: datetime = database.value(
        "SELECT last_tick FROM outbox_crons WHERE name = :name", name=name
    )
    return found


def headers(database: Database) -> list[dict[str, str]]:
    """Of all events, in the order of the log."""
    return [row.headers for row in database.rows("SELECT headers FROM outbox ORDER BY id")]


def key_of(tick: datetime) -> str:
    """The idempotency key of the event, which it also has as a header."""
    return f"{NAME}:{tick.isoformat()}"


def ticks(database: Database) -> list[datetime]:
    return [datetime.fromisoformat(each["tick"]) for each in headers(database)]


@contextmanager
def row_locked(engine: Engine) -> Iterator[None]:
    """Somebody is writing the events of the cron."""
    with engine.begin() as connection:
        connection.execute(text("SELECT FROM outbox_crons FOR UPDATE"))
        yield


REFUSING = {
    "a statement timeout": "RAISE query_canceled",
    "a lock timeout": "RAISE lock_not_available",
    "a code of the trigger's own": "RAISE 'not today' USING ERRCODE = 'OB001'",
    "a constraint": "RAISE check_violation",
}
"""What a trigger on the log does to the events of one cron."""


@contextmanager
def refused_to(event_type: str, database: Database, how: str) -> Iterator[None]:
    database.rows(
        "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS"
        f" $$BEGIN IF NEW.event_type = '{event_type}' THEN {REFUSING[how]}; END IF;"
        " RETURN NEW; END$$"
    )
    database.rows(
        "CREATE TRIGGER refuses BEFORE INSERT ON outbox FOR EACH ROW EXECUTE FUNCTION refuse()"
    )
    try:
        yield
    finally:
        database.rows("DROP FUNCTION refuse() CASCADE")


@asynccontextmanager
async def held_before_its_commit(database: Database) -> AsyncIterator[None]:
    """Who adds events stops between writing them and the commit, until this ends."""
    database.rows(
        "CREATE FUNCTION wait_for_the_test() RETURNS trigger LANGUAGE plpgsql AS"
        " $$BEGIN PERFORM pg_advisory_xact_lock(4711); RETURN NEW; END$$"
    )
    database.rows(
        "CREATE TRIGGER waits BEFORE UPDATE ON outbox_crons FOR EACH ROW"
        " EXECUTE FUNCTION wait_for_the_test()"
    )
    try:
        with database.engine.begin() as connection:
            connection.execute(text("SELECT pg_advisory_xact_lock(4711)"))
            yield
    finally:
        # In a thread: somebody in this loop may have to end first.
        await anyio.to_thread.run_sync(database.rows, "DROP FUNCTION wait_for_the_test() CASCADE")


@pytest.mark.woken_by("notify", "poll")
class TestOneEventPerTick:
    async def test_the_event_of_a_tick_comes_to_its_listener(
        self, outbox: Outbox, hour: datetime, database: Database, consuming: Consuming
    ) -> None:
        got: list[Event[Any]] = []

        @outbox.listener("purging", on=NAME)
        async def purge(event: Event[Any]) -> None:
            got.append(event)

        purge_every_hour(outbox, hour, key="all", tenant="acme", headers={"a": "b"}, priority=3)
        set_last_tick(database, hour - HOUR)
        async with consuming(outbox) as running:
            await running.done("purging")
            told = await running.recorder.seen(Ticked)

        assert told == [Ticked(NAME, hour, 0)]
        assert got[0].payload == {"days": 30}
        assert (got[0].key, got[0].tenant, got[0].priority) == ("all", "acme", 3)
        tick = {"cron": NAME, "tick": hour.isoformat()}
        assert got[0].headers == {"a": "b", **tick, "idempotency_key": key_of(hour)}
        assert last_tick(database) == hour

    async def test_many_consumers_that_wake_at_once_add_one_event_for_each_tick(
        self, outbox: Outbox, hour: datetime, database: Database, async_engine: Any
    ) -> None:
        purge_every_hour(outbox, hour, missed="all")
        set_last_tick(database, hour - 3 * HOUR)
        made = [make_consumer(outbox, async_engine) for _ in range(4)]
        async with anyio.create_task_group() as tasks:
            with row_locked(database.engine):
                for consumer, _ in made:
                    tasks.start_soon(consumer.run)
                await comes_true(lambda: len(database.waiting_backends()) == 4)
            for _, recorder in made:
                await recorder.seen(ConsumerStarted)
            await comes_true(lambda: len(ticks(database)) == 3)
            for consumer, _ in made:
                await consumer.drain()  # started is: all has been done that was due
                consumer.stop()

        assert ticks(database) == [hour - 2 * HOUR, hour - HOUR, hour]
        assert sum(len(recorder.of(Ticked)) for _, recorder in made) == 3

    async def test_a_consumer_that_comes_later_finds_nothing_to_do(
        self, outbox: Outbox, hour: datetime, database: Database, consuming: Consuming
    ) -> None:
        purge_every_hour(outbox, hour)
        set_last_tick(database, hour - HOUR)
        async with consuming(outbox) as first, consuming(outbox) as second:
            await first.recorder.seen(Ticked)
            await second.listening()

        assert len(ticks(database)) == 1
        assert second.recorder.of(Ticked) == []

    async def test_draining_handles_what_is_due(
        self, outbox: Outbox, hour: datetime, database: Database, async_engine: Any
    ) -> None:
        """As a run with --once does."""
        purge_every_hour(outbox, hour)
        set_last_tick(database, hour - HOUR)
        consumer, recorder = make_consumer(outbox, async_engine)

        await consumer.drain()

        assert len(recorder.of(Ticked)) == 1
        assert database.listener("cleaning").last_processed_id == 1

    async def test_crons_are_added_for_on_their_own(
        self, outbox: Outbox, hour: datetime, database: Database, consuming: Consuming
    ) -> None:
        purge_every_hour(outbox, hour)
        purge_every_hour(outbox, hour, name="second")
        purge_every_hour(outbox, hour, name="third")
        set_last_tick(database, hour - HOUR)
        set_last_tick(database, hour - 2 * HOUR, "second")
        set_last_tick(database, hour, "third")
        async with consuming(outbox) as running:
            told = await running.recorder.seen(Ticked, times=2)

        assert sorted(told, key=lambda each: each.name) == [
            Ticked(NAME, hour, 0),
            Ticked("second", hour, 1),
        ]
        assert len(ticks(database)) == 2

    async def test_more_than_one_statement_can_hold_is_one_transaction_all_the_same(
        self,
        outbox: Outbox,
        hour: datetime,
        database: Database,
        consuming: Consuming,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        monkeypatch.setattr(cron_service, "PORTION", 1000)
        purge_every_hour(outbox, hour, missed="all")
        set_last_tick(database, hour - 100 * HOUR)
        async with consuming(outbox) as running:
            await running.recorder.seen(Ticked, times=100)

        assert ticks(database) == [hour - n * HOUR for n in reversed(range(100))]
        transactions = database.value("SELECT count(DISTINCT CAST(xmin AS text)) FROM outbox")
        assert transactions == 1


class TestMissedTicks:
    async def test_one_event_stands_for_all(
        self, outbox: Outbox, hour: datetime, database: Database, consuming: Consuming
    ) -> None:
        purge_every_hour(outbox, hour)
        set_last_tick(database, hour - 5 * HOUR)
        async with consuming(outbox) as running:
            await running.recorder.seen(Ticked, tick=hour, missed=4)

        tick = {"cron": NAME, "tick": hour.isoformat(), "missed": "4"}
        assert headers(database) == [{**tick, "idempotency_key": key_of(hour)}]

    async def test_skipped_ticks_add_nothing_and_are_counted_by_the_next(
        self,
        outbox: Outbox,
        hour: datetime,
        database: Database,
        consuming: Consuming,
        alarms: Alarms,
    ) -> None:
        purge_every_hour(outbox, hour, missed="skip")
        set_last_tick(database, hour - 5 * HOUR)
        async with consuming(outbox):
            await alarms.ring()

        assert ticks(database) == []
        assert last_tick(database) == hour - 5 * HOUR

        again = Outbox(notify=outbox.settings.notify)
        again.listener("cleaning", on="*")(_ignore)
        again.cron("* * * * *", NAME, time_zone="UTC", missed="skip")
        async with consuming(again) as running:
            told = await running.recorder.seen(Ticked)

        assert told[0].missed >= 5 * 60
        assert len(ticks(database)) == 1

    async def test_all_are_made_up_for_the_last_thousand_at_most(
        self, outbox: Outbox, hour: datetime, database: Database, consuming: Consuming
    ) -> None:
        purge_every_hour(outbox, hour, missed="all")
        set_last_tick(database, hour - 1003 * HOUR)
        async with consuming(outbox) as running:
            await running.recorder.seen(Ticked, times=1000)

        assert ticks(database) == [hour - n * HOUR for n in reversed(range(1000))]
        assert headers(database)[0]["missed"] == "3"
        assert last_tick(database) == hour


async def _ignore(event: Event[Any]) -> None:
    pass


class TestBeginning:
    async def test_a_new_cron_begins_with_its_next_tick(
        self,
        outbox: Outbox,
        hour: datetime,
        database: Database,
        consuming: Consuming,
        alarms: Alarms,
    ) -> None:
        purge_every_hour(outbox, hour)
        before = database.value("SELECT clock_timestamp()")
        async with consuming(outbox):
            await alarms.ring()

        assert ticks(database) == []
        assert before < last_tick(database) < database.value("SELECT clock_timestamp()")

    async def test_starting_again_does_not_begin_anew(
        self, outbox: Outbox, hour: datetime, database: Database, consuming: Consuming
    ) -> None:
        purge_every_hour(outbox, hour)
        async with consuming(outbox):
            begun = last_tick(database)
        async with consuming(outbox):
            pass

        assert last_tick(database) == begun

    async def test_a_changed_expression_goes_on_from_the_last_tick(
        self, outbox: Outbox, hour: datetime, database: Database, consuming: Consuming
    ) -> None:
        purge_every_hour(outbox, hour, missed="all")
        set_last_tick(database, hour - HOUR)
        async with consuming(outbox) as running:
            await running.recorder.seen(Ticked)
        changed = Outbox(notify=outbox.settings.notify)
        changed.listener("cleaning", on="*")(_ignore)
        twenty = timedelta(minutes=20)
        minutes = ",".join(str((hour + n * twenty).minute) for n in range(3))
        changed.cron(f"{minutes} * * * *", NAME, time_zone="UTC", missed="all")
        async with consuming(changed) as running:
            await running.recorder.seen(Ticked)

        assert ticks(database) == [hour, hour + twenty]

    async def test_a_row_that_was_deleted_is_a_new_beginning(
        self,
        outbox: Outbox,
        hour: datetime,
        database: Database,
        consuming: Consuming,
        alarms: Alarms,
    ) -> None:
        purge_every_hour(outbox, hour)
        set_last_tick(database, hour)
        async with consuming(outbox):
            database.rows("DELETE FROM outbox_crons")
            await alarms.ring()
            await alarms.ring()

        assert ticks(database) == []
        assert last_tick(database) > hour + HOUR / 3


@pytest.mark.woken_by("notify", "poll")
class TestWaking:
    async def test_a_tick_that_becomes_due_while_it_runs_adds_its_event(
        self,
        outbox: Outbox,
        hour: datetime,
        database: Database,
        consuming: Consuming,
        alarms: Alarms,
    ) -> None:
        purge_every_hour(outbox, hour)
        async with consuming(outbox) as running:
            await running.listening()
            set_last_tick(database, hour - HOUR)
            await alarms.ring()
            await running.done("cleaning")
            await alarms.ring()

        assert len(ticks(database)) == 1

    async def test_it_sleeps_until_the_next_tick_by_the_clock_of_the_database(
        self,
        outbox: Outbox,
        hour: datetime,
        database: Database,
        consuming: Consuming,
        alarms: Alarms,
    ) -> None:
        purge_every_hour(outbox, hour)
        left = hour + HOUR - database.value("SELECT clock_timestamp()")
        async with consuming(outbox):
            await comes_true(lambda: alarms.pauses)

        assert left.total_seconds() - 10 < alarms.pauses[0] <= left.total_seconds()

    async def test_it_sleeps_an_hour_at_most(
        self, outbox: Outbox, database: Database, consuming: Consuming, alarms: Alarms
    ) -> None:
        outbox.cron("0 0 29 2 *", NAME, time_zone="UTC")
        async with consuming(outbox):
            await alarms.ring()

        assert all(3000 < pause <= 3600 for pause in alarms.pauses)

    async def test_while_it_sleeps_it_sends_nothing(
        self,
        outbox: Outbox,
        hour: datetime,
        consuming: Consuming,
        alarms: Alarms,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        sent = record_statements(monkeypatch)
        purge_every_hour(outbox, hour)
        async with consuming(outbox) as running:
            await running.listening()
            at_the_start = [each for each in sent if "outbox_crons" in each]
            await running.consumer.drain()
            still = [each for each in sent if "outbox_crons" in each]
            await alarms.ring()
            woken = [each for each in sent if "outbox_crons" in each]

        assert len(at_the_start) == 2  # where it stands, and the registration
        assert still == at_the_start
        assert len(woken) == len(at_the_start) + 1

    async def test_without_crons_nothing_is_asked(
        self, outbox: Outbox, consuming: Consuming, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        sent = record_statements(monkeypatch)
        async with consuming(outbox) as running:
            await running.listening()

        assert sent
        assert not any("outbox_crons" in each for each in sent)

    async def test_a_clock_that_was_set_back_adds_no_tick_twice(
        self,
        outbox: Outbox,
        hour: datetime,
        database: Database,
        consuming: Consuming,
        alarms: Alarms,
    ) -> None:
        purge_every_hour(outbox, hour)
        set_last_tick(database, hour + 5 * HOUR)
        async with consuming(outbox):
            await alarms.ring()

        assert ticks(database) == []
        assert last_tick(database) == hour + 5 * HOUR
        assert min(alarms.pauses) > 3000


def record_statements(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Those on the consumer's own connections, outside of transactions."""
    sent: list[str] = []
    rows = Connections.rows

    async def recorded(self: Connections, query: Query, /, **values: Any) -> list[Any]:
        sent.append(query.sql)
        return await rows(self, query, **values)

    monkeypatch.setattr(Connections, "rows", recorded)
    return sent


class TestTrouble:
    async def test_a_process_that_dies_in_the_middle_leaves_nothing_and_it_is_done_again(
        self, outbox: Outbox, hour: datetime, database: Database, async_engine: Any
    ) -> None:
        purge_every_hour(outbox, hour, missed="all")
        set_last_tick(database, hour - 3 * HOUR)
        consumer, recorder = make_consumer(outbox, async_engine)
        async with anyio.create_task_group() as tasks:
            async with held_before_its_commit(database):
                tasks.start_soon(consumer.run)
                await comes_true(lambda: len(database.waiting_backends()) == 1)
                (pid,) = database.waiting_backends()
                database.rows("SELECT pg_terminate_backend(:pid, 5000)", pid=pid)

                assert ticks(database) == []
                assert last_tick(database) == hour - 3 * HOUR
            await recorder.seen(DatabaseBack, where=Place("crons"))
            consumer.stop()

        assert recorder.of(DatabaseAway, where=Place("crons"))
        assert ticks(database) == [hour - 2 * HOUR, hour - HOUR, hour]
        assert last_tick(database) == hour

    async def test_a_row_that_stays_locked_is_waited_for_with_growing_pauses(
        self, outbox: Outbox, hour: datetime, database: Database, consuming: Consuming
    ) -> None:
        purge_every_hour(outbox, hour)
        set_last_tick(database, hour - HOUR)
        locked = database.engine.connect()
        locked.execute(text("SELECT FROM outbox_crons FOR UPDATE"))
        async with consuming(outbox, probe_timeout=timedelta(seconds=0.5)) as running:
            away = await running.recorder.seen(DatabaseAway, where=Place("crons"), times=2)
            locked.close()
            await running.recorder.seen(Ticked)
            await running.recorder.seen(DatabaseBack, where=Place("crons"))

        assert away[1].retry_in > away[0].retry_in
        assert len(ticks(database)) == 1

    async def test_a_consumer_that_is_stopped_while_it_waits_leaves_nothing_behind(
        self,
        outbox: Outbox,
        hour: datetime,
        database: Database,
        consuming: Consuming,
        alarms: Alarms,
    ) -> None:
        purge_every_hour(outbox, hour)
        async with consuming(outbox, probe_timeout=timedelta(seconds=0.5)) as running:
            await comes_true(lambda: alarms.pauses)
            set_last_tick(database, hour - HOUR)
            with row_locked(database.engine):
                alarms.wake()
                await comes_true(database.waiting_backends)
                await running.stop()

        assert ticks(database) == []

    @pytest.mark.parametrize("how", REFUSING)
    async def test_what_the_database_has_against_one_cron_holds_up_no_other(
        self, how: str, outbox: Outbox, hour: datetime, database: Database, consuming: Consuming
    ) -> None:
        two_crons(outbox, hour, database)
        with refused_to("a.refused", database, how):
            async with consuming(outbox) as running:
                await running.done("cleaning")
                await running.recorder.seen(DatabaseAway, where=Place("crons"), times=2)
                assert last_tick(database, "a") == hour - HOUR

        assert [each.name for each in running.recorder.of(Ticked)] == [NAME]

    async def test_nor_does_a_lock_on_the_row_of_one(
        self, outbox: Outbox, hour: datetime, database: Database, consuming: Consuming
    ) -> None:
        two_crons(outbox, hour, database)
        locked = database.engine.connect()
        locked.execute(text("SELECT FROM outbox_crons WHERE name = 'a' FOR UPDATE"))
        async with consuming(outbox, probe_timeout=timedelta(seconds=0.5)) as running:
            await running.done("cleaning")
            locked.close()

        assert running.recorder.of(DatabaseAway, where=Place("crons"))[0].error == "TimeoutError"

    @pytest.mark.woken_by("notify")
    async def test_what_others_have_added_is_notified_all_the_same(
        self,
        outbox: Outbox,
        hour: datetime,
        database: Database,
        consuming: Consuming,
        alarms: Alarms,
    ) -> None:
        two_crons(outbox, hour, database)
        set_last_tick(database, hour)
        set_last_tick(database, hour, "a")
        with refused_to("a.refused", database, "a statement timeout"):
            async with consuming(outbox, poll_interval=HOUR, probe_interval=HOUR) as running:
                await running.listening()
                for name in ("a", NAME):
                    set_last_tick(database, hour - HOUR, name)
                alarms.wake()
                await running.done("cleaning")

    async def test_a_cron_that_is_held_up_makes_no_other_late_and_keeps_nobody_busy(
        self,
        outbox: Outbox,
        hour: datetime,
        database: Database,
        consuming: Consuming,
        alarms: Alarms,
        clock: Clock,
    ) -> None:
        two_crons(outbox, hour, database)
        clock.freeze(hour + HOUR - timedelta(seconds=1))  # the others tick after one
        with refused_to("a.refused", database, "a statement timeout"):
            async with consuming(outbox) as running:
                for _ in range(7):  # the pauses of an outage double, up to five seconds
                    await alarms.ring()

        away = running.recorder.of(DatabaseAway, where=Place("crons"))
        assert away[-1].retry_in == 5
        assert alarms.pauses[0] >= 0.05
        assert all(0.5 < pause <= 1 for pause in alarms.pauses[5:])

    async def test_its_own_ticks_do_not_shorten_the_pauses(
        self,
        outbox: Outbox,
        hour: datetime,
        database: Database,
        consuming: Consuming,
        alarms: Alarms,
        clock: Clock,
    ) -> None:
        outbox.cron(f"{hour.minute} * * * *", "a.refused", name="a", time_zone="UTC")
        set_last_tick(database, hour - HOUR, "a")
        clock.freeze(hour + HOUR - timedelta(milliseconds=10))
        with refused_to("a.refused", database, "a statement timeout"):
            async with consuming(outbox):
                for _ in range(6):
                    await alarms.ring()

        assert alarms.pauses[-1] >= 2.5

    async def test_a_process_that_sleeps_in_the_middle_does_not_stop_the_others(
        self, outbox: Outbox, hour: datetime, database: Database
    ) -> None:
        set_last_tick(database, hour - HOUR)
        claim = crons.claim(outbox.tables)
        with database.engine.connect() as frozen, database.engine.begin() as other:
            frozen.execute(claim, {"name": NAME, "patience": "100ms"})

            claimed = other.execute(claim, {"name": NAME, "patience": "30s"}).one()

            assert claimed.now - claimed.last_tick > HOUR
            setting = text("SELECT current_setting('idle_in_transaction_session_timeout')")
            assert other.scalar(setting) == "30s"
            frozen.invalidate()
        with database.engine.begin() as afterwards:
            assert afterwards.scalar(setting) == "0"
