"""Ratios, not seconds: contestants take turns, transaction by transaction, in one run.

The machine's speed changes from second to second. Two contestants that are measured one after the
other meet different machines; two that take turns meet the same one. In each round every
contestant runs once, in random order. Reported is the median of the times, and the median of the
ratios to the first contestant of the same round, with the range in which the middle half of 20
equal parts of the run lies.
"""

from __future__ import annotations

import gc
import random
import statistics
import time
from collections.abc import Awaitable, Callable, Mapping

Sync = Callable[[], None]
Async = Callable[[], Awaitable[None]]


def compare(contestants: Mapping[str, Sync], *, rounds: int) -> dict[str, list[float]]:
    """Seconds of each run, by contestant. The order within a round is random."""
    times: dict[str, list[float]] = {name: [] for name in contestants}
    names = list(contestants)
    for each in contestants.values():  # caches and prepared statements
        for _ in range(50):
            each()
    gc.collect()
    gc.disable()
    try:
        for _ in range(rounds):
            random.shuffle(names)
            for name in names:
                began = time.perf_counter()
                contestants[name]()
                times[name].append(time.perf_counter() - began)
    finally:
        gc.enable()
    return times


async def compare_async(contestants: Mapping[str, Async], *, rounds: int) -> dict[str, list[float]]:
    """As ``compare``, for coroutines."""
    times: dict[str, list[float]] = {name: [] for name in contestants}
    names = list(contestants)
    for each in contestants.values():
        for _ in range(50):
            await each()
    gc.collect()
    gc.disable()
    try:
        for _ in range(rounds):
            random.shuffle(names)
            for name in names:
                began = time.perf_counter()
                await contestants[name]()
                times[name].append(time.perf_counter() - began)
    finally:
        gc.enable()
    return times


def report(title: str, times: Mapping[str, list[float]]) -> dict[str, float]:
    """Print the medians in microseconds and the ratios to the first; return the ratios."""
    print(f"\n{title}")
    first = next(iter(times.values()))
    ratios = {}
    for name, taken in times.items():
        paired = [mine / its for mine, its in zip(taken, first, strict=True)]
        ratios[name] = statistics.median(paired)
        low, _, high = statistics.quantiles(_parts(paired), n=4)
        median = statistics.median(taken) * 1e6
        print(f"  {name:<40} {median:9.1f} us {ratios[name]:8.3f}   {low:.3f} to {high:.3f}")
    return ratios


def _parts(paired: list[float]) -> list[float]:
    size = len(paired) // 20
    return [statistics.median(paired[at : at + size]) for at in range(0, 20 * size, size)]
