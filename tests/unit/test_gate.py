"""Many may be inside, or one alone; and a bell that many ring."""

from __future__ import annotations

from collections.abc import AsyncIterator

import anyio
import pytest
from anyio.lowlevel import checkpoint

from sa_outbox.consumer.shared.sync import AutoResetEvent, ExclusiveGate, Share
from tests.support import comes_true

pytestmark = pytest.mark.anyio


async def everybody_waits() -> None:
    """Let the others go on, as far as they get: none of them waits for a time."""
    for _ in range(20):
        await checkpoint()


class People:
    """Who is inside, and tasks that come and go when they are told."""

    def __init__(self, tasks: anyio.abc.TaskGroup) -> None:
        self.gate = ExclusiveGate(clock=lambda: 0.0)  # for which nobody ever owes anybody time
        self.tasks = tasks
        self.inside: set[str] = set()
        self.alone: set[str] = set()
        self._may_leave: dict[str, anyio.Event] = {}
        self._scopes: dict[str, anyio.CancelScope] = {}

    async def come(self, name: str, *, alone: bool = False) -> None:
        """One more wants to get in; returns when everybody has come as far as possible."""
        self._may_leave[name] = anyio.Event()
        self.tasks.start_soon(self._be_alone if alone else self._be_inside, name)
        await everybody_waits()
        assert not self.alone or (len(self.alone) == 1 and not self.inside)

    async def leave(self, name: str) -> None:
        self._may_leave[name].set()
        await everybody_waits()
        assert not self.alone or (len(self.alone) == 1 and not self.inside)

    async def give_up(self, name: str) -> None:
        self._scopes[name].cancel()
        await everybody_waits()

    async def _be_inside(self, name: str) -> None:
        with anyio.CancelScope() as self._scopes[name]:
            await self.gate.enter()
            self.inside.add(name)
            try:
                await self._may_leave[name].wait()
            finally:
                self.inside.remove(name)
                self.gate.leave()

    async def _be_alone(self, name: str) -> None:
        with anyio.CancelScope() as self._scopes[name]:
            async with self.gate.alone():
                self.alone.add(name)
                try:
                    await self._may_leave[name].wait()
                finally:
                    self.alone.remove(name)


@pytest.fixture
async def people() -> AsyncIterator[People]:
    async with anyio.create_task_group() as tasks:
        yield People(tasks)
        tasks.cancel_scope.cancel()


class TestGate:
    async def test_many_may_be_inside(self, people: People) -> None:
        for name in "abc":
            await people.come(name)

        assert people.inside == {"a", "b", "c"}

    async def test_one_who_wants_to_be_alone_waits_until_all_have_left(
        self, people: People
    ) -> None:
        await people.come("a")
        await people.come("b")
        await people.come("x", alone=True)
        assert not people.alone

        await people.leave("a")
        assert not people.alone
        await people.leave("b")
        assert people.alone == {"x"}

    async def test_meanwhile_nobody_else_gets_in(self, people: People) -> None:
        await people.come("a")
        await people.come("x", alone=True)
        await people.come("b")
        assert people.inside == {"a"}

        await people.leave("a")
        assert people.inside == set()
        await people.leave("x")
        assert people.inside == {"b"}

    async def test_two_who_want_to_be_alone_are_so_one_after_the_other(
        self, people: People
    ) -> None:
        await people.come("x", alone=True)
        await people.come("y", alone=True)
        assert people.alone == {"x"}

        await people.leave("x")
        assert people.alone == {"y"}

    async def test_nobody_waits_for_ever(self, people: People) -> None:
        for name in "ab":
            await people.come(name)
        for name in "xyz":
            await people.come(name, alone=True)
        for name in "cd":
            await people.come(name)

        left: list[str] = []
        while came := sorted(people.inside | people.alone):
            left += came
            for name in came:
                await people.leave(name)

        assert sorted(left) == ["a", "b", "c", "d", "x", "y", "z"]

    async def test_one_who_gives_up_waiting_to_be_alone_lets_the_others_in(
        self, people: People
    ) -> None:
        await people.come("a")
        await people.come("x", alone=True)
        await people.come("b")

        await people.give_up("x")

        assert people.inside == {"a", "b"}

    async def test_one_who_gives_up_while_alone_lets_the_others_in(self, people: People) -> None:
        await people.come("x", alone=True)
        await people.come("a")

        await people.give_up("x")

        assert people.inside == {"a"}

    async def test_one_who_gives_up_waiting_to_get_in_does_not_count_as_inside(
        self, people: People
    ) -> None:
        await people.come("x", alone=True)
        await people.come("a")
        await people.give_up("a")
        await people.leave("x")

        await people.come("y", alone=True)

        assert people.alone == {"y"}

    async def test_an_error_of_the_one_alone_opens_the_gate(self, people: People) -> None:
        with pytest.raises(LookupError):
            async with people.gate.alone():
                raise LookupError

        await people.come("a")
        assert people.inside == {"a"}


class TestBell:
    async def test_a_ring_before_the_wait_is_heard(self) -> None:
        bell = AutoResetEvent()

        bell.ring()

        assert await bell.wait(0) is True

    async def test_rings_that_were_not_heard_yet_are_one(self) -> None:
        bell = AutoResetEvent()

        for _ in range(3):
            bell.ring()

        assert await bell.wait(0) is True
        assert await bell.wait(0) is False

    async def test_a_ring_ends_a_wait_without_a_limit(self) -> None:
        bell = AutoResetEvent()
        heard: list[bool] = []

        async def listen() -> None:
            heard.append(await bell.wait())

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(listen)
            await everybody_waits()
            assert heard == []
            bell.ring()

        assert heard == [True]

    async def test_a_ring_ends_a_wait_with_a_limit_before_its_time(self) -> None:
        bell = AutoResetEvent()
        heard: list[bool] = []

        async def listen() -> None:
            heard.append(await bell.wait(60))

        with anyio.fail_after(20):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(listen)
                await everybody_waits()
                bell.ring()

        assert heard == [True]

    @pytest.mark.parametrize("seconds", [0, -5, 0.001])
    async def test_without_a_ring_the_time_ends_the_wait(self, seconds: float) -> None:
        assert await AutoResetEvent().wait(seconds) is False

    async def test_a_ring_during_the_work_is_heard_afterwards(self) -> None:
        bell = AutoResetEvent()
        bell.ring()
        await bell.wait()

        bell.ring()  # while the one who listens works

        assert await bell.wait(0) is True

    async def test_a_wait_that_is_cancelled_takes_no_ring_away(self) -> None:
        bell = AutoResetEvent()
        with anyio.move_on_after(0):
            await bell.wait()

        bell.ring()

        assert await bell.wait(0) is True


class TestShare:
    def test_at_first_nobody_is_owed_anything(self) -> None:
        assert Share().open_until <= 0

    def test_the_others_get_four_times_as_long(self) -> None:
        share = Share()

        share.was_closed(10.0, 12.0)

        assert share.open_until == pytest.approx(20.0)

    def test_over_time_a_fifth_goes_to_those_alone(self) -> None:
        share, now, alone = Share(), 0.0, 0.0
        for seconds in (0.1, 3.0, 0.5, 1.0, 2.4):
            now = max(now, share.open_until)
            share.was_closed(now, now + seconds)
            now, alone = now + seconds, alone + seconds

        assert alone / share.open_until == pytest.approx(0.2)


class TestTurns:
    """With a clock that the test moves."""

    @pytest.fixture
    async def crowd(self, people: People) -> People:
        """One was alone from 0 to 10, and one is inside since."""
        self.now, self.asked = 0.0, 0
        people.gate = ExclusiveGate(clock=self._clock)
        await people.come("x", alone=True)
        self.now = 10.0
        await people.leave("x")
        await people.come("a")
        return people

    async def test_the_next_one_waits_while_the_others_use_their_time(self, crowd: People) -> None:
        await crowd.come("y", alone=True)
        self.now, asked = 49.0, self.asked
        await comes_true(lambda: self.asked > asked + 3)
        await crowd.come("b")
        assert crowd.inside == {"a", "b"}
        assert not crowd.gate.is_closed

        self.now = 51.0
        await comes_true(lambda: crowd.gate.is_closed)
        await crowd.leave("a")
        await crowd.leave("b")
        assert crowd.alone == {"y"}

    async def test_time_that_nobody_uses_is_not_waited_for(self, crowd: People) -> None:
        await crowd.come("y", alone=True)
        await crowd.leave("a")

        await comes_true(lambda: crowd.alone == {"y"})

    async def test_one_whose_listener_is_stopped_does_not_wait(self, crowd: People) -> None:
        stopping, got = False, []

        async def want() -> None:
            async with crowd.gate.alone(unless=lambda: stopping) as is_alone:
                got.append(is_alone)

        crowd.tasks.start_soon(want)
        await everybody_waits()
        assert got == []

        stopping = True

        await comes_true(lambda: got == [False])
        assert not crowd.gate.is_closed

    def _clock(self) -> float:
        self.asked += 1
        return self.now
