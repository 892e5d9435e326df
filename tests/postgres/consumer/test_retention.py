"""Retention by whole partitions: what goes, what stays, and that nobody notices.

Partitions of ten ids, in a schema of their own: other tests have the usual ones. Single events are
not deleted here: ``test_trimming.py`` has that.
"""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import anyio
import pytest
from click.testing import CliRunner
from sqlalchemy import text

from sa_outbox import Event
from sa_outbox.cli import main
from sa_outbox.consumer import Consumer, ConsumerSettings
from sa_outbox.consumer.connection.connections import Connections
from sa_outbox.consumer.connection.engines import engines
from sa_outbox.consumer.position import bounds
from sa_outbox.consumer.position.bounds import Bounds
from sa_outbox.consumer.upkeep import events, partitions, rows
from sa_outbox.consumer.upkeep.command import preview
from sa_outbox.consumer.upkeep.partitions import LogPartitions
from sa_outbox.observe import (
    AttemptFailed,
    CatchAllEmptied,
    DatabaseAway,
    PartitionDropped,
    PartitionMade,
    RetentionHeld,
    RetentionRefused,
    RetentionWaits,
    RowsPurged,
)
from sa_outbox.schema import problems
from sa_outbox.settings import Names
from tests.support import comes_true

from .conftest import make_consumer
from .kept import KEPT, SETTINGS, SIZE, Kept

pytestmark = [pytest.mark.anyio, pytest.mark.matrix]


@pytest.fixture(autouse=True)
def _by_partitions_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "MAX_PARTITIONS", 0)


class TestDropping:
    async def test_what_everybody_has_passed_goes_when_its_time_is_over(self, kept: Kept) -> None:
        kept.write(25)
        kept.register("billing", 25)

        held = await kept.prune()

        assert kept.ids == [20, 21, 22, 23, 24, 25]
        assert held == ()
        assert kept.heard(PartitionDropped) == [
            PartitionDropped("outbox_p0", 0, 10),
            PartitionDropped("outbox_p1", 10, 20),
        ]

    @pytest.mark.parametrize("order", ["none", "key", "total"])
    async def test_a_listener_that_has_nothing_to_do_keeps_nothing(
        self, kept: Kept, order: Any
    ) -> None:
        @kept.outbox.listener("mail", on="mail.*", order=order)
        async def send(event: Event[Any]) -> None: ...

        kept.write(25)
        await Consumer(kept.outbox, kept.url).drain()

        assert await kept.prune() == ()
        assert kept.ids == [20, 21, 22, 23, 24, 25]

    async def test_what_is_young_stays(self, kept: Kept) -> None:
        kept.write(15, hours_ago=2)
        kept.write(10, hours_ago=0)
        kept.register("billing", 25)

        await kept.prune()

        assert kept.ids == list(range(10, 26)), "the newest event of a partition counts"

    async def test_for_ever_is_for_ever(self, kept: Kept) -> None:
        kept.write(25, hours_ago=90_000)
        kept.register("billing", 25)

        await kept.prune(ConsumerSettings(retention=None))

        assert kept.ids == list(range(1, 26))

    async def test_without_a_listener_nobody_has_passed_anything(self, kept: Kept) -> None:
        kept.write(25)

        outlook = await preview(kept.outbox, kept.url, SETTINGS)
        await kept.prune()

        assert outlook.nobody
        assert kept.ids == list(range(1, 26))

    @pytest.mark.parametrize(
        ("why", "position"),
        [("cursor", 13), ("paused", 13), ("partition", 13), ("gap", 15), ("range", 15)],
    )
    async def test_it_spares_what_a_listener_needs(
        self, kept: Kept, why: str, position: int
    ) -> None:
        kept.write(35)
        kept.register("billing", 35)
        match why:
            case "cursor":
                kept.register("slow", 12)
            case "paused":
                kept.register("slow", 12)
                kept.rows("UPDATE outbox_listeners SET paused_at = now() WHERE name = 'slow'")
            case "partition":
                kept.register("slow", 35, partition_count=2)
                kept.register("slow", 12, partition=1, partition_count=2)
            case "gap":
                kept.register("slow", 35, gaps="[[3,3]]")
                kept.rows("UPDATE outbox_listeners SET gaps = '[[15,15]]' WHERE name = 'slow'")
            case _:
                kept.register("slow", 35)
                kept.rows(
                    "INSERT INTO outbox_ranges (listener, last_processed_id, gaps)"
                    " VALUES ('slow', 35, '[[15,17]]')"
                )

        (held,) = await kept.prune()

        behind = why in ("cursor", "paused", "partition")
        above = range(10, 36) if behind else (*range(10, 20), *range(30, 36))
        assert kept.ids == list(above), "partitions are spared one by one"
        assert (held.listener, held.position) == ("slow", position)
        assert held.why == ("cursor",) if behind else (why,)
        assert (held.partitions, held.ids) == ((2, 20) if behind else (1, 10))
        assert held.paused == (why == "paused")

    @pytest.mark.parametrize("state", ["parked", "scheduled", "behind"])
    async def test_it_spares_events_a_delivery_still_needs(self, kept: Kept, state: str) -> None:
        kept.write(35)
        kept.register("billing", 35)
        kept.park("billing", 15, state)

        (held,) = await kept.prune()

        assert kept.ids == [*range(10, 20), *range(30, 36)]
        assert (held.listener, held.position, held.why) == ("billing", 15, ("delivery",))

    async def test_a_cancelled_delivery_goes_with_its_event(self, kept: Kept) -> None:
        kept.write(35)
        kept.register("billing", 35)
        for position in (5, 35):
            kept.park("billing", position, "cancelled")

        await kept.prune()

        assert kept.ids == list(range(30, 36))
        assert [row.position for row in kept.deliveries("billing")] == [35]

    async def test_it_asks_again_under_the_lock(self, kept: Kept) -> None:
        """A delivery was parked, and an event written, since it was decided."""
        kept.write(25)
        kept.register("billing", 25)
        kept.park("billing", 5)
        kept.rows("UPDATE outbox SET created_at = now() WHERE id = 19")
        connections = Connections(
            engines(kept.url, None, ()).connect, most=1, timeout=30, connecting=30, patience=30
        )
        async with connections.connection() as connection:
            keeper = LogPartitions(connection, kept.outbox.tables, kept.told.append)
            for one in (Bounds("outbox_p0", 0, 10), Bounds("outbox_p1", 10, 20)):
                assert not await keeper.drop(one, KEPT.total_seconds())
        await connections.close(1)

        assert kept.ids == list(range(1, 26))
        assert kept.told == []

    async def test_a_partition_that_somebody_else_made_is_left_alone(self, kept: Kept) -> None:
        kept.rows("ALTER TABLE outbox_p0 RENAME TO mine")
        kept.write(25)
        kept.register("billing", 25)

        await kept.prune()

        assert kept.ids == [*range(1, 10), *range(20, 26)]

    async def test_a_hole_that_may_still_appear_keeps_its_partition(
        self, kept: Kept, in_a_hurry: None
    ) -> None:
        with kept.producer.open() as late:
            late.add_event("order.placed", {"n": 0})
            late.flush()
            kept.rows("UPDATE outbox_meta SET created_at = created_at")  # the writer has id 1
            kept.write(25)
            kept.register("hasty", 26)

            await kept.prune()  # no cursor needs it, but its writer is open

            assert kept.ids == list(range(2, 27))
            assert "drop outbox_p0" in [each.step for each in kept.heard(RetentionWaits)]
        assert kept.ids == list(range(1, 27))


@pytest.fixture
def in_a_hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tries soon after another; waits for a lock as long as ever."""
    monkeypatch.setattr(partitions, "PAUSE_SECONDS", 0.01)


class TestWriters:
    async def test_they_go_on_while_one_of_them_keeps_retention_waiting(
        self, kept: Kept, in_a_hurry: None
    ) -> None:
        """A writer that queues behind retention waits for it to give up, and not for the writer
        that retention waits for: that one is open until the end."""
        kept.write(25)
        kept.register("billing", 25)
        waits = "SELECT 1 FROM pg_locks WHERE NOT granted AND mode LIKE '%ExclusiveLock'"
        with kept.producer.open() as open_session:
            open_session.add_event("order.placed", {"n": 0})
            open_session.flush()
            done = anyio.Event()

            async def prune() -> None:
                await kept.prune()
                done.set()

            async with anyio.create_task_group() as tasks:
                tasks.start_soon(prune)
                await comes_true(lambda: done.is_set() or kept.rows(waits), within=45)
                for _ in range(20):
                    with kept.engine.begin() as connection:
                        connection.execute(text("SET LOCAL lock_timeout = '60s'"))
                        await anyio.to_thread.run_sync(
                            connection.execute,
                            text(
                                "INSERT INTO outbox (event_id, event_type, payload)"
                                " VALUES (gen_random_uuid(), 'order.placed', '{}')"
                            ),
                        )
            assert len(kept.ids) == 45
            assert kept.heard(PartitionDropped) == []
            tries = len(partitions.LOCK_TIMEOUTS_MS)
            first, last = kept.heard(RetentionWaits)
            # The second, if the writers were there before it: their ids have no partition then.
            made = RetentionWaits("make outbox_p4", tries)
            assert first in (made, RetentionWaits("adopt the catch-all", tries))
            assert last == RetentionWaits("drop outbox_p0", tries)

        await kept.prune()

        assert kept.ids[0] == 20

    async def test_no_insert_is_refused_for_a_partition_that_is_made_beside_it(
        self, kept: Kept, in_a_hurry: None
    ) -> None:
        """An INSERT goes by the partitions there were when it began. This one has begun, and stands
        at its row that comes before the first id of the next partition."""
        kept.write(38)
        slow = text(
            "INSERT INTO outbox (event_id, event_type, payload) SELECT gen_random_uuid(),"
            " 'order.placed', '{}'"
            " FROM (SELECT n, CASE WHEN n = 1 THEN pg_advisory_xact_lock(77) END"
            " FROM generate_series(1, 4) AS n OFFSET 0) AS rows"
        )
        waits = (
            "SELECT 1 FROM pg_locks WHERE objid = 77 AND NOT granted AND database ="
            " (SELECT oid FROM pg_database WHERE datname = current_database())"
        )
        with kept.engine.connect() as gate, kept.engine.connect() as writer:
            gate.execute(text("SELECT pg_advisory_lock(77)"))
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(_in_a_thread, lambda: writer.execute(slow))
                await comes_true(lambda: kept.rows(waits))
                await kept.prune()
                gate.execute(text("SELECT pg_advisory_unlock(77)"))
            writer.commit()

        assert kept.ids == list(range(1, 43))
        assert kept.heard(PartitionMade) == []
        assert kept.heard(RetentionWaits) == [
            RetentionWaits("make outbox_p4", len(partitions.LOCK_TIMEOUTS_MS))
        ]


class TestAhead:
    async def test_there_are_always_partitions_for_what_comes(self, kept: Kept) -> None:
        for _ in range(6):
            kept.write(9)
            await kept.prune()
            assert kept.in_rest == []

        assert kept.partitions[-2:] == ["outbox_p7", "outbox_rest"]
        assert kept.ids == list(range(1, 55))
        with kept.engine.connect() as connection:
            assert problems(connection, Names(schema="kept")) == []

    async def test_a_new_partition_is_like_the_others(self, kept: Kept) -> None:
        kept.write(35)
        await kept.prune()

        columns = (
            "SELECT attname, atttypid, attnotnull, attidentity, attstorage, attcompression"
            " FROM pg_attribute WHERE attrelid = CAST(:name AS regclass) AND attnum > 0"
            " ORDER BY attnum"
        )
        indexes = (
            "SELECT replace(pg_get_indexdef(indexrelid), :name, 'outbox_pN') FROM pg_index"
            " WHERE indrelid = CAST(:name AS regclass) ORDER BY 1"
        )
        for statement in (columns, indexes):
            old, new = (kept.rows(statement, name=name) for name in ("outbox_p3", "outbox_p4"))
            assert old == new

    async def test_a_name_that_is_taken_is_not_touched(self, kept: Kept) -> None:
        kept.rows("CREATE TABLE outbox_p4 AS SELECT 1 AS mine")
        kept.write(25)

        await kept.prune()

        assert kept.heard(PartitionMade) == [PartitionMade("outbox_p40", 40, 50)]
        assert kept.value("SELECT mine FROM outbox_p4") == 1

    async def test_the_size_may_change(self, kept: Kept) -> None:
        kept.rows("UPDATE outbox_meta SET partition_size = 25")
        kept.write(38)
        kept.register("billing", 38)

        await kept.prune()

        assert [(each.low, each.high) for each in kept.heard(PartitionMade)] == [
            (40, 50),
            (50, 75),
            (75, 100),
        ]
        assert kept.ids == list(range(30, 39))


class TestCatchAll:
    """Nothing was running, and the ids ran past the last partition."""

    @pytest.fixture(autouse=True)
    def _small_steps(self, monkeypatch: pytest.MonkeyPatch, in_a_hurry: None) -> None:
        monkeypatch.setattr(partitions, "COPIED_AT_ONCE", 7)
        monkeypatch.setattr(partitions, "MAX_UNDER_LOCK", 5)

    async def test_its_events_get_partitions(self, kept: Kept) -> None:
        kept.write(75)
        assert kept.in_rest == list(range(40, 76))

        await kept.prune(ConsumerSettings(retention=None))

        assert kept.in_rest == []
        assert kept.ids == list(range(1, 76))
        assert kept.value("SELECT count(*) FROM outbox_p6") == 10
        assert kept.partitions == [*kept.tables, "outbox_rest"], "nothing is left over"
        (emptied,) = kept.heard(CatchAllEmptied)
        assert emptied.partitions == (
            "outbox_p4",
            "outbox_p5",
            "outbox_p6",
            "outbox_p7",
            "outbox_p8",
        )
        with kept.engine.connect() as connection:
            assert problems(connection, Names(schema="kept")) == []

    async def test_a_jump_of_the_ids_makes_no_partitions_for_what_never_was(
        self, kept: Kept
    ) -> None:
        kept.write(45)
        kept.rows("SELECT setval('outbox_id_seq', 10000000000)")
        kept.write(3)

        await kept.prune(ConsumerSettings(retention=None))

        assert kept.ids == [*range(1, 46), 10000000001, 10000000002, 10000000003]
        assert kept.in_rest == []
        assert len(kept.partitions) < 15

    async def test_an_event_that_is_still_being_written_to_it_is_not_lost(self, kept: Kept) -> None:
        kept.write(45)
        with kept.producer.open() as late:
            late.add_event("order.placed", {"n": 0})
            late.flush()
            kept.write(14)

            await kept.prune(ConsumerSettings(retention=None))

            assert kept.ids == [*range(1, 46), *range(47, 61)], "each once"
            assert kept.heard(CatchAllEmptied) == []
            assert [each.step for each in kept.heard(RetentionWaits)] == ["adopt the catch-all"]
        await kept.prune(ConsumerSettings(retention=None))

        assert kept.ids == list(range(1, 61))
        assert kept.in_rest == []

    async def test_what_a_killed_process_left_is_finished(
        self, kept: Kept, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        kept.write(75)

        class Killed(Exception):
            pass

        async def die(*_: object) -> bool:
            raise Killed

        with monkeypatch.context() as patched:
            patched.setattr(partitions.LogPartitions, "_take_place", die)
            with pytest.raises(Killed):
                await kept.prune()
        assert kept.value("SELECT count(*) FROM outbox_p4") == 10, "copies, that nobody sees"
        assert kept.ids == list(range(1, 76))

        await kept.prune(ConsumerSettings(retention=None))

        assert kept.ids == list(range(1, 76))
        assert kept.in_rest == []
        assert kept.partitions == [*kept.tables, "outbox_rest"]

    async def test_what_was_left_by_one_with_another_size_is_thrown_away(self, kept: Kept) -> None:
        kept.write(45)
        kept.rows(
            "CREATE TABLE outbox_p4 (LIKE outbox INCLUDING DEFAULTS,"
            " CONSTRAINT outbox_p4_range_check CHECK (id >= 40 AND id < 140))"
        )
        kept.rows(
            "CREATE TABLE outbox_p70 (LIKE outbox INCLUDING DEFAULTS,"
            " CONSTRAINT outbox_p70_range_check CHECK (id >= 700 AND id < 710))"
        )

        await kept.prune(ConsumerSettings(retention=None))

        assert kept.ids == list(range(1, 46))
        assert kept.partitions == [*kept.tables, "outbox_rest"]

    async def test_one_who_comes_when_another_has_finished_does_nothing(
        self, kept: Kept, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Between the look at the catch-all and the first step."""
        kept.write(75)
        adopt = LogPartitions.adopt

        async def late(self: LogPartitions, rest: str, low: int) -> bool:
            with monkeypatch.context() as patched:
                patched.setattr(LogPartitions, "adopt", adopt)
                await kept.prune(ConsumerSettings(retention=None))
            return await adopt(self, rest, low)

        monkeypatch.setattr(LogPartitions, "adopt", late)
        await kept.prune(ConsumerSettings(retention=None))

        assert kept.ids == list(range(1, 76))
        assert len(kept.heard(CatchAllEmptied)) == 1

    async def test_what_there_is_can_be_asked_while_tables_come_and_go(self, kept: Kept) -> None:
        """PostgreSQL writes a constraint down by the table as it is, which may be gone."""
        done = threading.Event()
        make = (
            "CREATE TABLE outbox_p90 (LIKE outbox INCLUDING CONSTRAINTS,"
            " CONSTRAINT outbox_p90_range_check CHECK (id >= 900 AND id < 910))"
        )
        attach = "ALTER TABLE outbox ATTACH PARTITION outbox_p90 FOR VALUES FROM (900) TO (910)"

        def come_and_go() -> None:
            with kept.engine.connect() as connection:
                while not done.is_set():
                    for each in (make, attach, "DROP TABLE outbox_p90"):
                        connection.execute(text(each))
                        connection.commit()

        made = engines(kept.url, None, ())
        connections = Connections.of(made.connect, SETTINGS, most=1)
        first = [Bounds(f"outbox_p{n}", n * SIZE, (n + 1) * SIZE) for n in range(4)]
        try:
            async with connections.connection() as connection, anyio.create_task_group() as others:
                others.start_soon(anyio.to_thread.run_sync, come_and_go)
                try:
                    keeper = LogPartitions(connection, kept.outbox.tables, kept.told.append)
                    for _ in range(1000):
                        assert list((await keeper.layout()).partitions[:4]) == first
                finally:
                    done.set()
        finally:
            await connections.close(1)
            await made.dispose()

    async def test_nobody_misses_an_event_for_a_moment(self, kept: Kept) -> None:
        """Writers write, readers read, three processes adopt and make and drop nothing."""
        kept.write(60)
        committed, wrong = list(range(1, 61)), []
        insert = text(
            "INSERT INTO outbox (event_id, event_type, payload) SELECT gen_random_uuid(),"
            " 'order.placed', '{}' FROM generate_series(1, 3) RETURNING id"
        )
        writing, done = [1, 2], threading.Event()

        def write() -> None:
            with kept.engine.connect() as connection:
                for _ in range(25):
                    ids = [row.id for row in connection.execute(insert)]
                    connection.commit()
                    committed.extend(ids)
            writing.pop()

        def read() -> None:
            with kept.engine.connect() as connection:
                while not done.is_set():
                    known = set(committed)
                    seen = [row.id for row in connection.execute(text("SELECT id FROM outbox"))]
                    connection.commit()
                    if len(seen) != len(set(seen)) or known - set(seen):
                        wrong.append(sorted(known - set(seen)))

        async def keep() -> None:
            while writing:
                await kept.prune(ConsumerSettings(retention=None))

        async with anyio.create_task_group() as others:
            for each in (write, write, read):
                others.start_soon(anyio.to_thread.run_sync, each)
            try:
                async with anyio.create_task_group() as keepers:
                    for _ in range(3):
                        keepers.start_soon(keep)
            finally:
                done.set()
        await kept.prune(ConsumerSettings(retention=None))

        assert wrong == []
        assert kept.ids == sorted(committed)
        assert kept.heard(CatchAllEmptied) != []
        assert kept.in_rest == []


class TestPurging:
    @pytest.fixture(autouse=True)
    def _small_batches(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(rows, "ROWS_AT_ONCE", 2)

    async def test_what_has_expired_goes_and_nothing_else(self, kept: Kept) -> None:
        kept.rows(
            "INSERT INTO outbox_idempotency_keys (event_type, key, event_id, expires_at)"
            " SELECT 'order.placed', n, gen_random_uuid(), now() + n * interval '1 hour'"
            " FROM generate_series(-4, 3) AS n"
        )
        kept.rows(
            "INSERT INTO outbox_inbox (consumer, message_id, expires_at)"
            " SELECT 'billing', n, now() + n * interval '1 hour' FROM generate_series(-1, 3) AS n"
        )
        kept.rows(
            "INSERT INTO outbox_results (event_id, listener, result_ref, expires_at)"
            " SELECT gen_random_uuid(), 'billing', n, now() + n * interval '1 hour'"
            " FROM generate_series(-2, 1) AS n"
        )

        await kept.prune()

        assert kept.heard(RowsPurged) == [
            RowsPurged("outbox_idempotency_keys", 5),
            RowsPurged("outbox_inbox", 2),
            RowsPurged("outbox_results", 3),
        ]
        left = kept.rows("SELECT key FROM outbox_idempotency_keys ORDER BY key")
        assert [row.key for row in left] == ["1", "2", "3"]

    async def test_a_key_that_is_being_taken_again_is_passed_by(self, kept: Kept) -> None:
        kept.rows(
            "INSERT INTO outbox_idempotency_keys (event_type, key, event_id, expires_at)"
            " SELECT 'order.placed', n, gen_random_uuid(), now() FROM generate_series(1, 3) AS n"
        )
        with kept.engine.begin() as connection:
            connection.execute(
                text(
                    "UPDATE outbox_idempotency_keys SET expires_at = now() + interval '1 hour'"
                    " WHERE key = '1'"
                )
            )

            await kept.prune()

        assert [row.key for row in kept.rows("SELECT key FROM outbox_idempotency_keys")] == ["1"]

    async def test_audit_records_and_resolved_dead_letters_have_their_time(
        self, kept: Kept
    ) -> None:
        kept.rows(
            "INSERT INTO outbox_audit (action, recorded_at)"
            " SELECT 'failed', now() - n * interval '1 day' FROM generate_series(95, 86, -1) AS n"
        )
        kept.rows(
            "INSERT INTO outbox_dead_letters (listener, position, event_id, event_type, payload,"
            " event_created_at, reason, resolution, resolved_at)"
            " SELECT 'billing', n, gen_random_uuid(), 'order.placed', '{}', now(), 'attempts',"
            " CASE WHEN n % 2 = 0 THEN 'discarded' END,"
            " CASE WHEN n % 2 = 0 THEN now() - n * interval '1 day' END"
            " FROM generate_series(81, 100) AS n"
        )

        await kept.prune(ConsumerSettings(audit_retention=None, dead_letter_retention=None))
        assert kept.told == [], "for ever is for ever"
        await kept.prune(ConsumerSettings())

        assert kept.heard(RowsPurged) == [
            RowsPurged("outbox_audit", 6),
            RowsPurged("outbox_dead_letters", 6),
        ]
        left = kept.rows("SELECT position FROM outbox_dead_letters ORDER BY position")
        resolved = [row.position for row in left if row.position % 2 == 0]
        assert resolved == [82, 84, 86, 88]
        assert len(left) == 10 + 4, "what nobody has resolved stays"


class TestService:
    async def test_consumers_lose_nothing_while_partitions_come_and_go(
        self, kept: Kept, in_a_hurry: None, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(bounds, "AHEAD_SECONDS", 0.0)  # two partitions, so that it runs short
        monkeypatch.setattr(partitions, "MAX_UNDER_LOCK", 50)
        got: dict[str, list[int]] = {"keys": [], "total": [], "queue": []}

        @kept.outbox.listener("keys", on="*")
        async def by_key(event: Event[Any]) -> None:
            got["keys"].append(event.payload["n"])

        @kept.outbox.listener("total", on="*", order="total")
        async def in_order(event: Event[Any]) -> None:
            got["total"].append(event.payload["n"])

        @kept.outbox.listener("queue", on="*", order="none")
        async def by_whom_ever(event: Event[Any]) -> None:
            got["queue"].append(event.payload["n"])

        consumers = [
            make_consumer(
                kept.outbox,
                kept.url,
                maintenance_interval=timedelta(milliseconds=50),
                retention=timedelta(microseconds=1),
            )
            for _ in range(2)
        ]
        expected = {f"outbox_p{number}" for number in range(12)}

        def dropped() -> set[str]:
            told = [each for _, recorder in consumers for each in recorder.of(PartitionDropped)]
            return {each.partition for each in told}

        async with anyio.create_task_group() as tasks:
            for consumer, _ in consumers:
                await tasks.start(_run, consumer)
            for first in range(0, 120, 8):
                await anyio.to_thread.run_sync(kept.producer.add, *range(first, first + 8))
            await consumers[0][0].drain()
            await comes_true(lambda: dropped() == expected, within=45)
            for consumer, _ in consumers:
                consumer.stop()

        assert [sorted(each) for each in got.values()] == [list(range(120))] * 3
        assert got["total"] == list(range(120))
        told = [each for _, recorder in consumers for each in recorder.observations]
        assert kept.ids == [120]
        assert [each for each in told if isinstance(each, (DatabaseAway, AttemptFailed))] == []

    async def test_a_listener_that_is_gone_is_named_and_not_again_and_again(
        self, kept: Kept
    ) -> None:
        @kept.outbox.listener("billing", on="*")
        async def charge(event: Event[Any]) -> None: ...

        kept.write(25)
        kept.register("gone", 3)
        consumer, recorder = make_consumer(
            kept.outbox,
            kept.url,
            maintenance_interval=timedelta(milliseconds=20),
            retention=KEPT,
        )
        async with anyio.create_task_group() as tasks:
            await tasks.start(_run, consumer)
            await consumer.drain()
            await recorder.seen(RetentionHeld, within=45, listener="gone", position=4, partitions=2)
            for times in (1, 2):  # each is a round
                kept.rows(
                    "INSERT INTO outbox_inbox (consumer, message_id, expires_at)"
                    " VALUES ('a', 'b', now())"
                )
                await recorder.seen(RowsPurged, times=times, within=45)
            consumer.stop()

        assert len(recorder.of(RetentionHeld, listener="gone")) == 1
        assert kept.ids == list(range(1, 26))

    async def test_a_role_that_owns_nothing_says_so_and_purges_all_the_same(
        self, kept: Kept
    ) -> None:
        role = f"keeper_{secrets.token_hex(6)}"  # roles are the server's: other tests see them
        kept.rows(f"CREATE ROLE {role} LOGIN PASSWORD 'known'")
        try:
            kept.rows(f"GRANT USAGE ON SCHEMA kept TO {role}")
            kept.rows(
                f"GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA kept TO {role}"
            )
            kept.rows(f"GRANT SELECT ON SEQUENCE outbox_id_seq TO {role}")
            kept.write(25)
            kept.register("billing", 25)
            kept.rows(
                "INSERT INTO outbox_inbox (consumer, message_id, expires_at)"
                " VALUES ('a', 'b', now())"
            )
            kept.url = kept.url.set(username=role, password="known")

            await kept.prune()
        finally:
            kept.rows(f"DROP OWNED BY {role}")
            kept.rows(f"DROP ROLE {role}")

        steps = [each.step for each in kept.heard(RetentionRefused)]
        assert steps == ["make outbox_p4", "drop outbox_p0"]
        assert kept.heard(RowsPurged) == [RowsPurged("outbox_inbox", 1)]
        assert kept.ids == list(range(1, 26))


async def _in_a_thread(work: Callable[[], object]) -> None:
    await anyio.to_thread.run_sync(work)


async def _run(consumer: Consumer, *, task_status: anyio.abc.TaskStatus[None]) -> None:
    await consumer.run(task_status=task_status)


class TestCommand:
    def run(self, kept: Kept, *words: str) -> str:
        url = kept.url.render_as_string(hide_password=False)
        result = CliRunner().invoke(
            main, ["prune", "--schema", "kept", *words], env={"SA_OUTBOX_DATABASE_URL": url}
        )
        assert result.exit_code == 0, result.output
        return result.stdout

    def test_a_dry_run_says_what_would_go_and_what_stays(self, kept: Kept) -> None:
        kept.write(45)
        kept.register("billing", 45)
        kept.register("gone", 15)
        kept.rows(
            "INSERT INTO outbox_inbox (consumer, message_id, expires_at) VALUES ('a', 'b', now())"
        )

        told = self.run(kept, "--dry-run", "--retention", "0.01")

        assert "would drop outbox_p0 with the ids from 0 up to 10\n" in told
        assert "would move the events of the catch-all, from id 40 on\n" in told
        assert "would delete 1 row of outbox_inbox\n" in told
        assert "listener gone keeps 3 expired partitions with 30 ids" in told
        assert "sa-outbox listeners retire gone\n" in told
        assert kept.ids == list(range(1, 46))
        assert kept.partitions[-2:] == ["outbox_p3", "outbox_rest"]

    def test_it_shows_what_it_does_and_has_nothing_to_do_the_second_time(self, kept: Kept) -> None:
        kept.write(45)
        kept.register("billing", 45)

        first = self.run(kept, "--retention", "0.01")
        second = self.run(kept, "--retention", "forever")

        assert "moved 6 events of the catch-all to outbox_p4, outbox_p5\n" in first
        assert "dropped outbox_p3 with the ids from 30 up to 40\n" in first
        assert kept.ids == list(range(40, 46))
        assert second == "outbox kept.outbox: nothing to do\n"
