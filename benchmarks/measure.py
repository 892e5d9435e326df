"""Ratios, not seconds: contestants take turns in one run.

The machine's speed changes from second to second. Two contestants that are measured one after the
other meet different machines; two that take turns meet the same one. In each round every contestant
runs once, in random order. A ratio is the median of the ratios to the first contestant of the same
round; "from" and "to" enclose the middle half of them.
"""

from __future__ import annotations

import gc
import random
import statistics
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence

from .report import Goal, Table

Sync = Callable[[], None]
Async = Callable[[], Awaitable[None]]
Contestant = Callable[[], Awaitable[float]]
"""Runs once and returns the seconds that count."""
Times = dict[str, list[float]]
WARM = 50
PARTS = 20


def compare(contestants: Mapping[str, Sync], *, rounds: int, warm: int = WARM) -> Times:
    """Seconds of each run of something short, by contestant."""
    times: Times = {name: [] for name in contestants}
    names = list(contestants)
    for each in contestants.values():  # caches and prepared statements
        for _ in range(warm):
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


async def compare_async(
    contestants: Mapping[str, Async], *, rounds: int, warm: int = WARM
) -> Times:
    """As ``compare``, for coroutines."""
    times: Times = {name: [] for name in contestants}
    names = list(contestants)
    for each in contestants.values():
        for _ in range(warm):
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


async def take_turns(
    contestants: Mapping[str, Contestant], rounds: int, *, warm: bool = True
) -> Times:
    """Seconds of each run of something long, by contestant. With *warm*, one round before the
    others fills the caches and does not count."""
    times: Times = {name: [] for name in contestants}
    names = list(contestants)
    for number in range(rounds + warm):
        random.shuffle(names)
        for name in names:
            gc.collect()
            taken = await contestants[name]()
            if number or not warm:
                times[name].append(taken)
    return times


def speeds(
    key: str,
    title: str,
    times: Times,
    events: int,
    *,
    goals: Sequence[Goal] = (),
    unit: str = "events/s",
    beside: Mapping[str, str] | None = None,
) -> Table:
    """Events per second, and the speed as a part of the first contestant's. *beside*: more such
    ratios, the name of the column and whose speed it refers to."""
    against, others = next(iter(times.values())), beside or {}
    rows = {}
    for name, taken in times.items():
        paired = [its / mine for mine, its in zip(taken, against, strict=True)]
        more = (_faster(taken, times[other]) for other in others.values())
        rows[name] = (events / statistics.median(taken), *middle(paired), *more)
    columns = (unit, "ratio", "from", "to", *others)
    return Table(key=key, title=title, columns=columns, rows=rows, goals=tuple(goals))


def _faster(mine: list[float], its: list[float]) -> float:
    return statistics.median(two / one for one, two in zip(mine, its, strict=True))


def costs(key: str, title: str, times: Times, *, goals: Sequence[Goal] = ()) -> Table:
    """Microseconds, and the time as a part of the first contestant's."""
    against = next(iter(times.values()))
    rows = {}
    for name, taken in times.items():
        paired = [mine / its for mine, its in zip(taken, against, strict=True)]
        rows[name] = (statistics.median(taken) * 1e6, *middle(paired))
    columns = ("µs", "ratio", "from", "to")
    return Table(key=key, title=title, columns=columns, rows=rows, goals=tuple(goals))


def waits(
    key: str,
    title: str,
    seconds: Times,
    *,
    goals: Sequence[Goal] = (),
    beside: Mapping[str, str] | None = None,
) -> Table:
    """Percentiles in milliseconds. *beside*: the median as a part of another contestant's, the name
    of the column and whose median it refers to."""
    rows, others = {}, beside or {}
    for name, taken in seconds.items():
        cuts = statistics.quantiles(taken, n=100, method="inclusive")
        half = statistics.median(taken)
        more = (half / statistics.median(seconds[other]) for other in others.values())
        rows[name] = (*(1000 * cuts[at] for at in (49, 89, 98)), 1000 * max(taken), *more)
    columns = ("p50 ms", "p90 ms", "p99 ms", "longest ms", *others)
    return Table(key=key, title=title, columns=columns, rows=rows, goals=tuple(goals))


def middle(paired: list[float]) -> tuple[float, float, float]:
    """The median, and the range of the middle half: of the rounds, or of 20 parts of a long run."""
    size = len(paired) // PARTS
    parts = paired
    if size > 1:
        cut = range(0, PARTS * size, size)
        parts = [statistics.median(paired[at : at + size]) for at in cut]
    if len(parts) == 1:
        return parts[0], parts[0], parts[0]
    low, _, high = statistics.quantiles(parts, n=4, method="inclusive")
    return statistics.median(paired), low, high
