"""The clock that tests move."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy import insert

from sa_outbox.clock import Clock
from sa_outbox.clock import clock as the_clock
from sa_outbox.consumer.connection.connections import Query
from sa_outbox.database.tables import tables
from sa_outbox.settings import Names
from sa_outbox.sql.listener import deliveries
from sa_outbox.sql.log import partitions
from sa_outbox.sql.server.timed_text import text
from sa_outbox.sql.server.times import NOW, literal_now

MOMENT = datetime(2026, 3, 29, 1, 30, tzinfo=UTC)


def moved(**units: float) -> Clock:
    clock = Clock()
    clock.advance(**units)
    return clock


def test_one_that_was_not_moved_leaves_the_time_to_the_server() -> None:
    assert Clock().now() is None
    assert Clock().seconds_ahead == 0
    assert abs(Clock().current() - datetime.now(UTC)) < timedelta(minutes=1)


def test_moves_add_up() -> None:
    clock = moved(days=3)
    clock.advance(hours=1)

    assert clock.seconds_ahead == 73 * 3600
    assert clock.now() is not None
    assert abs(clock.current() - datetime.now(UTC) - timedelta(hours=73)) < timedelta(minutes=1)


def test_it_runs_on_from_where_it_was_moved_to() -> None:
    clock = Clock()
    clock.move_to(MOMENT)

    first, second = clock.current(), clock.current()

    assert MOMENT <= first <= second < MOMENT + timedelta(minutes=1)


def test_reset_is_the_clock_of_the_server_again() -> None:
    clock = moved(days=3)
    clock.reset()
    assert clock.now() is None

    clock.freeze()
    clock.reset()
    assert clock.now() is None


def test_frozen_it_stands_still_where_it_is_or_is_put() -> None:
    clock = moved(days=3)
    stopped = clock.freeze()

    assert abs(stopped - datetime.now(UTC) - timedelta(days=3)) < timedelta(minutes=1)
    assert clock.now() == clock.current() == clock.now() == stopped
    assert clock.freeze(MOMENT) == clock.current() == MOMENT


def test_frozen_it_is_moved_and_stays_frozen() -> None:
    clock = Clock()
    clock.freeze(MOMENT)

    clock.advance(days=3)
    assert clock.current() == MOMENT + timedelta(days=3)
    clock.move_to(MOMENT)
    assert clock.current() == MOMENT


def test_what_waits_in_python_waits_for_the_frozen_time() -> None:
    """``monotonic() + seconds_ahead`` stands still, too."""
    clock = Clock()
    clock.freeze(datetime.now(UTC) + timedelta(hours=1))

    first = clock.seconds_ahead
    while (second := clock.seconds_ahead) == first:
        pass

    assert second < first <= 3600


def test_it_stands_still_for_a_while_and_runs_on_from_there() -> None:
    clock = moved(days=3)

    with clock.standing_still():
        stopped = clock.current()
        with clock.standing_still():
            assert clock.current() == stopped
        assert clock.current() == stopped
        clock.advance(days=1)

    assert clock.ahead == timedelta(days=4)


def test_one_that_was_reset_meanwhile_stays_reset() -> None:
    clock = moved(days=3)
    with clock.standing_still():
        clock.reset()

    assert clock.now() is None


def test_a_moment_without_a_time_zone_is_refused() -> None:
    clock = Clock()
    for move in (clock.move_to, clock.freeze):
        with pytest.raises(TypeError):
            move(datetime(2026, 3, 1))  # noqa: DTZ001 - the subject
    assert clock.now() is None


def test_those_who_watch_are_called_after_each_move_and_not_once_they_are_gone() -> None:
    clock, seen = Clock(), list[float]()
    with clock.watched(lambda: seen.append(clock.seconds_ahead)):
        clock.advance(seconds=5)
        clock.reset()
    clock.advance(seconds=9)

    assert seen == [5, 0]
    assert clock.moves == 3


class TestAStatement:
    @pytest.fixture(autouse=True)
    def _back(self) -> Iterator[None]:
        yield
        the_clock.reset()

    def test_reads_its_time_whenever_it_is_run(self) -> None:
        query = Query(text(f"SELECT {NOW}, {NOW}"))

        assert query.arguments({}) == [None]
        the_clock.move_to(MOMENT)
        [now] = query.arguments({})
        assert MOMENT <= now < MOMENT + timedelta(minutes=1)
        the_clock.freeze(MOMENT)
        assert query.arguments({}) == [MOMENT]
        the_clock.reset()
        assert query.arguments({}) == [None]

    def test_takes_a_time_that_its_caller_passes(self) -> None:
        the_clock.advance(days=3)

        assert Query(text(f"SELECT {NOW}")).arguments({"now": MOMENT}) == [MOMENT]

    def test_without_a_time_has_no_bind_for_it(self) -> None:
        assert Query(text("SELECT 1")).arguments({}) == []
        assert Query(insert(tables(Names()).consumers).values(owner="a")).arguments({}) == ["a"]

    def test_that_takes_no_binds_has_the_time_in_its_text(self) -> None:
        made = tables(Names())

        def drop() -> str:
            return str(partitions.drop(made, "outbox_p0", 0, 10, older_than=1, patience=1))

        assert literal_now() == "clock_timestamp()"
        assert "clock_timestamp()" in drop()
        the_clock.move_to(MOMENT)
        assert "CAST('2026-03-29T01:3" in drop()
        assert "clock_timestamp()" not in drop()

    def test_has_one_argument_for_all_its_times(self) -> None:
        query = Query(deliveries.promote(tables(Names())))

        assert query.sql.count("clock_timestamp()") > 1
        assert query.arguments({}).count(None) >= 1
        the_clock.move_to(MOMENT)
        assert sum(isinstance(each, datetime) for each in query.arguments({})) == 1
