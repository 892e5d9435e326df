"""Which events a listener reads next: eagerly by key, or one after the other over the holes."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from copy import copy
from datetime import timedelta
from functools import cache
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sa_outbox.consumer.lease.continuity import Continuity
from sa_outbox.consumer.loop import reader as reading
from sa_outbox.consumer.loop.new_events import NewEvents
from sa_outbox.consumer.loop.reader import Reader, up_to_a_hole
from sa_outbox.consumer.position.gaps import Gaps
from sa_outbox.consumer.position.horizon import HorizonSnapshot
from sa_outbox.consumer.position.progress import Progress
from sa_outbox.database.tables import tables
from sa_outbox.declare.listener import Listener
from sa_outbox.event.row import PAYLOAD
from sa_outbox.policy.order import Order
from sa_outbox.settings import Names
from tests.support.log_model import Consuming, Log, Row, finished

TABLES = tables(Names())


async def handler(event: Any) -> None:
    raise NotImplementedError


@cache
def _reader(order: Order, gap_wait: float | None) -> Reader:
    wait = None if gap_wait is None else timedelta(seconds=gap_wait)
    listener = Listener(name="l", handler=handler, on=("a",), order=order, gap_wait=wait)
    return Reader(listener, TABLES)


def make_reader(order: Order, gap_wait: float | None = None) -> Reader:
    return copy(_reader(order, gap_wait))  # made once: rendering its statements takes long


class Large(Row):
    """Its payload was left out."""

    def __getitem__(self, column: int) -> Any:
        return None if column == PAYLOAD else super().__getitem__(column)


class LogOf:
    """Answers the three statements of a reader from a log in memory."""

    def __init__(self, log: Log, reader: Reader) -> None:
        self.log = log
        self.reader = reader
        self.asked: list[dict[str, Any]] = []

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[LogOf]:
        yield self

    async def rows(self, query: object, **values: Any) -> list[Row]:
        self.asked.append(values)
        bounds = {name: values[name] for name in ("cursor", "upper", "limit")}
        if query is self.reader._final:
            everything = self.log.read(**{**bounds, "limit": 10**6})
            return [row for row in everything if row.matches][: bounds["limit"]]
        if query is self.reader._all:
            return self.log.read(**bounds)
        assert query is self.reader._with_gaps
        return self.log.read(**bounds, gaps=zip(values["lows"], values["highs"], strict=True))


class Reading(Consuming):
    """A listener with the real reader."""

    order: Order = "key"
    gap_wait: float | None = None

    def restart(self) -> None:
        super().restart()
        self.reader = make_reader(self.order, self.gap_wait)
        self.offered: list[Row] = []

    def further_steps(self) -> dict[Callable[[], None], float]:
        return {self.is_offered_some: 2, self.takes_what_is_offered: 2}

    def is_offered_some(self) -> None:
        """Read without a snapshot, for all listeners; taken later, when the pump comes to it."""
        above = max(0, self.progress.read_to - self.random.randint(0, 2))
        self.offered = self.log.read(cursor=above, upper=10**6, limit=self.random.choice([2, 32]))
        self.emit(f"is offered {self.offered}")

    def takes_what_is_offered(self) -> None:
        room = self.random.choice([1, 3, 1000])
        found = [row[0] for row in self.reader.take(self.offered, self.progress, room)]
        self.emit(f"takes {found} of it, room {room}")
        self.taken(found)
        self.deliver(found)

    def taken(self, found: list[int]) -> None:
        pass

    def read_on(self, snapshot: HorizonSnapshot, room: int) -> tuple[list[int], bool]:
        return self.read_at(0.0, snapshot, room)

    def read_at(self, now: float, snapshot: HorizonSnapshot, room: int) -> tuple[list[int], bool]:
        connections: Any = LogOf(self.log, self.reader)
        work = self.reader.read(connections, self.progress, snapshot, room=room, now=now)
        rows, more = finished(work)
        return [row.position for row in rows], more


class ReadingAhead(Reading):
    """A listener whose next batch is read at any moment, and taken in at any later one, or never.

    With the real ``NewEvents``. Looks, commits and reconnects come in between; so does doubt, and
    barriers that are set and lifted.
    """

    def restart(self) -> None:
        super().restart()
        self.continuity = Continuity(self.horizon)
        lease: Any = SimpleNamespace(barrier=None)
        self.lease = lease
        connections: Any = LogOf(self.log, self.reader)
        self.new = NewEvents(
            self.reader, self.lease, self.progress, self.horizon, self.continuity, connections
        )
        self.is_reading = False

    def further_steps(self) -> dict[Callable[[], None], float]:
        ahead = {self.begins_to_read_ahead: 8, self.reads_ahead: 6, self.is_offered_some: 2}
        return {**ahead, self.doubts: 0.3, self.sets_a_barrier: 0.4, self.lifts_the_barrier: 1}

    def begins_to_read_ahead(self) -> None:
        if self.new.starts_ahead(0.0):
            assert not self.is_reading, "two reads at once"
            self.is_reading = True
            self.emit("begins to read ahead")

    def reads_ahead(self) -> None:
        if self.is_reading:
            self.is_reading = False
            finished(self.new.read_ahead(self.random.choice([1, 3, 1000])))
            self.emit(f"has read ahead {self.new._batch and self.new._batch.rows}")

    def is_offered_some(self) -> None:
        super().is_offered_some()
        self.new.offer(self.offered)

    def doubts(self) -> None:
        self.emit("is in doubt")
        self.continuity.doubt()

    def sets_a_barrier(self) -> None:
        self.lease.barrier = self.progress.read_to + self.random.randint(0, 2)
        self.emit(f"has a barrier at {self.lease.barrier}")

    def lifts_the_barrier(self) -> None:
        self.lease.barrier = None
        self.emit("has no barrier")

    def take_in(self, room: int) -> bool:
        offered = [row[0] for row in self.new.take_offered(room)]
        self.emit(f"takes {offered} of what is offered; then {self.progress.holes}")
        self.taken(offered)
        self.deliver(offered)
        if self.new.are_there(0.0):
            rows, _ = finished(self.new.take(room, 0.0))
            found = [row.position for row in rows]
            self.emit(f"takes in {found}, room {room}; then {self.progress.holes}")
            barrier = self.lease.barrier
            assert barrier is None or all(each <= barrier for each in found), "above the barrier"
            self.taken(found)
            self.deliver(found)
        return self.new.next_at() == 0.0

    def come_to_an_end(self) -> None:
        self.lifts_the_barrier()
        self.reads_ahead()
        super().come_to_an_end()


class ReadingAheadInOrder(ReadingAhead):
    order = "total"
    settles_in_order = True

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.delivered: list[int] = []

    def taken(self, found: list[int]) -> None:
        self.delivered += [each for each in found if each not in self.delivered]
        assert not self.progress.holes, "a hole was passed"

    def come_to_an_end(self) -> None:
        super().come_to_an_end()
        assert self.delivered == sorted(self.delivered)


class ReadingInOrder(Reading):
    order = "total"
    settles_in_order = True

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.delivered: list[int] = []

    def read_on(self, snapshot: HorizonSnapshot, room: int) -> tuple[list[int], bool]:
        found, more = super().read_on(snapshot, room)
        self.taken(found)
        return found, more

    def taken(self, found: list[int]) -> None:
        self.delivered += [each for each in found if each not in self.delivered]
        assert not self.progress.holes, "a hole was passed"

    def come_to_an_end(self) -> None:
        super().come_to_an_end()
        assert self.delivered == sorted(self.delivered)


class ReadingWithPatience(Reading):
    """Goes on after ``gap_wait``; each hole has to be waited for so long."""

    order = "total"
    settles_in_order = True
    gap_wait = 10.0

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.now = 1000.0

    def restart(self) -> None:
        super().restart()
        self.seen: list[tuple[float, int]] = []
        """The time of each read of this life, and the ceiling then."""

    def further_steps(self) -> dict[Callable[[], None], float]:
        return {**super().further_steps(), self.let_time_pass: 3}

    def let_time_pass(self) -> None:
        self.now += self.random.choice([1, 3, 6, 10])
        self.emit(f"it is {self.now:g}")

    def read_on(self, snapshot: HorizonSnapshot, room: int) -> tuple[list[int], bool]:
        found, more = self.read_at(self.now, snapshot, room)
        self.seen.append((self.now, snapshot.ceiling))
        waited_for = max((top for time, top in self.seen if time <= self.now - 10), default=0)
        known = Gaps.parse(self.stored.gaps)
        for each in found:
            for open_id in self.log.may_appear:
                if open_id < each and open_id not in known and open_id > self.stored.position:
                    assert open_id < waited_for, f"{each} came before {open_id}, without waiting"
        return found, more


class TestAnyOrderOfEvents:
    @given(st.integers(0))
    def test_by_key_nothing_is_lost_and_nothing_settled_comes_again(self, seed: int) -> None:
        Reading(seed).play(steps=150)

    @given(st.integers(0))
    def test_in_total_order_every_event_comes_after_those_before_it(self, seed: int) -> None:
        ReadingInOrder(seed).play(steps=150)

    @given(st.integers(0))
    def test_what_is_read_ahead_is_as_good_when_it_is_taken_in(self, seed: int) -> None:
        ReadingAhead(seed).play(steps=200)

    @given(st.integers(0))
    def test_in_total_order_too(self, seed: int) -> None:
        ReadingAheadInOrder(seed).play(steps=200)

    @given(st.integers(0))
    def test_a_hole_is_passed_only_when_it_was_waited_for(self, seed: int) -> None:
        ReadingWithPatience(seed).play(steps=400)

    @given(st.integers(0))
    def test_with_too_many_holes_nothing_is_lost_either(self, seed: int) -> None:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(reading, "MAX_HOLES", 2)
            Reading(seed).play(steps=150)


class TestTakingWhatWasReadWithoutALook:
    def take(self, ids: list[int], *, read_to: int, room: int = 10) -> tuple[list[int], int]:
        progress = Progress(read_to)
        rows = [Row(each, matches=each != 5) for each in ids]
        taken = make_reader("key").take(rows, progress, room)
        return [row[0] for row in taken], progress.read_to

    def test_without_a_hole_it_is_as_good_as_any_read(self) -> None:
        assert self.take([4, 5, 6], read_to=3) == ([4, 6], 6)

    def test_what_was_read_meanwhile_is_not_taken_again(self) -> None:
        assert self.take([4, 5, 6], read_to=5) == ([6], 6)
        assert self.take([4, 5, 6], read_to=7) == ([], 7)

    @pytest.mark.parametrize("ids", [[5, 6], [4, 6], []])
    def test_a_hole_takes_a_look(self, ids: list[int]) -> None:
        assert self.take(ids, read_to=3) == ([], 3)

    def test_where_there_is_no_room_nothing_is_taken(self) -> None:
        assert self.take([4, 5, 6], read_to=3, room=2) == ([], 3)

    def test_an_event_too_large_for_a_plain_read_takes_a_look_of_those_who_want_it(self) -> None:
        mine, of_others = [Row(4), Large(5)], [Row(4), Large(5, matches=False)]
        for rows, taken in ((mine, []), (of_others, [4])):
            found = make_reader("key").take(rows, Progress(3), 10)
            assert [row[0] for row in found] == taken

    def test_while_an_earlier_event_may_come_nothing_is_taken(self) -> None:
        progress = Progress(3, Gaps([(2, 2)]).dump())
        assert make_reader("key").take([Row(4)], progress, 10) == []


class TestUpToAHole:
    def cut(self, ids: list[int], *, read_to: int, reach: int) -> tuple[list[int], int, int | None]:
        rows, edge, hole = up_to_a_hole([Row(each) for each in ids], read_to=read_to, reach=reach)
        return [row[0] for row in rows], edge, hole

    def test_without_a_hole_everything_is_taken(self) -> None:
        assert self.cut([4, 5, 6], read_to=3, reach=0) == ([4, 5, 6], 6, None)

    def test_the_first_hole_ends_it(self) -> None:
        assert self.cut([4, 5, 7, 9], read_to=3, reach=0) == ([4, 5], 5, 6)

    def test_a_hole_may_be_the_very_next_id(self) -> None:
        assert self.cut([5], read_to=3, reach=0) == ([], 3, 4)

    def test_holes_within_reach_do_not_count(self) -> None:
        assert self.cut([5, 8, 9, 11], read_to=3, reach=8) == ([5, 8, 9], 9, 10)

    def test_late_events_below_what_was_read_are_taken(self) -> None:
        assert self.cut([1, 3, 8, 10], read_to=7, reach=0) == ([1, 3, 8], 8, 9)

    def test_nothing_is_no_hole(self) -> None:
        assert self.cut([], read_to=3, reach=5) == ([], 5, None)

    @given(
        st.sets(st.integers(1, 30)).map(sorted),
        st.integers(0, 30),
        st.integers(0, 30),
    )
    def test_it_takes_all_before_the_hole_and_every_id_it_passes_is_there_or_within_reach(
        self, ids: list[int], read_to: int, reach: int
    ) -> None:
        taken, edge, hole = self.cut(ids, read_to=read_to, reach=reach)

        assert taken == [each for each in ids if each <= edge]
        assert all(each in ids for each in range(max(read_to, reach) + 1, edge + 1))
        assert hole == (None if taken == ids else edge + 1)
        assert hole not in ids


def look_at(ceiling: int, *, final: int = 0) -> HorizonSnapshot:
    return HorizonSnapshot(number=1, ceiling=ceiling, final=final, writers=1)


class Bench:
    """A reader over a log whose visible ids are set by hand."""

    def __init__(self, *visible: int, order: Order, gap_wait: float | None = None) -> None:
        self.log = Log()
        self.show(*visible)
        self.progress = Progress(0)
        self.reader = make_reader(order, gap_wait)
        self.connections = LogOf(self.log, self.reader)

    def show(self, *ids: int, matching: bool = True) -> None:
        self.log.visible |= set(ids)
        if matching:
            self.log.matching |= set(ids)

    def read(
        self, snapshot: HorizonSnapshot, *, room: int = 100, now: float = 0.0
    ) -> tuple[list[int], bool]:
        connections: Any = self.connections
        work = self.reader.read(connections, self.progress, snapshot, room=room, now=now)
        rows, more = finished(work)
        return [row[0] for row in rows], more


class TestByKey:
    def test_what_is_visible_is_read_and_the_holes_are_noted(self) -> None:
        bench = Bench(1, 3, order="key")

        assert bench.read(look_at(3)) == ([1, 3], False)
        assert bench.progress.holes == Gaps([(2, 2)])
        assert bench.reader.hole is None

    def test_a_late_event_is_read_with_the_new_ones(self) -> None:
        bench = Bench(1, 3, order="key")
        bench.read(look_at(3))
        bench.show(2, 4)

        assert bench.read(look_at(4)) == ([2, 4], False)
        assert not bench.progress.holes

    def test_what_became_visible_after_the_look_is_left_for_the_next(self) -> None:
        bench = Bench(1, 2, order="key")

        assert bench.read(look_at(1)) == ([1], False)
        assert bench.read(look_at(2)) == ([2], False)

    def test_of_what_is_final_only_the_listeners_types_are_read(self) -> None:
        bench = Bench(2, 5, order="key")
        bench.show(1, 3, 4, matching=False)

        assert bench.read(look_at(5, final=5), room=2) == ([2, 5], True)
        assert bench.read(look_at(5, final=5), room=2) == ([], False)

    def test_after_what_is_final_there_is_more_up_to_the_ceiling(self) -> None:
        bench = Bench(1, 2, 4, order="key")

        assert bench.read(look_at(4, final=2)) == ([1, 2], True)
        assert bench.read(look_at(4, final=2)) == ([4], False)
        assert bench.progress.holes == Gaps([(3, 3)])

    def test_a_full_read_means_that_there_may_be_more(self) -> None:
        bench = Bench(1, 2, 3, order="key")

        assert bench.read(look_at(3), room=2) == ([1, 2], True)
        assert bench.read(look_at(3), room=2) == ([3], False)

    def test_without_anything_new_no_statement_is_run(self) -> None:
        bench = Bench(1, order="key")
        bench.read(look_at(1))
        bench.connections.asked.clear()

        assert bench.read(look_at(1)) == ([], False)
        assert bench.connections.asked == []

    def test_with_too_many_holes_only_those_are_read(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(reading, "MAX_HOLES", 2)
        bench = Bench(2, 4, order="key")
        bench.read(look_at(4))
        bench.show(1, 6)

        assert bench.read(look_at(6)) == ([1], False)
        assert bench.progress.read_to == 4
        assert bench.read(look_at(6)) == ([6], False)


class TestInTotalOrder:
    def test_it_stops_before_a_hole(self) -> None:
        bench = Bench(1, 2, 4, 5, order="total")

        assert bench.read(look_at(5)) == ([1, 2], False)
        assert bench.reader.hole == 3
        assert bench.progress.read_to == 2

    def test_it_goes_on_when_the_hole_is_filled(self) -> None:
        bench = Bench(1, 3, 4, order="total")
        bench.read(look_at(4))
        bench.show(2)

        assert bench.read(look_at(4)) == ([2, 3, 4], False)
        assert bench.reader.hole is None

    def test_it_goes_on_when_the_hole_is_final(self) -> None:
        bench = Bench(1, 3, 4, order="total")
        bench.read(look_at(4))

        assert bench.read(look_at(4, final=4)) == ([3, 4], False)
        assert bench.reader.hole is None
        assert not bench.progress.holes

    def test_it_stops_at_a_hole_although_there_was_no_room_for_what_is_behind(self) -> None:
        bench = Bench(1, 3, 4, 5, order="total")

        assert bench.read(look_at(5), room=2) == ([1], False)
        assert bench.reader.hole == 2

    def test_it_reads_on_while_ids_follow_each_other_and_nothing_is_final(self) -> None:
        bench = Bench(1, 2, order="total")
        bench.read(look_at(2))
        bench.show(3, 4)

        assert bench.read(look_at(4)) == ([3, 4], False)

    def test_without_gap_wait_it_waits_for_ever(self) -> None:
        bench = Bench(2, order="total")
        bench.read(look_at(2), now=0)

        assert bench.reader.waits_until is None
        assert bench.read(look_at(2), now=1e9) == ([], False)


class TestGapWait:
    def test_before_its_time_a_hole_is_not_passed(self) -> None:
        bench = Bench(1, 3, order="total", gap_wait=10)
        bench.read(look_at(3), now=100)

        assert bench.reader.waits_until == 110
        assert bench.read(look_at(3), now=109.9) == ([], False)
        assert bench.reader.waits_until == 110

    def test_then_all_holes_below_the_ceiling_of_that_moment_are_passed(self) -> None:
        bench = Bench(1, 3, 5, 6, order="total", gap_wait=10)
        bench.read(look_at(6), now=100)

        assert bench.read(look_at(6), now=110) == ([3, 5, 6], False)
        assert bench.progress.holes == Gaps([(2, 2), (4, 4)])
        assert bench.reader.hole is None

    def test_a_hole_above_that_ceiling_is_waited_for_anew(self) -> None:
        bench = Bench(1, 3, order="total", gap_wait=10)
        bench.read(look_at(3), now=100)
        bench.show(4, 6)

        assert bench.read(look_at(6), now=105) == ([], False)
        assert bench.read(look_at(6), now=110) == ([3, 4], False)
        assert bench.reader.hole == 5
        assert bench.reader.waits_until == 120
        assert bench.read(look_at(6), now=119) == ([], False)
        assert bench.read(look_at(6), now=120) == ([6], False)

    def test_the_wait_for_one_hole_is_no_wait_for_the_next(self) -> None:
        bench = Bench(2, 4, order="total", gap_wait=10)
        bench.read(look_at(4), now=100)
        bench.show(1)

        assert bench.read(look_at(4), now=109) == ([1, 2], False)
        assert bench.read(look_at(4), now=110) == ([], False)
        assert bench.reader.waits_until == 119

    def test_an_event_that_was_passed_comes_when_it_commits(self) -> None:
        bench = Bench(1, 3, order="total", gap_wait=10)
        bench.read(look_at(3), now=100)
        bench.read(look_at(3), now=110)
        bench.show(2, 4)

        assert bench.read(look_at(4), now=111) == ([2, 4], False)
        assert not bench.progress.holes

    def test_with_little_room_it_passes_them_step_by_step(self) -> None:
        bench = Bench(2, 4, 6, order="total", gap_wait=10)
        bench.read(look_at(6), room=1, now=100)

        assert bench.read(look_at(6), room=1, now=110) == ([2], True)
        assert bench.read(look_at(6), room=1, now=110) == ([4], True)
        assert bench.read(look_at(6), room=1, now=110) == ([6], True)
        assert bench.progress.holes == Gaps([(1, 1), (3, 3), (5, 5)])

    def test_a_full_read_of_late_events_takes_back_nothing_of_what_was_passed(self) -> None:
        bench = Bench(2, 4, order="total", gap_wait=10)
        bench.read(look_at(4), now=100)
        bench.read(look_at(4), now=110)
        bench.show(1, 3)

        assert bench.read(look_at(4), room=1, now=111) == ([1], True)
        assert bench.progress.holes == Gaps([(3, 3)])
        assert bench.progress.read_to == 4
