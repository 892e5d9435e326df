"""A second event with the same idempotency key, tenant and type is not written."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import URL, Engine, create_engine, select, text
from sqlalchemy.exc import OperationalError
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.orm import sessionmaker

from sa_outbox import Event, Outbox, OutboxSession
from tests.postgres.conftest import CountingOutbox
from tests.support import eventually
from tests.support.shop import Order


@pytest.fixture
def outbox() -> CountingOutbox:
    return CountingOutbox()


@pytest.fixture
def sessions(outbox: CountingOutbox, engine: Engine) -> sessionmaker[OutboxSession]:
    return outbox.sessionmaker(engine)


def log_of(engine: Engine) -> list[Any]:
    log = Outbox().tables.outbox
    with engine.connect() as connection:
        return list(connection.execute(select(log).order_by(log.c.id)))


def ids_of(engine: Engine) -> list[Any]:
    return [row.event_id for row in log_of(engine)]


def keys_of(engine: Engine) -> list[Any]:
    keys = Outbox().tables.idempotency_keys
    with engine.connect() as connection:
        return list(connection.execute(select(keys).order_by(keys.c.key)))


def added(sessions: sessionmaker[OutboxSession], **options: Any) -> Event[Any]:
    """One event in a transaction of its own."""
    with sessions.begin() as session:
        return session.add_event("order.placed", **{"idempotency_key": "k", **options})


def waits_for_a_lock(engine: Engine, pid: int) -> bool:
    with engine.connect() as connection:
        found = connection.scalar(
            text("SELECT wait_event_type FROM pg_stat_activity WHERE pid = :pid"), {"pid": pid}
        )
        return bool(found == "Lock")


Start = Callable[[ThreadPoolExecutor], "Future[Event[Any]]"]


@pytest.fixture
def start(sessions: sessionmaker[OutboxSession], engine: Engine) -> Start:
    """Begin a second writer of the key, and return when it waits for the first."""

    def begin(threads: ThreadPoolExecutor) -> Future[Event[Any]]:
        pids: list[int] = []

        def write() -> Event[Any]:
            with sessions.begin() as session:
                pids.append(session.scalar(text("SELECT pg_backend_pid()")) or 0)
                return session.add_event("order.placed", 2, idempotency_key="k")

        writing = threads.submit(write)
        eventually(lambda: pids and waits_for_a_lock(engine, pids[0]))
        assert not writing.done()
        return writing

    return begin


class TestOneAfterAnother:
    def test_the_second_is_not_written_and_names_the_first(
        self, engine: Engine, sessions: sessionmaker[OutboxSession]
    ) -> None:
        first, second = added(sessions), added(sessions)

        assert first.duplicate_of is None
        assert second.duplicate_of == first.event_id
        assert ids_of(engine) == [first.event_id]

    def test_the_third_names_the_first_too(
        self, engine: Engine, sessions: sessionmaker[OutboxSession]
    ) -> None:
        first, _, third = added(sessions), added(sessions), added(sessions)

        assert third.duplicate_of == first.event_id

    def test_it_is_not_known_before_the_flush(
        self, engine: Engine, sessions: sessionmaker[OutboxSession]
    ) -> None:
        first = added(sessions)
        with sessions() as session:
            second = session.add_event("order.placed", idempotency_key="k")
            assert second.duplicate_of is None
            session.flush()
            assert second.duplicate_of == first.event_id

    @pytest.mark.parametrize(
        ("one", "other"),
        [
            ({"tenant": "a"}, {"tenant": "b"}),
            ({"tenant": None}, {"tenant": "a"}),
            ({"idempotency_key": "k"}, {"idempotency_key": "K"}),
            ({"idempotency_key": "k"}, {"idempotency_key": None}),
            ({"idempotency_key": None}, {"idempotency_key": None}),
            ({"idempotency_key": "é"}, {"idempotency_key": "e\u0301"}),
        ],
        ids=str,
    )
    def test_another_tenant_or_key_or_none_is_written(
        self,
        engine: Engine,
        sessions: sessionmaker[OutboxSession],
        one: dict[str, Any],
        other: dict[str, Any],
    ) -> None:
        events = [added(sessions, **one), added(sessions, **other)]

        assert [event.duplicate_of for event in events] == [None, None]
        assert ids_of(engine) == [event.event_id for event in events]

    def test_another_event_type_is_written(
        self, engine: Engine, sessions: sessionmaker[OutboxSession]
    ) -> None:
        with sessions.begin() as session:
            session.add_event("order.placed", idempotency_key="k")
            session.add_event("order.paid", idempotency_key="k")

        assert [row.event_type for row in log_of(engine)] == ["order.placed", "order.paid"]

    def test_the_same_tenant_and_key_are_a_duplicate_whatever_else_differs(
        self, engine: Engine, sessions: sessionmaker[OutboxSession]
    ) -> None:
        with sessions.begin() as session:
            first = session.add_event("a", 1, tenant="t", key="x", idempotency_key="k")
            second = session.add_event("a", 2, tenant="t", key="y", priority=5, idempotency_key="k")

        assert second.duplicate_of == first.event_id
        assert [row.payload for row in log_of(engine)] == [1]

    def test_the_data_next_to_a_duplicate_is_written(
        self, engine: Engine, sessions: sessionmaker[OutboxSession]
    ) -> None:
        added(sessions)
        with sessions.begin() as session:
            session.add(Order(name="an order"))
            session.add_event("order.placed", idempotency_key="k")
            session.add_event("order.paid")

        assert [row.event_type for row in log_of(engine)] == ["order.placed", "order.paid"]
        with engine.connect() as connection:
            assert connection.scalars(select(Order.name)).all() == ["an order"]

    def test_an_event_recorded_on_an_entity_has_its_key_too(
        self, engine: Engine, sessions: sessionmaker[OutboxSession]
    ) -> None:
        first = added(sessions)
        with sessions.begin() as session:
            order = Order(name="an order")
            second = order.record_event("order.placed", idempotency_key="k")
            session.add(order)

        assert second.duplicate_of == first.event_id
        assert ids_of(engine) == [first.event_id]

    def test_the_lifetime_of_the_key_is_the_setting_by_the_clock_of_the_database(
        self, engine: Engine
    ) -> None:
        outbox = CountingOutbox(idempotency_key_lifetime=timedelta(hours=3))
        added(outbox.sessionmaker(engine))

        (key,) = keys_of(engine)
        assert abs(key.expires_at - key.first_seen_at - timedelta(hours=3)) < timedelta(seconds=1)


class TestInOneTransaction:
    def test_the_same_key_twice_in_one_flush_is_written_once(
        self, engine: Engine, sessions: sessionmaker[OutboxSession]
    ) -> None:
        with sessions.begin() as session:
            first = session.add_event("a", 1, idempotency_key="k")
            between = session.add_event("a", 2)
            second = session.add_event("a", 3, idempotency_key="k")

        assert second.duplicate_of == first.event_id
        assert ids_of(engine) == [first.event_id, between.event_id]

    def test_the_same_key_in_two_flushes_is_written_once(
        self, engine: Engine, sessions: sessionmaker[OutboxSession]
    ) -> None:
        with sessions.begin() as session:
            first = session.add_event("a", 1, idempotency_key="k")
            session.flush()
            second = session.add_event("a", 2, idempotency_key="k")

        assert second.duplicate_of == first.event_id
        assert ids_of(engine) == [first.event_id]

    def test_very_many_keys_at_once_keep_their_order(
        self, engine: Engine, sessions: sessionmaker[OutboxSession]
    ) -> None:
        with sessions.begin() as session:
            events = [
                session.add_event("a", n, idempotency_key=f"k{n * 7919 % 500}")
                for n in range(1_000)
            ]

        assert ids_of(engine) == [event.event_id for event in events[:500]]
        assert [event.duplicate_of for event in events[500:]] == ids_of(engine)


class TestAfterARollback:
    def test_a_rolled_back_event_does_not_block_the_next(
        self, engine: Engine, sessions: sessionmaker[OutboxSession]
    ) -> None:
        with sessions() as session:
            session.add_event("order.placed", idempotency_key="k")
            session.flush()
            session.rollback()

        second = added(sessions)

        assert second.duplicate_of is None
        assert ids_of(engine) == [second.event_id]

    def test_a_rolled_back_savepoint_frees_the_key(
        self, engine: Engine, sessions: sessionmaker[OutboxSession]
    ) -> None:
        with sessions.begin() as session:
            savepoint = session.begin_nested()
            session.add_event("order.placed", 1, idempotency_key="k")
            session.flush()
            savepoint.rollback()
            second = session.add_event("order.placed", 2, idempotency_key="k")

        assert second.duplicate_of is None
        assert ids_of(engine) == [second.event_id]

    def test_a_released_savepoint_keeps_the_key(
        self, engine: Engine, sessions: sessionmaker[OutboxSession]
    ) -> None:
        with sessions.begin() as session:
            with session.begin_nested():
                first = session.add_event("order.placed", 1, idempotency_key="k")
            second = session.add_event("order.placed", 2, idempotency_key="k")

        assert second.duplicate_of == first.event_id
        assert ids_of(engine) == [first.event_id]

    def test_an_event_that_was_a_duplicate_once_and_is_written_later_is_none(
        self, engine: Engine, sessions: sessionmaker[OutboxSession]
    ) -> None:
        with sessions() as session:
            first = session.add_event("order.placed", idempotency_key="k")
            order = Order(name="an order")
            session.add(order)
            second = order.record_event("order.placed", idempotency_key="k")
            session.flush()
            assert second.duplicate_of == first.event_id
            session.rollback()

            session.add(order)
            session.commit()

        assert ids_of(engine) == [second.event_id]
        assert second.duplicate_of is None


class TestExpiry:
    def test_an_expired_key_is_free_and_then_taken_anew(
        self, engine: Engine, sessions: sessionmaker[OutboxSession]
    ) -> None:
        first = added(sessions)
        with engine.begin() as connection:
            connection.execute(
                text("UPDATE outbox_idempotency_keys SET expires_at = now() - interval '1 second'")
            )

        second, third = added(sessions), added(sessions)

        assert second.duplicate_of is None
        assert third.duplicate_of == second.event_id
        assert ids_of(engine) == [first.event_id, second.event_id]
        (key,) = keys_of(engine)
        assert key.event_id == second.event_id
        assert key.expires_at > key.first_seen_at

    def test_of_two_writers_of_an_expired_key_one_wins(
        self, engine: Engine, sessions: sessionmaker[OutboxSession], start: Start
    ) -> None:
        added(sessions)
        with engine.begin() as connection:
            connection.execute(
                text("UPDATE outbox_idempotency_keys SET expires_at = now() - interval '1 second'")
            )

        with ThreadPoolExecutor() as threads, sessions() as session:
            first = session.add_event("order.placed", 1, idempotency_key="k")
            session.flush()
            writing = start(threads)
            session.commit()
            second = writing.result(timeout=30)

        assert first.duplicate_of is None
        assert second.duplicate_of == first.event_id

    def test_a_duplicate_does_not_prolong_the_key(
        self, engine: Engine, sessions: sessionmaker[OutboxSession]
    ) -> None:
        added(sessions)
        (before,) = keys_of(engine)

        added(sessions)

        (after,) = keys_of(engine)
        assert after.expires_at == before.expires_at
        assert after.first_seen_at == before.first_seen_at
        assert after.last_seen_at > before.last_seen_at


class TestWakingConsumers:
    def test_nothing_written_wakes_nobody(
        self, engine: Engine, sessions: sessionmaker[OutboxSession], outbox: CountingOutbox
    ) -> None:
        added(sessions)
        assert outbox.pokes == 1

        added(sessions)

        assert outbox.pokes == 1

    def test_a_duplicate_beside_a_new_event_wakes_them(
        self, engine: Engine, sessions: sessionmaker[OutboxSession], outbox: CountingOutbox
    ) -> None:
        added(sessions)
        with sessions.begin() as session:
            session.add_event("order.placed", idempotency_key="k")
            session.add_event("order.paid")

        assert outbox.pokes == 2


class TestConcurrentWriters:
    def test_the_second_waits_for_the_first_and_is_its_duplicate(
        self,
        engine: Engine,
        sessions: sessionmaker[OutboxSession],
        start: Start,
    ) -> None:
        with ThreadPoolExecutor() as threads, sessions() as session:
            first = session.add_event("order.placed", 1, idempotency_key="k")
            session.flush()
            writing = start(threads)
            session.commit()
            second = writing.result(timeout=30)

        assert second.duplicate_of == first.event_id
        assert ids_of(engine) == [first.event_id]

    def test_the_second_waits_for_the_first_and_takes_the_key_it_gives_back(
        self,
        engine: Engine,
        sessions: sessionmaker[OutboxSession],
        start: Start,
    ) -> None:
        with ThreadPoolExecutor() as threads, sessions() as session:
            session.add_event("order.placed", 1, idempotency_key="k")
            session.flush()
            writing = start(threads)
            session.rollback()
            second = writing.result(timeout=30)

        assert second.duplicate_of is None
        assert ids_of(engine) == [second.event_id]

    @pytest.fixture
    def pool(self, engine: Engine) -> Iterator[Engine]:
        """Connections that are made by the threads themselves, and closed with the test."""
        pool = create_engine(engine.url, pool_size=4)
        yield pool
        pool.dispose()

    def test_of_many_at_once_exactly_one_wins(
        self, engine: Engine, pool: Engine, outbox: CountingOutbox
    ) -> None:
        writers = 4
        barrier = threading.Barrier(writers)
        sessions = outbox.sessionmaker(pool)

        def write(round_: int) -> Event[Any]:
            with sessions.begin() as session:
                session.connection()
                barrier.wait(timeout=30)
                return session.add_event("a", idempotency_key=f"k{round_}")

        with ThreadPoolExecutor(writers) as threads:
            for round_ in range(25):
                events = list(threads.map(write, [round_] * writers))
                (winner,) = [event for event in events if event.duplicate_of is None]
                assert {event.duplicate_of for event in events} == {None, winner.event_id}
        assert len(log_of(engine)) == 25

    def test_keys_in_opposite_order_do_not_deadlock(
        self, engine: Engine, pool: Engine, outbox: CountingOutbox
    ) -> None:
        rounds, keys = 40, 20
        barrier = threading.Barrier(2)
        sessions = outbox.sessionmaker(pool)

        def write(step: int) -> int:
            written = 0
            for round_ in range(rounds):
                with sessions.begin() as session:
                    session.connection()
                    barrier.wait(timeout=30)
                    events = [
                        session.add_event("a", idempotency_key=f"{round_}-{n}")
                        for n in range(keys)[::step]
                    ]
                written += sum(event.duplicate_of is None for event in events)
            return written

        with ThreadPoolExecutor(2) as threads:
            written = list(threads.map(write, [1, -1]))

        assert sum(written) == rounds * keys
        assert len(log_of(engine)) == rounds * keys

    def test_in_repeatable_read_the_second_is_told_to_try_again(
        self, engine: Engine, outbox: CountingOutbox
    ) -> None:
        """Its snapshot can't see the first: PostgreSQL refuses, as for any such conflict."""
        strict = engine.execution_options(isolation_level="REPEATABLE READ")
        sessions = outbox.sessionmaker(strict)
        with sessions() as session:
            session.execute(text("SELECT 1"))
            first = added(sessions)
            session.add_event("order.placed", idempotency_key="k")
            with pytest.raises(OperationalError, match="could not serialize"):
                session.commit()
            session.rollback()

            second = session.add_event("order.placed", idempotency_key="k")
            session.commit()

        assert second.duplicate_of == first.event_id

    def test_a_key_given_back_by_a_savepoint_is_taken_by_the_one_that_waits(
        self, engine: Engine, sessions: sessionmaker[OutboxSession], start: Start
    ) -> None:
        with ThreadPoolExecutor() as threads, sessions() as session:
            session.add(Order(name="an order"))
            savepoint = session.begin_nested()
            session.add_event("order.placed", 1, idempotency_key="k")
            session.flush()
            writing = start(threads)
            savepoint.rollback()
            second = writing.result(timeout=30)
            session.commit()

        assert second.duplicate_of is None
        assert ids_of(engine) == [second.event_id]

    def test_two_keys_in_opposite_order_over_two_flushes_cost_one_writer_its_turn(
        self, engine: Engine, pool: Engine, outbox: CountingOutbox
    ) -> None:
        """Within a flush keys are claimed in their order. Between flushes PostgreSQL finds the
        deadlock and ends one of the two, which does its work again."""
        sessions = outbox.sessionmaker(pool)
        barrier = threading.Barrier(2)
        refused: list[str] = []

        def write(keys: tuple[str, str]) -> list[Event[Any]]:
            for attempt in range(2):
                try:
                    with sessions.begin() as session:
                        one = session.add_event("a", keys[0], idempotency_key=keys[0])
                        session.flush()
                        if attempt == 0:
                            barrier.wait(timeout=30)
                        return [one, session.add_event("a", keys[0], idempotency_key=keys[1])]
                except OperationalError as error:
                    refused.append(getattr(error.orig, "sqlstate", ""))
            raise AssertionError("refused twice")

        with ThreadPoolExecutor(2) as threads:
            one, other = threads.map(write, [("x", "y"), ("y", "x")])

        assert refused == ["40P01"]
        assert sorted(event.duplicate_of is None for event in one) in ([False] * 2, [True] * 2)
        written = [event.event_id for event in [*one, *other] if event.duplicate_of is None]
        assert sorted(written) == sorted(ids_of(engine))
        assert [key.key for key in keys_of(engine)] == ["x", "y"]


@pytest.mark.anyio
@pytest.mark.parametrize("driver", ["asyncpg", "psycopg"])
async def test_of_fifty_sessions_with_one_key_one_writes_and_the_others_learn_its_id(
    engine: Engine, migrated_url: URL, outbox: CountingOutbox, driver: str
) -> None:
    writers = 50
    url = migrated_url.set(drivername=f"postgresql+{driver}")
    crowd = create_async_engine(url, pool_size=writers)
    sessions = outbox.async_sessionmaker(crowd)
    barrier = asyncio.Barrier(writers)

    async def write(number: int) -> Event[Any]:
        async with sessions.begin() as session:
            await session.execute(text("SELECT 1"))
            await barrier.wait()  # each has its transaction before any adds
            session.add(Order(name=f"order {number}"))
            return session.add_event("order.placed", number, idempotency_key="k")

    try:
        events = await asyncio.gather(*(write(number) for number in range(writers)))
    finally:
        await crowd.dispose()

    (winner,) = [event for event in events if event.duplicate_of is None]
    learned = [event.duplicate_of for event in events if event is not winner]
    assert learned == [winner.event_id] * (writers - 1)
    assert ids_of(engine) == [winner.event_id]
    assert outbox.pokes == 1
    with engine.connect() as connection:  # a duplicate is no error: the data is all there
        assert len(connection.scalars(select(Order.name)).all()) == writers


@pytest.mark.anyio
async def test_of_fifty_sessions_that_roll_back_until_one_does_not_that_one_writes(
    engine: Engine, migrated_url: URL, outbox: CountingOutbox
) -> None:
    """Each holds the key when it rolls back, and must not block the next."""
    writers = 50
    url = migrated_url.set(drivername="postgresql+asyncpg")
    crowd = create_async_engine(url, pool_size=writers)
    sessions = outbox.async_sessionmaker(crowd)
    barrier = asyncio.Barrier(writers)
    turns: list[Event[Any]] = []

    async def write() -> None:
        async with sessions() as session:
            await session.execute(text("SELECT 1"))
            await barrier.wait()
            event = session.add_event("order.placed", idempotency_key="k")
            await session.flush()
            if event.duplicate_of is None:
                turns.append(event)
            await (session.commit() if len(turns) == 10 else session.rollback())

    try:
        await asyncio.gather(*(write() for _ in range(writers)))
    finally:
        await crowd.dispose()

    assert len(turns) == 10
    assert ids_of(engine) == [turns[-1].event_id]
