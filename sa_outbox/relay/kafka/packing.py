"""Which records may be under way together. Pure: no broker, no client."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterable

Place: TypeAlias = tuple[str, int]
"""A destination and the number of its partition."""
OVERHEAD = 70
"""More than the lengths, numbers and times of a record take, or a record batch's own head."""
OVERHEAD_OF_HEADER = 10


@dataclass(slots=True, eq=False)
class Record:
    """A message as Kafka has it."""

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


@dataclass(slots=True, eq=False)
class Pack:
    """A record batch: on its way, confirmed, or failed."""

    place: Place
    records: list[Record]
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
    room: dict[Place, int] = {}
    most: dict[Place, int] = {}
    homes: dict[str, Place] = {}
    closed: set[Place] = set()
    rest: list[Record] = []
    for record in waiting:
        place, lane, size = record.place, record.lane, record.size
        pack = packs.get(place)
        home = place if lane is None else homes.setdefault(lane, place)
        fits = pack is None or (
            size <= room[place] and len(pack.records) < min(record.most, most[place])
        )
        if place in closed or home != place or not fits:
            closed.add(place)
            if lane is not None:
                homes[lane] = ("", -1)  # nowhere in this round
            rest.append(record)
            continue
        if pack is None:
            pack = packs[place] = Pack(place, [])
            room[place], most[place] = limit, record.most
        pack.records.append(record)
        room[place] -= size
        most[place] = min(most[place], record.most)
    return list(packs.values()), rest
