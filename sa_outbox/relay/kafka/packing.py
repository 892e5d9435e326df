"""Which records may be under way together. Pure: no broker, no client."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterable

Place: TypeAlias = tuple[str, int]
"""A destination and the number of its partition."""
OVERHEAD = 70
"""More than the lengths, numbers and times of a record take, or a record batch's own head."""
OVERHEAD_OF_HEADER = 10


class Record(msgspec.Struct, eq=False, gc=False):
    """A message as Kafka has it. Out of the garbage collector's sight, as the events are."""

    index: int
    """In the batch that the relay was given."""
    lane: str | None
    """The event's key, whatever key the message has."""
    place: Place
    key: bytes | None
    value: bytes
    headers: list[tuple[str, bytes]]
    size: int
    """Bytes, never less than it takes."""
    most: int = 1_000_000_000
    """How many there may be in its record batch: fewer after one was refused, until it is found
    out which of them is to blame."""


class Pack(msgspec.Struct, eq=False):
    """A record batch: being filled, on its way, confirmed, or failed."""

    place: Place
    records: list[Record]
    room: int
    """Bytes that are left."""
    most: int
    """How many records it may have."""
    confirmed: bool = False
    error: Exception | None = None

    def halve(self) -> list[Record]:
        """Its records, to be sent again by half as many."""
        for each in self.records:
            each.most = max(1, len(self.records) // 2)
        return self.records


def next_packs(waiting: Iterable[Record], *, limit: int) -> tuple[list[Pack], list[Record]]:
    """One record batch of each partition, of at most *limit* bytes, and what has to wait for them.

    Who waits holds back its partition and its key; so each of both stays in order. The first of
    those that wait never does, however large it is.
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
