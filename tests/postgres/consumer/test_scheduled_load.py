"""Ten thousand events for later: set aside in batches, and nobody asks for them until then."""

from __future__ import annotations

from datetime import timedelta
from time import monotonic
from typing import Any

import anyio.lowlevel
import asyncpg
import pytest
from sqlalchemy import Engine

from sa_outbox import Event, Outbox
from sa_outbox.consumer.shared.sync import AutoResetEvent
from sa_outbox.consumer.upkeep import service
from sa_outbox.observe import HorizonRead, RangeTaken
from tests.support import comes_true

from .conftest import Consuming, Database, Producer

pytestmark = pytest.mark.anyio

HOUR = timedelta(hours=1)
BY_ITSELF: dict[str, Any] = {
    "poll_interval": HOUR,
    "poll_interval_without_notify": HOUR,
    "probe_interval": HOUR,
    "verify_interval": HOUR,
    "lease_duration": 3 * HOUR,
    "maintenance_interval": HOUR,
}
"""Nothing but an event, or the time of one, makes the consumer do anything."""
MANY = 10_000
WRITE_MANY = """
INSERT INTO outbox (event_id, event_type, payload, run_at)
SELECT gen_random_uuid(), 'order.placed', '{}', clock_timestamp() + interval '2 hours'
FROM generate_series(1, :many)
"""


class Counted:
    """Statements of the consumer's own, and for how long each bell is waited for."""

    def __init__(self) -> None:
        self.statements = 0
        self.in_flight = 0
        self.pauses: dict[AutoResetEvent, float | None] = {}

    async def all_wait(self) -> None:
        """Nobody is in the middle of something; from here on a time, or an event, is waited for."""
        quiet = 0
        while quiet < 50:
            await anyio.lowlevel.checkpoint()
            quiet = 0 if self.in_flight else quiet + 1

    @property
    def next_turn(self) -> float:
        """Seconds until somebody wakes by himself."""
        return min(each for each in self.pauses.values() if each is not None)


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> Counted:
    counted = Counted()

    def count(name: str) -> None:
        original = getattr(asyncpg.Connection, name)

        async def counting(*arguments: Any, **values: Any) -> Any:
            counted.statements += 1
            counted.in_flight += 1
            try:
                return await original(*arguments, **values)
            finally:
                counted.in_flight -= 1

        monkeypatch.setattr(asyncpg.Connection, name, counting)

    for name in ("execute", "fetch", "fetchval"):
        count(name)
    wait = AutoResetEvent.wait

    async def noting(bell: AutoResetEvent, seconds: float | None = None) -> bool:
        counted.pauses[bell] = seconds
        try:
            return await wait(bell, seconds)
        finally:
            del counted.pauses[bell]

    monkeypatch.setattr(AutoResetEvent, "wait", noting)
    monkeypatch.setattr(service, "FIRST_ROUND_SECONDS", HOUR.total_seconds())
    return counted


@pytest.mark.parametrize("order", ["key", "none"])
async def test_they_are_set_aside_in_batches_and_cost_an_idle_consumer_nothing(
    order: Any, engine: Engine, database: Database, consuming: Consuming, counted: Counted
) -> None:
    outbox = Outbox(notify="off")
    got: list[int] = []

    @outbox.listener("reminders", on="order.*", order=order)
    async def remind(event: Event[Any]) -> None:
        got.append(event.payload["n"])

    database.rows(WRITE_MANY, many=MANY)
    Producer(outbox, engine).add(7)
    async with consuming(outbox, **BY_ITSELF) as running:
        await running.done("reminders")
        await running.consumer.drain()
        batches = MANY / 500
        assert counted.statements < 20 * batches, "not in batches"
        assert database.value("SELECT count(*) FROM outbox_deliveries") == MANY
        assert len(running.recorder.of(RangeTaken)) == (1 if order == "none" else 0)

        await counted.all_wait()
        before = counted.statements, len(running.recorder.of(HorizonRead))
        assert counted.next_turn > 60
        until = monotonic() + 0.3
        await comes_true(lambda: monotonic() > until)
        assert (counted.statements, len(running.recorder.of(HorizonRead))) == before

    assert got == [7]
