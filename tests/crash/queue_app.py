"""Queues that leave traces: rows through the session they are given, and lines in a file of the
process, which neither a kill nor a rollback takes away.

What an event's ``then`` says is done by each handler: a number is how many seconds it takes,
``die`` ends the process, ``fail_first`` raises the first time that this process has it.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from time import monotonic
from typing import Any

from sqlalchemy.ext.asyncio import AsyncSession

from sa_outbox import Event, Outbox, RetryPolicy
from tests.crash.seen import SEE, sight

SOON = RetryPolicy(attempts=100, base=timedelta(milliseconds=50), maximum=timedelta(seconds=1))
_notes = os.open(
    Path(os.environ["QUEUE_NOTES"]) / str(os.getpid()),
    os.O_WRONLY | os.O_APPEND | os.O_CREAT,
)
_failed: set[tuple[str, int | None]] = set()


def note(listener: str, event: Event[Any], what: str) -> None:
    """The clock is the machine's: all processes of a test have the same."""
    os.write(_notes, f"{listener} {event.position} {what} {monotonic()}\n".encode())


async def act(listener: str, event: Event[Any]) -> None:
    then = event.payload.get("then")
    if then is None:
        return
    if then == "die":
        os._exit(70)
    if then == "fail_first":
        if (listener, event.position) not in _failed:
            _failed.add((listener, event.position))
            raise ValueError("told to fail once")
        return
    await asyncio.sleep(float(then))


outbox = Outbox()
"""A queue of each kind."""


async def one_by_one(event: Event[Any], session: AsyncSession) -> None:
    note("one_by_one", event, "began")
    await session.execute(SEE, sight("one_by_one", event))
    await act("one_by_one", event)
    note("one_by_one", event, "ended")


# A transaction for each event takes an hour for a hundred thousand, with all those kills.
if int(os.environ.get("QUEUE_EVENTS", "0")) <= 10_000:
    outbox.listener("one_by_one", on="*", order="none", concurrency=8, retry=SOON)(one_by_one)


@outbox.listener("in_batches", on="*", order="none", batch_size=50, retry=SOON)
async def in_batches(events: Sequence[Event[Any]], session: AsyncSession) -> None:
    await session.execute(SEE, [sight("in_batches", event) for event in events])
    await asyncio.gather(*(act("in_batches", event) for event in events))


@outbox.listener("plain", on="*", order="none", concurrency=8, retry=SOON)
async def plain(event: Event[Any]) -> None:
    note("plain", event, "began")
    await act("plain", event)
    note("plain", event, "ended")


in_small_ranges = Outbox()
"""Ranges of a few events, so that processes meet often."""


@in_small_ranges.listener("small", on="*", order="none", concurrency=2, batch_size=4, retry=SOON)
async def small(event: Event[Any]) -> None:
    note("small", event, "began")
    try:
        await act("small", event)
    finally:
        note("small", event, "ended")


@in_small_ranges.listener(
    "small_effects", on="*", order="none", concurrency=4, batch_size=4, retry=SOON
)
async def small_effects(event: Event[Any], session: AsyncSession) -> None:
    await session.execute(SEE, sight("small_effects", event))
    await act("small_effects", event)


with_session = Outbox()
"""For the writers whose commits overtake each other."""


@with_session.listener("with_session", on="*", order="none", concurrency=4)
async def take_down(event: Event[Any], session: AsyncSession) -> None:
    await session.execute(SEE, sight("with_session", event))
