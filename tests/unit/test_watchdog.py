"""A blocked event loop is noticed while it is blocked."""

from __future__ import annotations

import threading
from datetime import timedelta

import anyio
import pytest

from sa_outbox.consumer.services.watchdog import MAX_CHARACTERS, Watchdog, stack_of
from sa_outbox.observe import LoopBlocked, Observation, Observers

pytestmark = pytest.mark.anyio

SOON = timedelta(milliseconds=50)


class Told:
    """Keeps what it is told; a thread, or a loop that blocks, can wait for it."""

    def __init__(self) -> None:
        self.observations: list[Observation] = []
        self.threads: list[threading.Thread] = []
        self._told = threading.Event()

    def __call__(self, observation: Observation) -> None:
        self.observations.append(observation)
        self.threads.append(threading.current_thread())
        self._told.set()

    def block_until_told(self) -> None:
        assert self._told.wait(10)
        self._told.clear()


def watchdogs() -> list[threading.Thread]:
    return [each for each in threading.enumerate() if each.name == "sa_outbox watchdog"]


async def test_a_blocked_loop_is_told_while_it_is_blocked_with_its_stack() -> None:
    told = Told()

    with Watchdog(SOON, Observers((told,))):
        told.block_until_told()

    (blocked,) = told.observations
    assert isinstance(blocked, LoopBlocked)
    assert blocked.seconds >= SOON.total_seconds()
    assert "in block_until_told" in blocked.stack
    assert "run_forever" not in blocked.stack
    assert told.threads[0] is not threading.current_thread()


async def test_each_time_is_told_once() -> None:
    told = Told()
    over = threading.Event()

    with Watchdog(SOON, Observers((told,))):
        told.block_until_told()
        over.wait(5 * SOON.total_seconds())  # still blocked: not told again
        assert len(told.observations) == 1
        # The loop answers before it can be blocked anew.
        with anyio.fail_after(10):
            while len(told.observations) == 1:
                await anyio.sleep(0)
                over.wait(2 * SOON.total_seconds())

    assert len(told.observations) == 2


async def test_a_loop_that_is_busy_but_answers_is_not_told() -> None:
    told = Told()

    with Watchdog(timedelta(seconds=5), Observers((told,))), anyio.move_on_after(0.1):
        while True:
            await anyio.sleep(0)

    assert told.observations == []


async def test_no_thread_is_left_behind() -> None:
    with Watchdog(SOON, Observers()):
        assert len(watchdogs()) == 1

    assert watchdogs() == []


async def test_it_ends_at_once_though_it_asks_seldom() -> None:
    with anyio.fail_after(1), Watchdog(timedelta(hours=1), Observers()):
        await anyio.sleep(0)

    assert watchdogs() == []


async def test_an_observer_that_raises_does_not_end_it() -> None:
    told = Told()

    def broken(_: Observation) -> None:
        raise ValueError

    with Watchdog(SOON, Observers((broken, told))):
        told.block_until_told()
        await anyio.sleep(0)
        told.block_until_told()

    assert len(told.observations) == 2


async def test_a_stack_is_bounded() -> None:
    def deep(levels: int) -> str:
        return deep(levels - 1) if levels else stack_of(threading.get_ident())

    stack = deep(200)
    assert len(stack) <= MAX_CHARACTERS
    assert stack.rstrip().count("\n") < 120


async def test_a_thread_that_is_gone_has_no_stack() -> None:
    assert stack_of(-1) == ""
