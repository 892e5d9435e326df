"""Retention by single events: a log that never fills a partition is emptied all the same.

``test_retention.py`` has whole partitions.
"""

from __future__ import annotations

import json
import random
import threading
from datetime import timedelta
from typing import Any

import anyio
import pytest
from click.testing import CliRunner
from sqlalchemy import Engine, text

from sa_outbox import Event, Outbox
from sa_outbox.cli import main
from sa_outbox.consumer import ConsumerSettings
from sa_outbox.consumer.upkeep.command import preview
from sa_outbox.observe import (
    AttemptFailed,
    DatabaseAway,
    EventsGone,
    HorizonRead,
    PartitionMade,
    RowsPurged,
)
from sa_outbox.operations.listeners import rewind_listener
from sa_outbox.operations.operator import Operator
from sa_outbox.policy.order import Order
from sa_outbox.schema import problems
from sa_outbox.settings import Names
from sa_outbox.sql.log import deletion, horizon, partitions
from tests.support import comes_true

from .conftest import Consuming, Database, Producer
from .kept import KEPT, SETTINGS, Kept

pytestmark = [pytest.mark.anyio, pytest.mark.woken_by("poll")]

AT_ONCE: dict[str, Any] = {
    "retention": timedelta(microseconds=1),
    "maintenance_interval": timedelta(milliseconds=20),
    "lease_duration": timedelta(seconds=12),  # gaps that are closed are saved after a third of it
}
"""As soon as every listener has passed an event, it may go."""
LATE = 60.0


def listen(outbox: Outbox) -> dict[str, list[int]]:
    """A listener of each order; what each got."""
    got: dict[str, list[int]] = {"total": [], "key": [], "queue": []}
    for name, options in (
        ("total", {"order": "total", "gap_wait": None}),
        ("key", {"order": "key"}),
        ("queue", {"order": "none"}),
    ):

        async def handle(event: Event[Any], name: str = name) -> None:
            got[name].append(event.payload["n"])

        outbox.listener(name, on="*", **options)(handle)
    return got


def count(database: Database) -> int:
    found: int = database.value("SELECT count(*) FROM outbox")
    return found


def is_idle(database: Database, position: int) -> bool:
    """Everything up to *position* is settled and saved."""
    rows = database.rows("SELECT last_processed_id AS position, gaps FROM outbox_listeners")
    return all(row.position == position and row.gaps == [] for row in rows)


class TestASmallLog:
    """Of the usual size: four partitions of a million ids."""

    async def test_a_log_of_twenty_events_is_empty_after_its_retention(
        self, outbox: Outbox, producer: Producer, consuming: Consuming, database: Database
    ) -> None:
        got = listen(outbox)
        time_passes = "UPDATE outbox SET created_at = created_at - interval '1 hour'"
        settings = {**AT_ONCE, "retention": timedelta(hours=1)}
        async with consuming(outbox, **settings) as running:
            await running.listening()
            producer.add(*range(20))
            await running.consumer.drain()
            assert count(database) == 20, "they have their time"
            database.rows(time_passes)
            await comes_true(lambda: count(database) == 0, within=LATE)

            # Woken by a notification, or a poll: what comes now is found as ever.
            producer.add(*range(20, 40))
            await comes_true(lambda: all(len(each) == 40 for each in got.values()), within=LATE)
            assert count(database) == 20
            database.rows(time_passes)
            await comes_true(lambda: count(database) == 0, within=LATE)
            await running.consumer.drain()
            assert running.recorder.of(DatabaseAway) == []
            heights = [each.highest for each in running.recorder.of(HorizonRead)]

        assert got["total"] == list(range(40))
        assert sorted(got["key"]) == sorted(got["queue"]) == list(range(40))
        assert heights == sorted(heights), "what was deleted was there"
        assert heights[-1] == 40
        with database.engine.connect() as connection:
            assert problems(connection, Names()) == []

    async def test_a_consumer_that_starts_on_an_emptied_log_goes_on_where_it_was(
        self, outbox: Outbox, producer: Producer, consuming: Consuming, database: Database
    ) -> None:
        got = listen(outbox)
        producer.add(*range(20))
        async with consuming(outbox, **AT_ONCE) as running:
            await running.consumer.drain()
            await comes_true(lambda: count(database) == 0, within=LATE)
            await comes_true(lambda: is_idle(database, 20), within=LATE)

        late: dict[str, list[int]] = {"beginning": [], "now": []}
        for name in ("beginning", "now"):

            async def handle(event: Event[Any], name: str = name) -> None:
                late[name].append(event.payload["n"])

            outbox.listener(name, on="*", start=name)(handle)
        async with consuming(outbox, **AT_ONCE) as running:
            await running.listening()
            assert running.recorder.of(HorizonRead)[-1].highest == 20
            producer.add(*range(20, 40))
            await running.consumer.drain()
            await comes_true(lambda: count(database) == 0, within=LATE)

        assert got["total"] == list(range(40))
        assert sorted(got["key"]) == sorted(got["queue"]) == list(range(40))
        assert [sorted(each) for each in late.values()] == [list(range(20, 40))] * 2

    @pytest.mark.usefixtures("saved_often")
    @pytest.mark.parametrize("commits", [True, False], ids=["commits", "rolls back"])
    @pytest.mark.parametrize("restarts", [False, True], ids=["", "restarted"])
    async def test_an_event_that_is_still_being_written_is_not_lost(
        self,
        outbox: Outbox,
        producer: Producer,
        consuming: Consuming,
        database: Database,
        commits: bool,
        restarts: bool,
    ) -> None:
        """Its id is below those that have had their time."""
        got = listen(outbox)
        ended = threading.Event()
        written = threading.Event()

        def write_slowly() -> None:
            with producer.open() as session:
                session.add_event("order.placed", {"n": 10})
                session.flush()
                written.set()
                ended.wait(LATE)
                if not commits:
                    session.rollback()

        writer = threading.Thread(target=write_slowly, daemon=True)
        async with consuming(outbox, **AT_ONCE) as running:
            producer.add(*range(10))
            await running.consumer.drain()
            writer.start()
            await comes_true(written.is_set, within=LATE)
            producer.add(*range(11, 21))
            await comes_true(lambda: len(got["queue"]) == 20, within=LATE)
            await comes_true(lambda: count(database) == 10, within=LATE)
            if not restarts:
                ended.set()
                await self._everything_goes(database, got, commits=commits)
        if restarts:
            async with consuming(outbox, **AT_ONCE) as running:
                await running.recorder.seen(HorizonRead, times=2, within=LATE)
                ended.set()
                await self._everything_goes(database, got, commits=commits)
        await anyio.to_thread.run_sync(writer.join, LATE)

        expected = [n for n in range(21) if commits or n != 10]
        assert got["total"] == expected
        assert sorted(got["key"]) == sorted(got["queue"]) == expected

    async def _everything_goes(
        self, database: Database, got: dict[str, list[int]], *, commits: bool
    ) -> None:
        expected = 20 + commits
        await comes_true(lambda: all(len(each) == expected for each in got.values()), within=LATE)
        await comes_true(lambda: is_idle(database, 21), within=LATE)
        await comes_true(lambda: count(database) == 0, within=LATE)

    async def test_nothing_is_lost_while_events_go_as_soon_as_they_are_settled(
        self, outbox: Outbox, producer: Producer, consuming: Consuming, database: Database
    ) -> None:
        got = listen(outbox)
        committed: list[int] = []

        def write(writer: int) -> None:
            chance = random.Random(writer)
            for number in range(40):
                n = 1000 * writer + number
                rolls_back = chance.random() < 0.25
                with producer.open() as session:
                    session.add_event("order.placed", {"n": n}, key=str(writer))
                    session.flush()
                    session.execute(text("SELECT pg_sleep(:s)"), {"s": chance.random() / 20})
                    if rolls_back:
                        session.rollback()
                if not rolls_back:
                    committed.append(n)

        async with consuming(outbox, **AT_ONCE) as running:
            async with anyio.create_task_group() as tasks:
                for writer in range(4):
                    tasks.start_soon(anyio.to_thread.run_sync, write, writer)
            await running.consumer.drain()
            await comes_true(lambda: count(database) == 0, within=LATE)
            assert running.recorder.of(AttemptFailed) == []

            def purged() -> list[int]:  # told when the round has come to its end
                return [each.rows for each in running.recorder.of(RowsPurged, table="outbox")]

            await comes_true(lambda: sum(purged()) == len(committed), within=LATE)
            assert len(purged()) > 1, "they went while others were written"

        for each in got.values():
            assert sorted(each) == sorted(committed)
        for writer in range(4):
            for name in ("total", "key"):
                own = [n for n in got[name] if n // 1000 == writer]
                assert own == sorted(own)


class TestWhatStays:
    async def test_what_is_young_stays(self, kept: Kept) -> None:
        kept.write(3, hours_ago=2)
        kept.write(4, hours_ago=0)
        kept.register("billing", 7)

        await kept.prune()

        assert kept.ids == [4, 5, 6, 7]
        assert kept.heard(RowsPurged) == [RowsPurged("outbox", 3)]

    async def test_of_a_full_partition_they_wait_a_tenth_longer_to_be_dropped_with_it(
        self, kept: Kept
    ) -> None:
        kept.write(4, hours_ago=1.2)
        kept.write(4, hours_ago=1.05)
        kept.write(4, hours_ago=0)
        kept.register("billing", 12)

        await kept.prune()

        assert kept.ids == list(range(5, 13))

    async def test_without_a_listener_nobody_has_passed_anything(self, kept: Kept) -> None:
        kept.write(5)

        await kept.prune()

        assert kept.ids == list(range(1, 6))

    async def test_for_ever_is_for_ever(self, kept: Kept) -> None:
        kept.write(5, hours_ago=90_000)
        kept.register("billing", 5)

        await kept.prune(ConsumerSettings(retention=None))

        assert kept.ids == list(range(1, 6))

    @pytest.mark.parametrize("why", ["cursor", "gap", "range"])
    async def test_what_is_above_anything_unsettled_stays(self, kept: Kept, why: str) -> None:
        kept.write(8)
        kept.register("billing", 8)
        kept.register("slow", 3 if why == "cursor" else 8)
        match why:
            case "gap":
                kept.rows("UPDATE outbox_listeners SET gaps = '[[4,5]]' WHERE name = 'slow'")
            case "range":
                kept.rows(
                    "INSERT INTO outbox_ranges (listener, last_processed_id, gaps)"
                    " VALUES ('slow', 8, '[[4,4],[7,8]]')"
                )

        (held,) = await kept.prune()

        assert kept.ids == [4, 5, 6, 7, 8]
        assert (held.listener, held.position, held.why) == ("slow", 4, (why,))
        assert (held.partitions, held.ids) == (1, 8)

    async def test_a_delivery_keeps_its_own_event_and_no_other(self, kept: Kept) -> None:
        kept.write(25)
        kept.register("billing", 25)
        for position, state in ((3, "scheduled"), (15, "parked"), (16, "behind")):
            kept.park("billing", position, state)
        kept.park("billing", 17, "cancelled")

        await kept.prune()

        assert kept.ids == [3, 15, 16]
        assert [row.position for row in kept.deliveries("billing")] == [3, 15, 16]

    async def test_many_that_stay_do_not_keep_those_above_them(
        self, kept: Kept, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        from sa_outbox.consumer.upkeep import events as trimmed  # noqa: PLC0415 - its name is taken

        monkeypatch.setattr(trimmed, "ROWS_AT_ONCE", 2)
        kept.write(9)
        kept.register("billing", 9)
        for position in range(1, 6):
            kept.park("billing", position)

        await kept.prune()

        assert kept.ids == [1, 2, 3, 4, 5]

    async def test_a_partition_that_somebody_else_made_is_left_alone(self, kept: Kept) -> None:
        kept.rows("ALTER TABLE outbox_p0 RENAME TO mine")
        kept.write(12)
        kept.register("billing", 12)

        await kept.prune()

        assert kept.ids == list(range(1, 10))


class TestTheLocks:
    async def test_whoever_deletes_does_not_look_like_a_writer(self, kept: Kept) -> None:
        kept.write(5)
        kept.register("billing", 5)
        tables = kept.outbox.tables
        values = {"seconds": KEPT.total_seconds(), "above": 0, "limit": 10}
        with kept.engine.begin() as connection:
            found = connection.execute(deletion.trim(tables, "outbox_p0"), values).one()
            assert found.gone == 5
            with kept.engine.connect() as other:
                assert other.execute(horizon.holders(tables)).all() == []

    async def test_nothing_goes_while_a_listener_is_given_a_lower_cursor(self, kept: Kept) -> None:
        kept.write(5)
        kept.register("billing", 5)
        with kept.engine.begin() as connection:
            operator = Operator(who="ops")
            rewind_listener(connection, kept.outbox.tables, "billing", operator, to="beginning")
            await kept.prune()
            assert kept.ids == [1, 2, 3, 4, 5]

        await kept.prune()

        assert kept.ids == [1, 2, 3, 4, 5], "it needs them now"

    async def test_a_listener_is_registered_when_those_who_delete_are_through(
        self, kept: Kept
    ) -> None:
        from sa_outbox.sql.listener import cursors  # noqa: PLC0415 - for this one

        tables = kept.outbox.tables
        values = {
            "name": "new", "count": 1, "position": 0, "gaps": "[]", "fingerprint": "",
            "types": ["*"], "filter": None, "tenant": None, "order": "key",
        }  # fmt: skip

        def register() -> None:
            with kept.engine.begin() as connection:
                connection.execute(cursors.register(tables), values)

        waits = (
            "SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"
            " AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
        )
        async with anyio.create_task_group() as tasks:
            with kept.engine.begin() as connection:
                assert connection.scalar(partitions.alone(tables))
                tasks.start_soon(anyio.to_thread.run_sync, register)
                await comes_true(lambda: kept.rows(waits), within=LATE)
                assert kept.rows("SELECT name FROM outbox_listeners") == []
        assert kept.listener("new").last_processed_id == 0


class TestTheSizeOfPartitions:
    async def test_it_may_be_changed_before_the_first_event(self, kept: Kept) -> None:
        kept.rows("UPDATE outbox_meta SET partition_size = 4")

        await kept.prune()
        made = [(each.low, each.high) for each in kept.heard(PartitionMade)]
        await kept.prune()

        assert made == [(0, 4), (4, 8)]
        assert len(kept.heard(PartitionMade)) == 2, "the second round finds it done"
        kept.write(9)
        kept.register("billing", 9)
        await kept.prune()
        assert kept.ids == []
        assert kept.partitions == ["outbox_p2", "outbox_p3", "outbox_p4", "outbox_rest"]

    async def test_it_holds_for_all_that_is_above_the_last_event(self, kept: Kept) -> None:
        kept.write(13)
        kept.rows("UPDATE outbox_meta SET partition_size = 8")

        await kept.prune()
        made = [(each.low, each.high) for each in kept.heard(PartitionMade)]
        await kept.prune()

        assert made == [(20, 24), (24, 32)]
        assert len(kept.heard(PartitionMade)) == 2
        assert kept.ids == list(range(1, 14))

    async def test_a_partition_with_an_open_writer_is_left_as_it_is(self, kept: Kept) -> None:
        with kept.producer.open() as session:
            session.add_event("order.placed", {"n": 1})
            session.flush()
            kept.rows("UPDATE outbox_meta SET partition_size = 4")
            await kept.prune()
        assert kept.ids == [1]
        assert "outbox_p0" in kept.partitions


class TestTheCommand:
    def run(self, kept: Kept, *options: str) -> str:
        url = kept.url.set(drivername="postgresql").render_as_string(hide_password=False)
        arguments = ["prune", "--database-url", url, "--schema", "kept", *options]
        result = CliRunner().invoke(main, arguments)
        assert result.exit_code == 0, result.output
        return result.output

    def test_it_says_what_would_go_what_went_and_what_stays(self, kept: Kept) -> None:
        kept.write(8)
        kept.register("billing", 8)
        kept.register("slow", 5)

        foreseen = self.run(kept, "--dry-run", "--retention", "0.01")
        left = kept.ids
        done = self.run(kept, "--retention", "0.01")
        again = self.run(kept, "--retention", "0.01")

        assert "would delete 5 expired events" in foreseen
        assert left == list(range(1, 9))
        assert "deleted 5 rows of outbox\n" in done
        assert kept.ids == [6, 7, 8]
        for told in (foreseen, done, again):
            assert "listener slow keeps" in told
            assert "cursor, from id 6 on" in told
        assert "nothing to do" in again

    async def test_the_outlook_counts_them(self, kept: Kept) -> None:
        kept.write(25)
        kept.register("billing", 25)
        kept.park("billing", 24)

        outlook = await preview(kept.outbox, kept.url, SETTINGS)

        assert [one.name for one in outlook.droppable] == ["outbox_p0", "outbox_p1"]
        assert outlook.deletable == 5


class TestEventsThatSomebodyDeleted:
    async def test_their_deliveries_go_and_those_behind_them_are_due(self, kept: Kept) -> None:
        kept.write(9, hours_ago=0)
        kept.register("billing", 9)
        for position, state in ((3, "parked"), (4, "behind"), (5, "parked"), (6, "scheduled")):
            kept.park("billing", position, state)
        kept.rows("UPDATE outbox_deliveries SET key = 'a' WHERE position IN (3, 4)")
        kept.rows("DELETE FROM outbox WHERE id IN (3, 6)")

        await kept.prune()

        left = kept.deliveries("billing")
        assert [(row.position, row.state) for row in left] == [(4, "parked"), (5, "parked")]
        due = kept.value("SELECT due_at <= now() FROM outbox_deliveries WHERE position = 4")
        assert due, "it waits for nobody any more"
        (gone,) = kept.heard(EventsGone)
        assert (gone.listener, gone.deliveries, gone.position) == ("billing", 2, 3)

    async def test_one_in_a_range_is_left_to_whoever_has_it(self, kept: Kept) -> None:
        kept.write(9, hours_ago=0)
        kept.register("billing", 9)
        for position in (3, 4):
            kept.park("billing", position, "scheduled")
        number = kept.value(
            "INSERT INTO outbox_ranges (listener, last_processed_id, gaps)"
            " VALUES ('billing', 3, '[[3,3]]') RETURNING number"
        )
        kept.rows(
            "UPDATE outbox_deliveries SET range = CASE position WHEN 3 THEN :number ELSE 999 END",
            number=number,
        )
        kept.rows("DELETE FROM outbox WHERE id IN (3, 4)")

        await kept.prune()

        assert [row.position for row in kept.deliveries("billing")] == [3]

    async def test_a_replay_comes_from_its_dead_letter(self, kept: Kept) -> None:
        kept.write(3, hours_ago=0)
        kept.register("billing", 3)
        for position in (1, 2):
            kept.park("billing", position)
        letter = kept.value(
            "INSERT INTO outbox_dead_letters (listener, position, event_id, event_type, payload,"
            " event_created_at, reason) SELECT 'billing', 1, event_id, event_type, payload,"
            " created_at, 'attempts' FROM outbox WHERE id = 1 RETURNING id"
        )
        kept.rows(
            "UPDATE outbox_deliveries SET dead_letter = :letter + position - 1", letter=letter
        )
        kept.rows("DELETE FROM outbox WHERE id = 1")

        await kept.prune()

        assert [row.position for row in kept.deliveries("billing")] == [1], "of 2 it is gone"

    @pytest.mark.parametrize("order", ["key", "total", "none"])
    async def test_a_running_consumer_goes_on_with_what_waits_behind_them(
        self,
        outbox: Outbox,
        producer: Producer,
        consuming: Consuming,
        database: Database,
        engine: Engine,
        order: Order,
    ) -> None:
        got: list[int] = []

        async def handle(event: Event[Any]) -> None:
            got.append(event.payload["n"])

        outbox.listener("billing", on="*", order=order)(handle)
        settings = {"maintenance_interval": timedelta(milliseconds=50)}
        lease = {"lease_duration": timedelta(seconds=3)}
        async with consuming(outbox, **settings, **lease) as running:
            producer.add(1, 2, run_at=None, delay=timedelta(hours=1))
            await running.consumer.drain()
            await comes_true(lambda: len(database.deliveries("billing")) == 2, within=LATE)
            database.rows("DELETE FROM outbox WHERE id = (SELECT min(id) FROM outbox)")
            await comes_true(lambda: len(database.deliveries("billing")) == 1, within=LATE)
            database.rows("UPDATE outbox_deliveries SET due_at = clock_timestamp()")
            await comes_true(lambda: database.deliveries("billing") == [], within=LATE)
            producer.add(3)
            await comes_true(lambda: got == [2, 3], within=LATE)
            ranges = "SELECT gaps FROM outbox_ranges"
            await comes_true(lambda: database.rows(ranges) == [], within=LATE)

        assert json.dumps(got) == "[2, 3]"
