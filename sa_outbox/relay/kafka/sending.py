"""Messages to records, and what became of record batches to answers. Needs aiokafka."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from sa_outbox.errors import RelayUnavailable, Undeliverable
from sa_outbox.relay.answering import not_serializable, too_large

from .faults import is_away, of_destination, of_one, unavailable
from .link import Link, partition_of
from .packing import OVERHEAD, OVERHEAD_OF_HEADER, Record

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sa_outbox.relay.message import Answer, Message

    from .packing import Pack

__all__ = ["Link", "settle", "to_records"]

_CONTENT_TYPE = "content-type"


async def to_records(
    link: Link,
    messages: Sequence[Message],
    answers: dict[int, Answer],
    *,
    largest: int,
    unknown_after: float,
) -> list[Record]:
    """Messages of which none can be made are answered."""
    found: dict[str, tuple[list[int], int] | Undeliverable] = {}
    records = []
    for index, message in enumerate(messages):
        destination = message.destination
        if destination not in found:
            found[destination] = await _partitions(link, destination, unknown_after)
        known = found[destination]
        if isinstance(known, Undeliverable):
            answers[index] = known
            continue
        partitions, for_no_key = known
        try:
            key = None if message.key is None else message.key.encode()
            partition = for_no_key if key is None else partition_of(key, partitions)
            headers, size = _headers(message)
            body = bytes(memoryview(message.body))
        except (TypeError, ValueError, AttributeError) as error:
            answers[index] = not_serializable(message, error)
            continue
        place, lane = (destination, partition), message.event.key
        size += OVERHEAD + len(body) + len(key or b"")
        if size > largest:
            answers[index] = too_large(message, size, largest)
        else:
            records.append(Record(index, lane, place, key, body, headers, size))
    return records


async def _partitions(
    link: Link, destination: str, unknown_after: float
) -> tuple[list[int], int] | Undeliverable:
    """Those that there are, and the one for messages without a key: one for all of a batch,
    so that they share a record batch, and another one for the next."""
    try:
        found = await link.partitions(destination, within=unknown_after)
    except RelayUnavailable:
        raise
    except Exception as error:
        refused = of_destination(error, destination)
        if refused is None:
            raise unavailable(error) from error
        return refused
    return found, random.choice(link.available(destination) or found)  # noqa: S311 - no secret


def settle(
    packs: Sequence[Pack], answers: dict[int, Answer]
) -> tuple[list[Record], RelayUnavailable | None]:
    """Write down what became of record batches; what is to be sent again in smaller ones, and why
    nothing more is to be sent at all."""
    again: list[Record] = []
    away: RelayUnavailable | None = None
    for pack in packs:
        answer: Answer = None
        if not pack.confirmed:
            error = pack.error
            if error is None or is_away(error):
                answer = away = unavailable(error or ConnectionError("given up"))
            elif (refused := of_destination(error, pack.place[0])) is not None:
                answer = refused
            elif len(pack.records) > 1:
                again += pack.halve()
                continue
            else:
                answer = of_one(error)
                if not isinstance(answer, Undeliverable):
                    # What comes after it in its key has to wait; the others do not suffer for it,
                    # nothing is counted against them.
                    away = unavailable(error)
        for each in pack.records:
            answers[each.index] = answer
    return again, away


def _headers(message: Message) -> tuple[list[tuple[str, bytes]], int]:
    """And the bytes that they take, or some more."""
    headers, size = [], OVERHEAD_OF_HEADER + len(_CONTENT_TYPE) + len(message.content_type)
    for name, value in message.headers.items():
        if len(name) == len(_CONTENT_TYPE) and name.lower() == _CONTENT_TYPE:
            continue
        if not name.isascii():
            name.encode()  # refuses what is no text
        data = value.encode()
        headers.append((name, data))
        size += OVERHEAD_OF_HEADER + 4 * len(name) + len(data)
    headers.append((_CONTENT_TYPE, message.content_type.encode()))
    return headers, size
