"""Work that is not cancelled midway, in ``consumer/connection/shield.py``."""

from __future__ import annotations

import asyncio
import sys

import pytest

from sa_outbox.consumer.connection.shield import to_its_end

pytestmark = pytest.mark.anyio


async def seven() -> int:
    return 7


async def failing() -> int:
    raise ValueError("no")


async def test_what_waits_for_nothing_takes_no_turn_of_the_event_loop_where_python_can() -> None:
    turns: list[int] = []
    asyncio.get_running_loop().call_soon(turns.append, 1)

    assert await to_its_end(seven()) == 7

    assert bool(turns) is (sys.version_info < (3, 12))


async def test_what_it_raises_is_raised() -> None:
    with pytest.raises(ValueError, match="no"):
        await to_its_end(failing())


async def test_cancelled_while_it_waits_it_comes_to_its_end_and_is_undone() -> None:
    waits, goes_on, undone = asyncio.Event(), asyncio.Event(), list[int]()

    async def work() -> int:
        waits.set()
        await goes_on.wait()
        return 7

    outer = asyncio.ensure_future(to_its_end(work(), undone.append))
    await waits.wait()
    outer.cancel()
    asyncio.get_running_loop().call_soon(goes_on.set)
    with pytest.raises(asyncio.CancelledError):
        await outer

    assert undone == [7]


async def test_it_runs_in_a_task_of_its_own_so_that_what_it_enters_is_left_there() -> None:
    tasks: list[object] = []

    async def work() -> None:
        tasks.append(asyncio.current_task())
        async with asyncio.timeout(5):
            await asyncio.sleep(0)
        tasks.append(asyncio.current_task())

    await to_its_end(work())

    assert tasks[0] is tasks[1] is not asyncio.current_task()
