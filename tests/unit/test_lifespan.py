"""What ``@outbox.lifespan`` takes, and what becomes of it while a consumer runs."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from sa_outbox import Outbox
from sa_outbox.consumer.lifespans import Lifespans
from sa_outbox.errors import ConfigError, LifespanError

pytestmark = pytest.mark.anyio

MOMENT = 0.05
PLENTY = 60.0


@pytest.fixture
def outbox() -> Outbox:
    return Outbox()


def lifespans(outbox: Outbox, seconds: float = PLENTY) -> Lifespans:
    return Lifespans(tuple(outbox.lifespans), lambda: seconds)


def recorded(outbox: Outbox, name: str, said: list[str]) -> None:
    @outbox.lifespan
    async def around() -> AsyncIterator[None]:
        said.append(f"{name} begins")
        yield
        said.append(f"{name} ends")


class TestDeclaring:
    def test_a_function_stays_what_it_was(self, outbox: Outbox) -> None:
        async def clients() -> AsyncIterator[None]:
            yield

        assert outbox.lifespan(clients) is clients
        assert [each.name.rpartition(".")[2] for each in outbox.lifespans] == ["clients"]

    @pytest.mark.parametrize("missing", ["a yield", "async"])
    def test_what_is_missing_is_named(self, outbox: Outbox, missing: str) -> None:
        async def without_yield() -> None: ...

        def without_async() -> Iterator[None]:
            yield

        wrong: Any = without_yield if missing == "a yield" else without_async

        with pytest.raises(ConfigError, match=f"{missing} is missing"):
            outbox.lifespan(wrong)

    def test_an_argument_is_refused(self, outbox: Outbox) -> None:
        async def of_an_app(app: object) -> AsyncIterator[None]:
            yield

        wrong: Any = of_an_app

        with pytest.raises(ConfigError, match=r"of_an_app.*'app'"):
            outbox.lifespan(wrong)

    async def test_what_makes_no_context_manager_fails_at_the_start(self, outbox: Outbox) -> None:
        wrong: Any = lambda: 7
        outbox.lifespan(wrong)

        with pytest.raises(LifespanError, match="TypeError at the start") as raised:
            await lifespans(outbox).enter()
        assert "'int' is not an async context manager" in str(raised.value.__cause__)


class TestOrder:
    async def test_they_are_left_in_the_reverse_order(self, outbox: Outbox) -> None:
        said: list[str] = []
        recorded(outbox, "pool", said)
        recorded(outbox, "client", said)
        both = lifespans(outbox)

        async with both.around():
            await both.enter()
            said.append("handlers")

        expected = ["pool begins", "client begins", "handlers", "client ends", "pool ends"]
        assert said == expected

    async def test_a_run_that_begins_again_enters_them_once(self, outbox: Outbox) -> None:
        said: list[str] = []
        recorded(outbox, "pool", said)
        one = lifespans(outbox)

        async with one.around():
            await one.enter()
            await one.enter()

        assert said == ["pool begins", "pool ends"]

    async def test_a_context_manager_is_a_lifespan_too(self, outbox: Outbox) -> None:
        said: list[str] = []

        @outbox.lifespan
        @asynccontextmanager
        async def pool() -> AsyncIterator[str]:
            yield "for others that use it"
            said.append("ended")

        one = lifespans(outbox)
        async with one.around():
            await one.enter()

        assert said == ["ended"]


class TestTrouble:
    async def test_a_start_that_raises_leaves_those_that_had_begun(self, outbox: Outbox) -> None:
        said: list[str] = []
        recorded(outbox, "pool", said)

        @outbox.lifespan
        async def refused() -> AsyncIterator[None]:
            raise ConnectionError("hunter2")
            yield

        both = lifespans(outbox)
        with pytest.raises(LifespanError) as raised:
            async with both.around():
                await both.enter()

        assert said == ["pool begins", "pool ends"]
        assert "ConnectionError at the start" in str(raised.value)
        assert "hunter2" not in str(raised.value)
        assert isinstance(raised.value.__cause__, ConnectionError)
        assert raised.value.lifespan.endswith("refused")

    async def test_an_end_that_raises_does_not_keep_the_others(self, outbox: Outbox) -> None:
        said: list[str] = []
        recorded(outbox, "pool", said)

        @outbox.lifespan
        async def breaks() -> AsyncIterator[None]:
            yield
            raise ValueError("at the end")

        both = lifespans(outbox)
        with pytest.raises(LifespanError, match=r"breaks.* raised ValueError at the end"):
            async with both.around():
                await both.enter()

        assert said == ["pool begins", "pool ends"]

    async def test_an_end_that_hangs_is_cancelled_and_named(self, outbox: Outbox) -> None:
        said: list[str] = []
        recorded(outbox, "pool", said)

        @outbox.lifespan
        async def hangs() -> AsyncIterator[None]:
            yield
            await anyio.sleep_forever()

        both = lifespans(outbox, MOMENT)
        with pytest.raises(LifespanError, match=r"hangs.* took too long"):
            async with both.around():
                await both.enter()

        assert said == ["pool begins", "pool ends"]

    async def test_an_error_of_the_run_comes_first(self, outbox: Outbox) -> None:
        @outbox.lifespan
        async def breaks() -> AsyncIterator[None]:
            yield
            raise ValueError("at the end")

        one = lifespans(outbox)
        with pytest.raises(ZeroDivisionError) as raised:
            await _around(one, lambda: 1 // 0)

        assert "raised ValueError at the end" in raised.value.__notes__[0]

    async def test_what_follows_the_yield_is_run_when_the_run_is_cancelled(
        self, outbox: Outbox
    ) -> None:
        said: list[str] = []

        @outbox.lifespan
        async def pool() -> AsyncIterator[None]:
            yield
            await anyio.lowlevel.checkpoint()  # where a cancellation would be noticed
            said.append("closed")

        one = lifespans(outbox)
        with anyio.CancelScope() as scope:
            async with one.around():
                await one.enter()
                scope.cancel()
                await anyio.sleep_forever()

        assert scope.cancelled_caught
        assert said == ["closed"]

    @pytest.mark.parametrize("seconds", [PLENTY, MOMENT])
    async def test_a_lifespan_may_hold_a_task_group(self, outbox: Outbox, seconds: float) -> None:
        """Scopes have to be left in the reverse order: ours, around the end alone, would not be."""

        @outbox.lifespan
        async def refreshing() -> AsyncIterator[None]:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(anyio.sleep_forever)
                yield
                if seconds == PLENTY:
                    tasks.cancel_scope.cancel()

        one = lifespans(outbox, seconds)
        if seconds == PLENTY:
            await _around(one)
        else:
            with pytest.raises(LifespanError, match="took too long"):
                await _around(one)

    async def test_a_task_of_a_lifespan_that_fails_ends_the_run(self, outbox: Outbox) -> None:
        @outbox.lifespan
        async def refreshing() -> AsyncIterator[None]:
            async def refresh() -> None:
                raise ValueError("no token")

            async with anyio.create_task_group() as tasks:
                tasks.start_soon(refresh)
                yield

        one = lifespans(outbox)
        with pytest.raises(LifespanError) as raised:
            await _around(one, anyio.sleep_forever)

        assert isinstance(raised.value.__cause__, ExceptionGroup)


async def _around(one: Lifespans, run: Callable[[], Any] = anyio.lowlevel.checkpoint) -> None:
    async with one.around():
        await one.enter()
        await run()
