"""Suspects of one listener are attempted alone in the process; the other listeners go on."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

from sa_outbox import Event, Outbox
from sa_outbox.observe import SuspectAttempted
from tests.support import comes_true

from .conftest import Consuming, Database, Producer

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(200), pytest.mark.woken_by("notify")]

SUSPECTS = 5
SLOW = 0.15
"""Seconds that each suspect takes, at least."""
DIED = """
UPDATE outbox_listeners SET locked_by = 'somebody who died', crashes = 1,
    lease_expires_at = clock_timestamp() - interval '1 s',
    suspects = CASE WHEN name = 'careful' THEN CAST(:suspects AS jsonb) ELSE '{}' END
"""


async def test_quick_listeners_keep_most_of_their_time_while_the_suspects_of_one_go_alone(
    outbox: Outbox, producer: Producer, database: Database, consuming: Consuming
) -> None:
    inside: set[str] = set()
    met: list[set[str]] = []
    others = 0

    @outbox.listener("careful", on="order.placed")
    async def careful(event: Event[Any]) -> None:
        inside.add("careful")
        met.append(set(inside))
        await anyio.sleep(SLOW)
        inside.discard("careful")

    for number in range(5):

        @outbox.listener(f"quick{number}", on="order.paid", concurrency=2, batch_size=20)
        async def work(event: Event[Any], name: str = f"quick{number}") -> None:
            nonlocal others
            inside.add(name)
            if "careful" in inside:
                met.append(set(inside))
            await anyio.sleep(0.005)
            inside.discard(name)
            others += 0 < len(met) < SUSPECTS

    async with consuming(outbox):
        pass
    producer.add(*range(SUSPECTS))
    producer.add(*range(2000), event_type="order.paid")
    suspects = "{" + ", ".join(f'"{each}": []' for each in range(1, SUSPECTS + 1)) + "}"
    database.rows(DIED, suspects=suspects)

    async with consuming(outbox) as running:
        await comes_true(lambda: len(met) >= SUSPECTS, within=90)
        await running.done("careful", SUSPECTS)
        assert len(running.recorder.of(SuspectAttempted, listener="careful")) == SUSPECTS
        await comes_true(lambda: database.listener("careful").suspects == {})
        running.consumer.stop()
        await running.stopped.wait()

    assert met == [{"careful"}] * SUSPECTS, "a suspect was not alone"
    # If each suspect was attempted as soon as the gate is free, a dozen or two would get through.
    assert others > 30 * SUSPECTS
