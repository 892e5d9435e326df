"""Messages to records, and results of record batches to answers. Needs aiokafka."""

from __future__ import annotations

import random
from functools import lru_cache
from typing import TYPE_CHECKING

from sa_outbox.errors import RelayUnavailable, Undeliverable
from sa_outbox.relay.errors import not_serializable, too_large

from .faults import is_unreachable, of_destination, of_one, unavailable
from .link import Link, Places
from .packs import OVERHEAD, OVERHEAD_OF_HEADER, Record

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sa_outbox.relay.message import Answer, Message

    from .packs import Pack

__all__ = ["Link", "settle", "to_records"]

_CONTENT_TYPE = "content-type"


async def to_records(
    link: Link,
    messages: Sequence[Message],
    answers: list[Answer],
    *,
    largest: int,
    unknown_after: float,
) -> list[Record]:
    """Messages that can't become a record are answered."""
    found: dict[str, Places | Undeliverable] = {}
    records = []
    for index, message in enumerate(messages):
        destination = message.destination
        places = found.get(destination)
        if places is None:
            places = found[destination] = await _places(link, destination, unknown_after)
        if isinstance(places, Undeliverable):
            answers[index] = places
            continue
        try:
            key, place = places.of(message.key)
            headers, size = _headers(message)
            body = message.body
            if type(body) is not bytes:
                body = bytes(memoryview(body))
        except (TypeError, ValueError, AttributeError) as error:
            answers[index] = not_serializable(message, error)
            continue
        size += OVERHEAD + len(body)
        if key is not None:
            size += len(key)
        if size > largest:
            answers[index] = too_large(message, size, largest)
        else:
            records.append(Record(index, message.event.key, place, key, body, headers, size))
    return records


async def _places(link: Link, destination: str, unknown_after: float) -> Places | Undeliverable:
    """The existing partitions. Messages without a key share one partition per batch, so that they
    share a record batch, and the next batch uses another one."""
    try:
        found = await link.partitions(destination, within=unknown_after)
    except RelayUnavailable:
        raise
    except Exception as error:
        refused = of_destination(error, destination)
        if refused is None:
            raise unavailable(error) from error
        return refused
    places = link.places(destination, found)
    places.for_no_key = random.choice(link.available(destination) or found)  # noqa: S311 - not secret
    return places


def settle(
    packs: Sequence[Pack], answers: list[Answer]
) -> tuple[list[Record], RelayUnavailable | None]:
    """Record the results of record batches; return what to send again in smaller ones, and why
    nothing more may be sent, if so."""
    again: list[Record] = []
    away: RelayUnavailable | None = None
    for pack in packs:
        answer: Answer = None
        if not pack.confirmed:
            error = pack.error
            if error is None or is_unreachable(error):
                answer = away = unavailable(error or ConnectionError("given up"))
            elif (refused := of_destination(error, pack.place[0])) is not None:
                answer = refused
            elif len(pack.records) > 1:
                again += pack.halve()
                continue
            else:
                answer = of_one(error)
                if not isinstance(answer, Undeliverable):
                    # What follows it in its key has to wait; other keys are unaffected, and nothing
                    # is counted against them.
                    away = unavailable(error)
        for each in pack.records:
            answers[each.index] = answer
    return again, away


def _headers(message: Message) -> tuple[list[tuple[str, bytes]], int]:
    """The headers, and an upper bound of their bytes."""
    headers, size = [], OVERHEAD_OF_HEADER + len(_CONTENT_TYPE) + len(message.content_type)
    for name, value in message.headers.items():
        overhead = _overhead(name)
        if overhead:
            data = value.encode()
            headers.append((name, data))
            size += overhead + len(data)
    headers.append((_CONTENT_TYPE, message.content_type.encode()))
    return headers, size


@lru_cache(maxsize=4096)  # there are few names, and they recur
def _overhead(name: str) -> int:
    """Bytes of a header without its value; 0: it is not sent, the content type covers it."""
    if name.lower() == _CONTENT_TYPE:
        return 0
    name.encode()  # refuses anything that is not text
    return OVERHEAD_OF_HEADER + 4 * len(name)
