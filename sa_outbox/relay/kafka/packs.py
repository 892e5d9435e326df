"""Which records may be in flight together. Pure: no broker, no client."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterable

Place: TypeAlias = tuple[str, int]
"""A destination and the number of its partition."""
OVERHEAD = 70
"""Upper bound for the lengths, numbers and times of a record, or a record batch's own header."""
OVERHEAD_OF_HEADER = 10


class Record(msgspec.Struct, eq=False, gc=False):
    """A message as a Kafka record. Not tracked by the garbage collector, like the events."""

    index: int
    """Index in the relay's batch."""
    lane: str | None
    """The event's key, whatever key the message has."""
    place: Place
    key: bytes | None
    value: bytes
    headers: list[tuple[str, bytes]]
    size: int
    """An upper bound of its size in bytes."""
    most: int = 1_000_000_000
    """Maximum number of records in its record batch: fewer after one was refused, until the culprit
    is found."""


class Pack(msgspec.Struct, eq=False):
    """A record batch: being filled, in flight, confirmed, or failed."""

    place: Place
    records: list[Record]
    room: int
    """Bytes that are left."""
    most: int
    """How many records it may have."""
    confirmed: bool = False
    error: Exception | None = None

    def halve(self) -> list[Record]:
        """Its records, to be sent again in batches of half the size."""
        for each in self.records:
            each.most = max(1, len(self.records) // 2)
        return self.records


def next_packs(waiting: Iterable[Record], *, limit: int) -> tuple[list[Pack], list[Record]]:
    """One record batch for each partition, of at most *limit* bytes, and what has to wait for them.

    A waiting record blocks its partition and its key; so each of both stays in order. The first
    waiting record never waits again, however large it is.
    """
    packs: dict[Place, Pack] = {}
    homes: dict[str, Place] = {}
    closed: set[Place] = set()
    rest: list[Record] = []
    for record in waiting:
        place, lane = record.place, record.lane
        pack = packs.get(place)
        if pack is None:
            pack = packs[place] = Pack(place, [], limit, record.most)
        home = place if lane is None else homes.setdefault(lane, place)
        records, most = pack.records, min(record.most, pack.most)
        fits = not records or (record.size <= pack.room and len(records) < most)
        if place in closed or home != place or not fits:
            closed.add(place)
            if lane is not None:
                homes[lane] = ("", -1)  # nowhere in this round
            rest.append(record)
            continue
        records.append(record)
        pack.room -= record.size
        pack.most = most
    return [each for each in packs.values() if each.records], rest
