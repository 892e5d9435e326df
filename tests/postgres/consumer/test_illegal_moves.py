"""A wrong table of transitions, for a bug of ours: what is decided is not written then."""

from __future__ import annotations

from typing import Any

import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession

from sa_outbox import Event, Outbox
from sa_outbox.policy.delivery import TRANSITIONS, IllegalMove, State
from sa_outbox.policy.order import Order

from .conftest import QUICK, Consuming, Database, Producer, make_consumer

pytestmark = [pytest.mark.anyio, pytest.mark.woken_by("notify")]

EFFECT = text("INSERT INTO effects VALUES ('billing', :n)")
AFTER_FAILURE: dict[Order, tuple[State, str]] = {
    "key": ("parked", "park"),
    "none": ("scheduled", "schedule"),
}


def forbid(patch: pytest.MonkeyPatch, after: State) -> None:
    patch.setitem(TRANSITIONS, "running", TRANSITIONS["running"] - {after})


@pytest.mark.parametrize("order", AFTER_FAILURE)
async def test_the_event_becomes_a_dead_letter_and_its_listener_goes_on(
    order: Order,
    outbox: Outbox,
    producer: Producer,
    database: Database,
    consuming: Consuming,
    monkeypatch: pytest.MonkeyPatch,
    illegal_moves: list[str],
) -> None:
    @outbox.listener("billing", on="order.*", order=order, retry=QUICK)
    async def charge(event: Event[Any]) -> None:
        if event.payload["n"] == 2:
            raise ValueError("no 2")

    state, outcome = AFTER_FAILURE[order]
    forbid(monkeypatch, state)

    async with consuming(outbox) as running:
        producer.add(1, 2, 3)
        await running.done("billing", 2)
        await running.dead("billing")

    (letter,) = database.dead_letters("billing")
    assert letter.reason == "refused"
    assert [each["code"] for each in letter.errors] == ["IllegalMove"]
    assert f"a bug in sa_outbox: '{outcome}' must not be written" in letter.errors[0]["message"]
    assert database.deliveries("billing") == []
    assert {*illegal_moves} == {f"running to {outcome}"}
    illegal_moves.clear()


async def test_one_that_holds_the_log_ends_the_consumer_and_is_still_before_its_cursor(
    outbox: Outbox,
    producer: Producer,
    database: Database,
    consuming: Consuming,
    async_engine: AsyncEngine,
    illegal_moves: list[str],
) -> None:
    """As any bug of ours does: whoever starts it again has it begin at the row."""

    @outbox.listener("billing", on="order.*", order="total", retry=QUICK)
    async def charge(event: Event[Any]) -> None:
        if event.payload["n"] == 2:
            raise ValueError("no 2")

    producer.add(1, 2, 3)
    consumer, _ = make_consumer(outbox, async_engine)

    with pytest.MonkeyPatch.context() as patch:
        forbid(patch, "waiting")
        with pytest.raises(IllegalMove, match="'hold' must not be written"):
            await consumer.run()

    assert database.dead_letters("billing") == []
    assert {*illegal_moves} == {"running to hold"}
    illegal_moves.clear()
    async with consuming(outbox) as running:
        await running.dead("billing")
        await running.done("billing")


async def test_in_a_session_nothing_is_committed_and_the_attempt_counts_as_failed(
    outbox: Outbox,
    producer: Producer,
    database: Database,
    consuming: Consuming,
    monkeypatch: pytest.MonkeyPatch,
    illegal_moves: list[str],
) -> None:
    attempts: list[int] = []

    @outbox.listener("billing", on="order.*", retry=QUICK)
    async def charge(event: Event[Any], session: AsyncSession) -> None:
        n = event.payload["n"]
        attempts.append(n)
        await session.execute(EFFECT, {"n": n})
        if attempts.count(2) == 1 and n == 2:
            raise ValueError("not yet")  # then it has a row, and what is done is checked

    forbid(monkeypatch, "done")

    async with consuming(outbox) as running:
        producer.add(1, 2, 3)
        await running.done("billing", 2)
        await running.dead("billing")

    (letter,) = database.dead_letters("billing")
    assert letter.reason == "attempts"
    codes = [each["code"] for each in letter.errors]
    assert codes == ["ValueError", *["IllegalMove"] * (attempts.count(2) - 1)]
    assert database.effects("billing") == [1, 3]
    assert {*illegal_moves} == {"running to done"}
    illegal_moves.clear()
