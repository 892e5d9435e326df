"""Many may be inside, or one alone; and a bell that many ring."""

from __future__ import annotations

from collections.abc import AsyncIterator

import anyio
import pytest
from anyio.lowlevel import checkpoint

from sa_outbox.consumer.gate import Bell, Gate

pytestmark = pytest.mark.anyio


async def everybody_waits() -> None:
    """Let the others go on, as far as they get: none of them waits for a time."""
    for _ in range(20):
        await checkpoint()


class People:
    """Who is inside, and tasks that come and go when they are told."""

    def __init__(self, tasks: anyio.abc.TaskGroup) -> None:
        self.gate = Gate()
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
        bell = Bell()

        bell.ring()

        assert await bell.wait(0) is True

    async def test_rings_that_were_not_heard_yet_are_one(self) -> None:
        bell = Bell()

        for _ in range(3):
            bell.ring()

        assert await bell.wait(0) is True
        assert await bell.wait(0) is False

    async def test_a_ring_ends_a_wait_without_a_limit(self) -> None:
        bell = Bell()
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
        bell = Bell()
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
        assert await Bell().wait(seconds) is False

    async def test_a_ring_during_the_work_is_heard_afterwards(self) -> None:
        bell = Bell()
        bell.ring()
        await bell.wait()

        bell.ring()  # while the one who listens works

        assert await bell.wait(0) is True

    async def test_a_wait_that_is_cancelled_takes_no_ring_away(self) -> None:
        bell = Bell()
        with anyio.move_on_after(0):
            await bell.wait()

        bell.ring()

        assert await bell.wait(0) is True
