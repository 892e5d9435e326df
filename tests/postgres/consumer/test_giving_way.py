"""A handler that never waits for anything does not have the process to itself."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

from sa_outbox import Event, Outbox

from .conftest import Consuming, Producer

pytestmark = [pytest.mark.anyio, pytest.mark.woken_by("notify")]


async def test_what_else_is_to_be_done_does_not_wait_for_the_end_of_the_batch(
    outbox: Outbox, producer: Producer, consuming: Consuming
) -> None:
    ran: list[str] = []

    @outbox.listener("greedy", on="order.*")
    async def compute(event: Event[Any]) -> None:
        if event.payload["n"] == 10:
            asyncio.get_running_loop().call_soon(ran.append, "something else")
        time.sleep(0.001)
        ran.append("greedy")

    producer.add(*range(100))

    async with consuming(outbox) as running:
        await running.done("greedy", times=100)

    assert ran[-1] == "greedy"
