"""Which ids each partition of the log is for, and which partitions are missing. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

AHEAD = 2
"""Minimum number of empty partitions above the one being written to."""
AHEAD_SECONDS = 3600.0
"""They must also last this long at the rate of the last minute: they can't be created while a
transaction that writes events is open."""
MAX_AT_ONCE = 64

_ATTACHED = re.compile(r"FOR VALUES FROM \('?(MINVALUE|-?\d+)'?\) TO \('?(MAXVALUE|-?\d+)'?\)")
_FILLING = re.compile(r"CHECK \(\(\(id >= '?(-?\d+)'?.*\) AND \(id < '?(-?\d+)'?.*\)\)\)")
LOWEST, HIGHEST = 0, 2**63 - 1


@dataclass(frozen=True, slots=True)
class Bounds:
    """A table with the ids ``low <= id < high``. Ids begin at 1, so MINVALUE is 0."""

    name: str
    low: int
    high: int


@dataclass(frozen=True, slots=True)
class Layout:
    """The partitions of the log."""

    partitions: tuple[Bounds, ...]
    """In the order of their ids."""
    rest: str | None
    """The catch-all."""
    filling: tuple[Bounds, ...]
    """Tables that will replace the catch-all, and hold copies of its events."""
    strangers: frozenset[str] = frozenset()
    """Partition names of ours that someone else's tables have."""

    @classmethod
    def of(cls, rows: Iterable[tuple[str, str | None, bool]]) -> Layout:
        """From (name, bounds as PostgreSQL writes them, attached)."""
        attached, filling, rest, strangers = [], [], None, set()
        for name, bounds, is_attached in rows:
            if bounds is None:
                strangers.add(name)
            elif bounds == "DEFAULT":
                rest = name
            elif is_attached:
                attached.append(_parsed(_ATTACHED, name, bounds))
            else:
                filling.append(_parsed(_FILLING, name, bounds))
        return cls(
            tuple(sorted(attached, key=lambda one: one.low)),
            rest,
            tuple(sorted(filling, key=lambda one: one.low)),
            frozenset(strangers),
        )

    @property
    def names(self) -> set[str]:
        return {one.name for one in self.partitions}

    def missing(self, low: int, high: int, size: int, prefix: str) -> list[Bounds]:
        """Partitions to create, so that every id from *low* up to *high* has one.

        Cut at multiples of *size*, which may have been different when the others were created.
        """
        found: list[Bounds] = []
        taken = self.names | self.strangers
        start = low // size * size
        while start < high and len(found) < MAX_AT_ONCE:
            for piece_low, piece_high in _free(self.partitions, start, start + size):
                if piece_high > low:
                    name = _name(prefix, piece_low, size, taken)
                    taken.add(name)
                    found.append(Bounds(name, piece_low, piece_high))
            start += size
        return found

    def unfit(self, last: int, size: int, prefix: str) -> list[Bounds]:
        """Partitions of ours for ids above *last*, the last id drawn, that are not cut at multiples
        of *size*: created when the size was different. Highest first, so that the next writes have
        a partition for as long as possible."""

        def is_unused(one: Bounds) -> bool:
            return max(one.low, 1) > last and is_ours(one.name, prefix)

        used = [one for one in self.partitions if not is_unused(one)]
        found = []
        for one in self.partitions:
            start = one.low // size * size
            if is_unused(one) and (one.low, one.high) not in _free(used, start, start + size):
                found.append(one)
        return found[::-1]


def reach(last: int, size: int, rate: float) -> int:
    """The id up to which there should be partitions when *last* was drawn, at *rate* per second."""
    return last + max(AHEAD * size, int(rate * AHEAD_SECONDS))


def is_ours(name: str, prefix: str) -> bool:
    """Whether a partition's name follows our scheme. Others belong to someone else: they stay."""
    return re.fullmatch(rf"{re.escape(prefix)}_p[0-9]+", name) is not None


def _free(taken: Iterable[Bounds], low: int, high: int) -> Iterable[tuple[int, int]]:
    """The parts of *low* up to *high* that belong to none of *taken*, which are in order."""
    for one in taken:
        if one.high <= low:
            continue
        if one.low >= high:
            break
        if low < one.low:
            yield low, one.low
        low = one.high
    if low < high:
        yield low, high


def _name(prefix: str, low: int, size: int, taken: Collection[str]) -> str:
    """The migration's name for it; or one made from the lowest id, if that name is taken."""
    name = f"{prefix}_p{low // size}"
    if low % size == 0 and name not in taken:
        return name
    return f"{prefix}_p{low}"


def _parsed(pattern: re.Pattern[str], name: str, bounds: str) -> Bounds:
    match = pattern.fullmatch(bounds)
    if match is None:
        raise ValueError(f"bounds of {name}: {bounds}")
    low, high = match.groups()
    return Bounds(
        name,
        LOWEST if low == "MINVALUE" else int(low),
        HIGHEST if high == "MAXVALUE" else int(high),
    )
