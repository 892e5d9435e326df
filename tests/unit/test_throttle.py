"""Obeyed at once, and only so often."""

from __future__ import annotations

from time import monotonic

import anyio
import pytest

from sa_outbox.consumer.services.wakeup import Throttle
from tests.support import comes_true

pytestmark = pytest.mark.anyio


async def test_calls_that_are_few_are_passed_on_at_once() -> None:
    calls: list[float] = []
    throttle = Throttle(lambda: calls.append(monotonic()), per_second=0.001, burst=3)

    for n in range(3):
        throttle()
        assert len(calls) == n + 1


async def test_those_that_are_too_many_are_one_call_and_it_comes() -> None:
    calls: list[float] = []
    throttle = Throttle(lambda: calls.append(monotonic()), per_second=20, burst=1)

    for _ in range(1_000):
        throttle()
    assert len(calls) == 1
    await comes_true(lambda: len(calls) == 2)
    assert calls[1] - calls[0] >= 0.04
    throttle.close()


async def test_in_the_long_run_there_are_no_more_than_so_many() -> None:
    calls: list[float] = []
    throttle = Throttle(lambda: calls.append(monotonic()), per_second=50, burst=5)

    began = monotonic()
    while monotonic() < began + 1:
        for _ in range(100):
            throttle()
        await anyio.sleep(0)
    took = monotonic() - began
    assert 5 < len(calls) <= 5 + 50 * took + 1
    throttle.close()


async def test_one_that_is_closed_passes_nothing_on() -> None:
    calls: list[float] = []
    throttle = Throttle(lambda: calls.append(monotonic()), per_second=20, burst=1)
    throttle()
    throttle()
    throttle.close()
    over = monotonic() + 0.2  # by then it would have come
    await comes_true(lambda: monotonic() > over)

    assert len(calls) == 1
