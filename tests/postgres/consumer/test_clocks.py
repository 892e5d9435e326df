"""Events with a time, by the database's clock and nobody else's; and nobody polls for them."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from math import inf
from time import monotonic
from types import FunctionType
from typing import Any

import pytest
from sqlalchemy import Engine

from sa_outbox import Event, Outbox
from sa_outbox.consumer.shared.sync import AutoResetEvent
from tests.support import comes_true

from .conftest import Consuming, Database, Producer

pytestmark = pytest.mark.anyio

CONSUMER = "sa_outbox.consumer."
HOUR = timedelta(hours=1)
BY_ITSELF: dict[str, Any] = {
    "poll_interval": HOUR,
    "poll_interval_without_notify": HOUR,
    "probe_interval": HOUR,
    "verify_interval": HOUR,
    "lease_duration": 3 * HOUR,
}
"""Nothing but the time of an event makes the consumer do anything."""


class Starts:
    """A listener that notes when each event was started, by the database's clock."""

    def __init__(self, outbox: Outbox, database: Database, order: Any) -> None:
        self.early: list[timedelta] = []
        """How much before its time each one was."""

        @outbox.listener("reminders", on="order.*", order=order)
        async def remind(event: Event[Any]) -> None:
            assert event.run_at is not None
            self.early.append(event.run_at - database.value("SELECT clock_timestamp()"))


@pytest.mark.parametrize("order", ["total", "key", "none"])
async def test_it_starts_at_its_time_without_a_poll_and_never_before(
    order: Any, engine: Engine, database: Database, consuming: Consuming
) -> None:
    outbox = Outbox(notify="off")
    starts = Starts(outbox, database, order)
    for after in (0.2, 0.4, 0.6):
        Producer(outbox, engine).add(1, delay=timedelta(seconds=after))

    async with consuming(outbox, **BY_ITSELF) as running:
        await running.done("reminders", 3)

    assert len(starts.early) == 3
    assert max(starts.early) <= timedelta(0)


def with_a_clock_as_default() -> Iterator[FunctionType]:
    """Functions of the consumer whose parameter is ``clock=monotonic``, which was read when they
    were defined: to change the name in their module has no effect."""
    modules = [module for name, module in sys.modules.items() if name.startswith(CONSUMER)]
    for module in modules:
        classes = [each for each in vars(module).values() if isinstance(each, type)]
        for each in [each for holder in (module, *classes) for each in vars(holder).values()]:
            if isinstance(each, FunctionType) and each.__module__ == module.__name__:
                defaults = (*(each.__defaults__ or ()), *(each.__kwdefaults__ or {}).values())
                if any(default is monotonic for default in defaults):
                    yield each


@pytest.fixture
def clock_defaults() -> set[str]:
    """The names of these functions."""
    return {each.__qualname__ for each in with_a_clock_as_default()}


@pytest.fixture(params=[1.1, 0.9], ids=["faster", "slower"])
def drift(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> float:
    """The clock of this process runs so much faster than the database's."""
    factor: float = request.param
    began, wait = monotonic(), AutoResetEvent.wait

    def local() -> float:
        return began + (monotonic() - began) * factor

    async def local_wait(bell: AutoResetEvent, seconds: float | None = None) -> bool:
        return await wait(bell, None if seconds is None else seconds / factor)

    for name, module in list(sys.modules.items()):
        if name.startswith(CONSUMER) and hasattr(module, "monotonic"):
            monkeypatch.setattr(module, "monotonic", local)
    for function in list(with_a_clock_as_default()):
        if function.__defaults__:
            early = tuple(local if each is monotonic else each for each in function.__defaults__)
            monkeypatch.setattr(function, "__defaults__", early)
        named = function.__kwdefaults__ or {}
        for name in [name for name, each in named.items() if each is monotonic]:
            monkeypatch.setitem(named, name, local)
    monkeypatch.setattr(AutoResetEvent, "wait", local_wait)
    return factor


def test_that_speed_is_also_that_of_clocks_that_are_defaults(
    clock_defaults: set[str], drift: float
) -> None:
    assert drift != 1.0
    assert {"Lease.__init__", "Group.__init__", "Pulse.__init__"} <= clock_defaults
    assert list(with_a_clock_as_default()) == []


@pytest.mark.parametrize("order", ["key", "none"])
async def test_a_local_clock_of_another_speed_starts_nothing_early_and_misses_nothing(
    order: Any, drift: float, engine: Engine, database: Database, consuming: Consuming
) -> None:
    outbox = Outbox(notify="off")
    starts = Starts(outbox, database, order)
    Producer(outbox, engine).add(1, 2, delay=timedelta(seconds=1))

    async with consuming(outbox, **BY_ITSELF) as running:
        await running.done("reminders", 2)

    assert drift != 1.0
    assert len(starts.early) == 2
    assert max(starts.early) <= timedelta(0)


async def test_whoever_wakes_too_early_asks_when_it_is_due_and_not_again_and_again(
    engine: Engine, database: Database, consuming: Consuming
) -> None:
    outbox = Outbox(notify="off")
    starts = Starts(outbox, database, "key")
    Producer(outbox, engine).add(1, run_at=datetime.now(UTC) + HOUR)

    async with consuming(outbox, **BY_ITSELF) as running:
        await comes_true(lambda: len(database.deliveries("reminders")) == 1)
        services = running.consumer._services
        assert services is not None
        [loop] = services.workload.holder.loops.values()
        due = loop.source.due
        await comes_true(lambda: due.next_at < inf)
        due.next_at = early = monotonic()
        loop.wake()
        await comes_true(lambda: early < due.next_at < inf)
        next_at = due.next_at

    assert next_at > early + 3000
    assert starts.early == []
