"""A queue with one handler at a time, in one process, keeps the order of the log."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import anyio.lowlevel
import pytest
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import Session

from sa_outbox import Event, Outbox
from sa_outbox.consumer.queue.selection import Pace
from sa_outbox.observe import RangeTaken

from .conftest import Consuming, Producer

pytestmark = [pytest.mark.anyio, pytest.mark.woken_by("notify")]

COUNT = 40


def plain(got: list[int]) -> Callable[..., Any]:
    async def handle(event: Event[Any]) -> None:
        await anyio.lowlevel.checkpoint()
        got.append(event.payload["n"])

    return handle


def with_session(got: list[int]) -> Callable[..., Any]:
    async def handle(event: Event[Any], session: AsyncSession) -> None:
        got.append(event.payload["n"])

    return handle


def in_a_thread(got: list[int]) -> Callable[..., Any]:
    def handle(event: Event[Any]) -> None:
        got.append(event.payload["n"])

    return handle


def in_a_thread_with_session(got: list[int]) -> Callable[..., Any]:
    def handle(event: Event[Any], session: Session) -> None:
        got.append(event.payload["n"])

    return handle


def batches(got: list[int]) -> Callable[..., Any]:
    async def handle(events: Sequence[Event[Any]]) -> None:
        await anyio.lowlevel.checkpoint()
        got.extend(event.payload["n"] for event in events)

    return handle


KINDS = (plain, with_session, in_a_thread, in_a_thread_with_session, batches)


@pytest.mark.parametrize("kind", KINDS, ids=lambda each: each.__name__)
@pytest.mark.parametrize("ahead", [True, False], ids=["ahead", "one-range"])
@pytest.mark.parametrize("group", [True, False], ids=["group", "each"])
async def test_one_handler_at_a_time_gets_the_events_of_many_ranges_in_the_order_of_the_log(
    outbox: Outbox,
    producer: Producer,
    consuming: Consuming,
    monkeypatch: pytest.MonkeyPatch,
    kind: Callable[[list[int]], Callable[..., Any]],
    ahead: bool,
    group: bool,
) -> None:
    """Whether the next range is claimed while one is worked on or not, and many events are
    committed together or not."""
    got: list[int] = []
    options = {"order": "none", "batch_size": 4, "group_commit": group}
    outbox.listener("mailer", on="order.*", **options)(kind(got))  # type: ignore[arg-type]
    if not ahead:
        one = property(lambda _: 1, lambda _, ranges: None)
        monkeypatch.setattr(Pace, "ranges", one, raising=False)
    producer.add(*range(COUNT))

    async with consuming(outbox) as running:
        await running.done("mailer", COUNT)
        for n in range(COUNT, COUNT + 10):  # found by a notification, or offered
            producer.add(n)
        await running.done("mailer", COUNT + 10)

    assert got == list(range(COUNT + 10))
    assert len(running.recorder.of(RangeTaken)) > COUNT // 4
