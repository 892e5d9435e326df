"""Events that always fail, one among every twenty: what is beside them is handled once.

A group ends at the first event that fails, so here every group of more than twenty has one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import Session

from sa_outbox import Event, Outbox
from sa_outbox.consumer.transaction import group
from sa_outbox.policy.order import Order

from .conftest import QUICK, Consuming, Database, Producer

pytestmark = [pytest.mark.anyio, pytest.mark.woken_by("notify")]

EFFECT = text("INSERT INTO effects VALUES ('billing', :n)")
XID = text("SELECT CAST(pg_current_xact_id() AS text)")
COUNT, EVERY, KEYS = 200, 20, 7
POISONS = [*range(EVERY // 2, COUNT, EVERY)]
OTHERS = [n for n in range(COUNT) if n not in POISONS]


@pytest.fixture(autouse=True)
def patient_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    """However slow the machine is, a group ends with what waits, or at an event that fails."""
    monkeypatch.setattr(group, "MAX_SECONDS", 60.0)


@pytest.mark.parametrize(
    ("order", "concurrency"), [("key", 1), ("key", 8), ("total", 1), ("none", 1), ("none", 8)]
)
@pytest.mark.parametrize("kind", ["async", "sync"])
async def test_beside_a_poisoned_event_in_every_group_each_handler_runs_once(
    kind: str,
    order: Order,
    concurrency: int,
    outbox: Outbox,
    producer: Producer,
    database: Database,
    consuming: Consuming,
) -> None:
    calls: Counter[int] = Counter()
    transactions: list[Any] = []

    def act(event: Event[Any], session: Session) -> None:
        n = event.payload["n"]
        calls[n] += 1
        session.execute(EFFECT, {"n": n})
        transactions.append(session.scalar(XID))
        if n in POISONS:
            raise ValueError("never")

    declare: Callable[..., Any] = outbox.listener(
        "billing", on="order.*", order=order, concurrency=concurrency, retry=QUICK
    )
    if kind == "sync":

        @declare
        def charge_in_thread(event: Event[Any], session: Session) -> None:
            act(event, session)
    else:

        @declare
        async def charge(event: Event[Any], session: AsyncSession) -> None:
            await session.run_sync(lambda inner: act(event, inner))

    # A key of its own for each poisoned event: nobody has to wait for one.
    for n in range(COUNT):
        producer.add(n, key=f"poison {n}" if n in POISONS else str(n % KEYS))

    async with consuming(outbox) as running:
        await running.done("billing", len(OTHERS))
        await running.dead("billing", len(POISONS))

    assert calls == Counter(dict.fromkeys(OTHERS, 1) | dict.fromkeys(POISONS, QUICK.attempts))
    assert database.effects("billing") == OTHERS
    dead = database.dead_letters("billing")
    assert sorted(each.position - 1 for each in dead) == POISONS
    assert max(Counter(transactions).values()) > 1, "in groups"
