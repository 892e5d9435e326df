"""The order of a test run in several processes: the long tests neither together nor last.

pytest-xdist gives each process a stretch of the list, and one that is through takes from the end of
another's. In any order, one process may get most of the long tests, and begin the last of them when
the others have nothing left to do.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeVar

T = TypeVar("T")

BEFORE = 0.75
"""The part of a process's stretch in which its last long test has begun."""


def spread(short: Sequence[T], long: Sequence[T], processes: int) -> list[T]:
    """All of them: for each process an equal part of both, the long ones at equal distances."""
    ordered: list[T] = []
    for number in range(processes):
        first, last = (len(short) * each // processes for each in (number, number + 1))
        ordered += _mixed(short[first:last], long[number::processes])
    return ordered


def _mixed(short: Sequence[T], long: Sequence[T]) -> Iterator[T]:
    begun = 0
    for number, each in enumerate(short):
        due = len(long) * number / (len(short) * BEFORE)
        while begun < len(long) and begun <= due:
            yield long[begun]
            begun += 1
        yield each
    yield from long[begun:]
