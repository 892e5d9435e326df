"""What a handler's log lines carry: its event, and nothing of another one."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Sequence
from contextvars import ContextVar
from typing import Any

import anyio
import anyio.lowlevel
import pytest
import structlog
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import Session

from sa_outbox import Event, Outbox, event_context
from sa_outbox.consumer.handler.call_context import NAMES
from sa_outbox.logs.program import NAME
from sa_outbox.observe import AttemptFailed, DeadLettered, DeliverySettled, DeliveryStarted
from tests.support.recorder import Recorder

from .conftest import ONCE, QUICK, Consuming, Database, Producer

pytestmark = [pytest.mark.anyio, pytest.mark.woken_by("notify")]
COUNT = 12
MINE: ContextVar[str] = ContextVar("mine", default="")


def bound() -> dict[str, Any]:
    """What ``merge_contextvars`` adds to a line, of ours."""
    line = structlog.contextvars.merge_contextvars(None, "", {})
    return {name: line[name] for name in NAMES if name in line}


def expected(event: Event[Any]) -> dict[str, Any]:
    n = event.payload["n"]
    every = {"listener": "billing", "event_id": str(event.event_id), "attempt": 1}
    every |= {"event_type": event.event_type, "tenant": f"t-{n % 2}"}
    ids = {"request_id": f"r-{n}", "correlation_id": f"c-{n % 3}"}
    return every | ids | ({"project_id": "p"} if n % 2 else {})


def add(producer: Producer) -> None:
    for n in range(COUNT):
        context = {"tenant": f"t-{n % 2}", "request_id": f"r-{n}", "correlation_id": f"c-{n % 3}"}
        with event_context(**context, **({"project_id": "p"} if n % 2 else {})):  # type: ignore[arg-type]
            producer.add(n, key=str(n))
    producer.add(COUNT, event_type="order.bare")


class Lines:
    """Checks the context of each call; a handler that leaves something behind is one of them."""

    def __init__(self) -> None:
        self.wrong: list[Any] = []
        self.calls: Counter[str] = Counter()

    def check(self, event: Event[Any]) -> None:
        self.calls[event.event_type] += 1
        bare = {"listener": "billing", "event_id": str(event.event_id), "attempt": 1}
        bare["event_type"] = event.event_type
        wanted = bare if event.event_type == "order.bare" else expected(event)
        left = MINE.get(), structlog.contextvars.get_contextvars().get("mine")
        if bound() != wanted or left != ("", None):
            self.wrong.append((event, bound(), left))

    def leave(self) -> None:
        MINE.set("left")
        structlog.contextvars.bind_contextvars(mine="left", tenant="left")

    def have_been_right(self) -> None:
        assert self.wrong == []
        assert self.calls == {"order.placed": COUNT, "order.bare": 1}


@pytest.fixture
def lines() -> Lines:
    return Lines()


@pytest.mark.parametrize("kind", ["plain", "queue", "session", "sync", "sync session", "alone"])
@pytest.mark.parametrize("leaves", [False, True], ids=["tidy", "leaves something behind"])
async def test_each_handler_sees_its_own_event_and_nothing_of_another(
    kind: str,
    leaves: bool,
    outbox: Outbox,
    producer: Producer,
    consuming: Consuming,
    lines: Lines,
) -> None:
    def work(event: Event[Any]) -> None:
        lines.check(event)
        if leaves:
            lines.leave()

    async def wait(event: Event[Any]) -> None:
        if not event.payload["n"] % 2:
            await anyio.lowlevel.checkpoint()
        work(event)
        await anyio.sleep(0)

    async def plain(event: Event[Any]) -> None:
        work(event)

    async def session(event: Event[Any], _session: AsyncSession) -> None:
        await wait(event)

    def sync(event: Event[Any]) -> None:
        work(event)

    def sync_session(event: Event[Any], _session: Session) -> None:
        work(event)

    handlers: dict[str, Any] = {"plain": wait, "queue": wait, "alone": plain, "sync": sync}
    handlers |= {"session": session, "sync session": sync_session}
    order: Any = "none" if kind == "queue" else "key"
    concurrency = 1 if kind == "alone" else 4
    declare = outbox.listener("billing", on="order.*", order=order, concurrency=concurrency)
    declare(handlers[kind])
    add(producer)
    structlog.contextvars.bind_contextvars(request_id="of the program", project_id="of the program")
    try:
        async with consuming(outbox) as running:
            await running.done("billing", COUNT + 1)
        assert bound() == {"request_id": "of the program", "project_id": "of the program"}
        assert MINE.get() == ""
    finally:
        structlog.contextvars.clear_contextvars()

    lines.have_been_right()


async def test_headers_that_no_handler_asks_for_stop_nobody(
    outbox: Outbox, producer: Producer, unchecked: Database, consuming: Consuming
) -> None:
    """Nested so deeply that they can't be decoded."""
    got: list[int | None] = []

    @outbox.listener("billing", on="order.*", retry=ONCE)
    async def charge(event: Event[Any]) -> None:
        got.append(event.position)

    producer.add(1)
    unchecked.write_raw(
        headers="""('{"x": ' || repeat('[', 3000) || repeat(']', 3000) || '}')::jsonb"""
    )
    producer.add(2)

    async with consuming(outbox) as running:
        await running.done("billing", 3)

    assert got == [1, 2, 3]


class Incomparable:
    """As an array of NumPy, which compares its elements and then has no truth."""

    __hash__ = object.__hash__

    def __eq__(self, other: object) -> bool:
        raise ValueError("the truth value of an array is ambiguous")


async def test_a_context_variable_whose_values_can_not_be_compared_stops_nobody(
    outbox: Outbox, producer: Producer, consuming: Consuming
) -> None:
    got: list[int] = []
    held: ContextVar[Incomparable] = ContextVar("held")
    of_the_program = Incomparable()
    held.set(of_the_program)

    @outbox.listener("billing", on="order.*", retry=ONCE)
    async def charge(event: Event[Any]) -> None:
        assert held.get() is of_the_program
        held.set(Incomparable())
        got.append(event.payload["n"])

    producer.add(1)
    producer.add(2)

    async with consuming(outbox) as running:
        await running.done("billing", 2)

    assert got == [1, 2]


async def test_a_batch_has_what_its_events_share(
    outbox: Outbox, producer: Producer, consuming: Consuming
) -> None:
    seen: list[tuple[int, dict[str, Any]]] = []

    @outbox.listener("billing", on="order.*")
    async def charge(events: Sequence[Event[Any]]) -> None:
        seen.append((len(events), bound()))

    with event_context(tenant="acme", request_id="r-1", correlation_id="c-1"):
        producer.add(0)
    with event_context(tenant="acme", request_id="r-1", correlation_id="c-2"):
        producer.add(1, event_type="order.paid")
    async with consuming(outbox) as running:
        await running.done("billing", 2)

    shared = {"listener": "billing", "attempt": 1, "tenant": "acme", "request_id": "r-1"}
    assert seen == [(2, shared)]


async def test_a_task_that_a_handler_started_keeps_its_event(
    outbox: Outbox, producer: Producer, consuming: Consuming
) -> None:
    later: list[Any] = []

    @outbox.listener("billing", on="order.*")
    async def charge(event: Event[Any]) -> None:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(look, str(event.event_id))

    async def look(event_id: str) -> None:
        await anyio.lowlevel.checkpoint()
        later.append(bound().get("event_id") == event_id)

    producer.add(0, 1, 2)
    async with consuming(outbox) as running:
        await running.done("billing", 3)

    assert later == [True] * 3


async def test_attempts_are_counted_for_the_handler_its_lines_and_ours(
    outbox: Outbox, producer: Producer, consuming: Consuming, caplog: pytest.LogCaptureFixture
) -> None:
    seen: list[tuple[int, object]] = []

    @outbox.listener("billing", on="order.*", retry=QUICK)
    async def charge(event: Event[Any]) -> None:
        seen.append((event.attempt, bound()["attempt"]))
        raise LookupError("card 4111, password=hunter2")

    with event_context(tenant="acme", request_id="r-1", correlation_id="c-1", project_id="p-1"):
        producer.add(0)
    async with consuming(outbox) as running:
        await running.dead("billing")

    assert seen == [(1, 1), (2, 2), (3, 3)]
    ids = {"tenant": "acme", "request_id": "r-1", "correlation_id": "c-1", "project_id": "p-1"}
    told: list[Any] = [
        each
        for kind in (AttemptFailed, DeliverySettled, DeadLettered)
        for each in running.recorder.of(kind)
    ]
    assert len(told) == 7
    assert all(each.origin.known == ids for each in told)
    ours = [each for each in caplog.records if each.name == NAME]
    failed = [each for each in ours if each.getMessage().startswith("attempt failed")]
    assert [vars(each)["outbox"]["attempt"] for each in failed] == [1, 2, 3]
    for each in failed:
        text = each.getMessage()
        assert "raise LookupError" in text
        assert "request_id='r-1'" in text
        assert "consumer/handler" not in text, "only frames of the program"
        assert "hunter2" not in text
    assert [each.levelno for each in ours if "dead letter" in each.getMessage()] == [logging.ERROR]


class Starts(Recorder):
    wants_starts = "all"


@pytest.mark.parametrize("takes", ["event", "batch", "session"])
async def test_a_start_is_reported_before_the_handler_runs(
    takes: str, outbox: Outbox, producer: Producer, consuming: Consuming
) -> None:
    starts, before = Starts(), []

    def note() -> None:
        before.append([each.position for each in starts.of(DeliveryStarted)])

    async def one(event: Event[Any]) -> None:
        note()

    async def with_session(event: Event[Any], session: AsyncSession) -> None:
        note()

    async def batch(events: Sequence[Event[Any]]) -> None:
        note()

    handlers: dict[str, Any] = {"event": one, "batch": batch, "session": with_session}
    outbox.listener("billing", on="order.*")(handlers[takes])
    async with consuming(outbox) as running:
        running.consumer.observers.add(starts)
        producer.add(0, 1)
        await running.done("billing", 2)
        owner = running.consumer.owner

    assert before == ([[1, 2]] if takes == "batch" else [[1], [1, 2]])
    assert {(each.attempt, each.owner) for each in starts.of(DeliveryStarted)} == {(1, owner)}
    assert running.recorder.of(DeliveryStarted) != [], "it was told to all, once one wants it"


async def test_nobody_wants_starts_by_default(
    outbox: Outbox, producer: Producer, consuming: Consuming
) -> None:
    @outbox.listener("billing", on="order.*")
    async def charge(event: Event[Any]) -> None: ...

    producer.add(0)
    async with consuming(outbox) as running:
        await running.done("billing")

    assert running.recorder.of(DeliveryStarted) == []
