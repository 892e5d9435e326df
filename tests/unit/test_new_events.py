"""Reading ahead: when the next batch is read, when it is taken in, and when it is dropped."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import anyio
import pytest

from sa_outbox.consumer.lease.continuity import Continuity
from sa_outbox.consumer.loop.new_events import AHEAD_SECONDS, NewEvents
from sa_outbox.consumer.position.horizon import Horizon
from sa_outbox.consumer.position.progress import Progress
from tests.support.log_model import Log, finished

from .test_reading import LogOf, make_reader


class Bench:
    """Ten events, all final; the first four are taken in, and the next four are to be read."""

    def __init__(self) -> None:
        log = Log()
        log.visible = log.matching = set(range(1, 11))
        self.horizon = Horizon()
        self.horizon.observe(10, set())
        self.continuity = Continuity(self.horizon)
        lease: Any = SimpleNamespace(barrier=None)
        self.lease = lease
        self.progress = Progress(0)
        reader = make_reader("key")
        answers: Any = LogOf(log, reader)
        self.log = answers
        self.new = NewEvents(reader, lease, self.progress, self.horizon, self.continuity, answers)
        assert self.take(4) == [1, 2, 3, 4]
        assert self.new.starts_ahead(0.0)

    def read_ahead(self) -> None:
        finished(self.new.read_ahead(4))

    def take(self, room: int) -> list[int]:
        rows, _ = finished(self.new.take(room, 0.0))
        return [row.position for row in rows]


def test_what_is_read_ahead_counts_as_read_when_it_is_taken_in() -> None:
    bench = Bench()

    bench.read_ahead()

    assert bench.progress.read_to == 4
    asked = len(bench.log.asked)
    assert bench.take(4) == [5, 6, 7, 8]
    assert bench.progress.read_to == 8
    assert len(bench.log.asked) == asked


def test_where_there_is_less_room_the_rest_waits() -> None:
    bench = Bench()
    bench.read_ahead()

    assert bench.take(3) == [5, 6, 7]
    assert bench.progress.read_to == 7
    assert not bench.new.starts_ahead(0.0)
    assert bench.take(3) == [8]
    assert bench.new.starts_ahead(0.0)


def test_while_it_is_read_there_is_nothing_to_take_and_nothing_to_do() -> None:
    bench = Bench()

    assert bench.take(4) == []
    assert bench.new.next_at() is None
    assert not bench.new.starts_ahead(0.0)


def test_slow_handlers_are_not_read_ahead_for() -> None:
    bench = Bench()
    bench.read_ahead()
    bench.take(4)

    assert not bench.new.starts_ahead(AHEAD_SECONDS)


def test_it_is_read_again_if_memory_was_in_doubt() -> None:
    bench = Bench()
    bench.read_ahead()

    bench.continuity.doubt()
    bench.continuity.confirm(bench.continuity.era)

    assert not bench.new.are_there(0.0)
    bench.horizon.observe(10, set())
    asked = len(bench.log.asked)
    assert bench.take(2) == [5, 6]
    assert len(bench.log.asked) == asked + 1


@pytest.mark.parametrize(("before", "after", "taken"), [(None, 6, [5, 6]), (6, None, [5, 6, 7, 8])])
def test_it_is_read_again_if_a_barrier_was_set_or_lifted(
    before: int | None, after: int | None, taken: list[int]
) -> None:
    bench = Bench()
    bench.lease.barrier = before
    bench.read_ahead()

    bench.lease.barrier = after

    assert bench.take(4) == taken


def test_what_failed_is_raised_where_it_would_be_taken() -> None:
    bench = Bench()

    async def refuse(*_: object, **__: object) -> list[Any]:
        raise ConnectionError

    answer, bench.log.rows = bench.log.rows, refuse
    bench.read_ahead()
    bench.horizon.forget()

    assert bench.new.are_there(0.0)
    assert bench.new.next_at() == 0.0
    with pytest.raises(ConnectionError):
        bench.take(4)
    bench.log.rows = answer
    bench.horizon.observe(10, set())
    assert bench.take(4) == [5, 6, 7, 8]


def test_what_is_offered_meanwhile_is_left_to_the_read() -> None:
    bench = Bench()

    bench.new.offer(bench.log.log.read(cursor=4, upper=6, limit=2))

    assert bench.new.take_offered(10) == []


def test_a_look_that_shows_nothing_new_wakes_nobody() -> None:
    bench = Bench()
    bench.read_ahead()
    assert bench.new.show_more(bench.horizon.observe(10, set())), "it is not all taken in"
    bench.take(10)
    bench.take(10)

    look = bench.horizon.observe(10, {"a writer"})

    assert not bench.new.show_more(look)
    assert bench.new.are_all_final(look.number)
    assert not bench.new.are_there(0.0)
    assert bench.new.show_more(bench.horizon.observe(11, set()))


def test_a_look_is_taken_in_while_an_event_is_missing() -> None:
    bench = Bench()
    bench.read_ahead()
    bench.take(10)
    bench.take(10)
    bench.progress.holes.add(7, 7)

    assert bench.new.show_more(bench.horizon.observe(10, {"a writer"}))


@pytest.mark.anyio
async def test_whoever_ends_waits_for_a_read_that_is_under_way() -> None:
    bench = Bench()
    answer, wait = bench.log.rows, anyio.Event()

    async def later(*given: Any, **values: Any) -> Any:
        await wait.wait()
        return await answer(*given, **values)

    bench.log.rows = later
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(bench.new.read_ahead, 4)
        with anyio.move_on_after(0.01) as waiting:
            await bench.new.close()
        assert waiting.cancelled_caught
        wait.set()
        await bench.new.close()
    await bench.new.close()
