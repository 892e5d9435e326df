"""Whoever may connect may notify: ten thousand a second cost a bounded number of looks."""

from __future__ import annotations

from time import monotonic
from typing import Any

import anyio
import pytest
from sqlalchemy import text

from sa_outbox import Event, Outbox
from sa_outbox.consumer.lease.lease import Lease
from sa_outbox.consumer.services import wakeup
from sa_outbox.consumer.services.lease_coordinator import LeaseCoordinator
from sa_outbox.observe import HorizonRead, Notified
from sa_outbox.sql.server.notify import RELEASED

from .conftest import Consuming, Database, Producer

pytestmark = [pytest.mark.anyio, pytest.mark.woken_by("notify")]


@pytest.mark.parametrize("message", ["", RELEASED])
async def test_a_flood_of_notifications_costs_a_bounded_number_of_reads(
    outbox: Outbox,
    producer: Producer,
    database: Database,
    consuming: Consuming,
    monkeypatch: pytest.MonkeyPatch,
    message: str,
) -> None:
    surveys: list[float] = []
    claim = LeaseCoordinator.claim

    async def counted(leases: LeaseCoordinator) -> list[Lease]:
        surveys.append(monotonic())
        return await claim(leases)

    monkeypatch.setattr(LeaseCoordinator, "claim", counted)
    # Fewer than a busy machine looks when nobody bounds it.
    monkeypatch.setattr(wakeup, "READS_PER_SECOND", 10.0)
    monkeypatch.setattr(wakeup, "READS_AT_ONCE", 5)
    monkeypatch.setattr(wakeup, "SURVEYS_PER_SECOND", 2.0)
    monkeypatch.setattr(wakeup, "SURVEYS_AT_ONCE", 2)

    @outbox.listener("billing", on="order.*")
    async def charge(event: Event[Any]) -> None: ...

    @outbox.listener("mailer", on="order.*", order="none")
    async def mail(event: Event[Any]) -> None: ...

    # Of one transaction, equal ones would be merged by the server.
    flood = text(
        "SELECT pg_notify('outbox', CASE WHEN :message = '' THEN 'n' || n ELSE :message END)"
        " FROM generate_series(1, :count) AS n"
    )
    ended = False

    def notify_all() -> None:
        with database.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as it:
            while not ended:
                it.execute(flood, {"message": message, "count": 1 if message else 200})

    async with consuming(outbox) as running:
        await running.listening()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(anyio.to_thread.run_sync, notify_all)
            await running.recorder.seen(Notified, times=50)
            running.recorder.forget()
            began = monotonic()
            await running.recorder.seen(Notified, times=600, within=60)
            took = monotonic() - began
            reads = len(running.recorder.of(HorizonRead))
            heard = len(running.recorder.of(Notified))
            asked = sum(each >= began for each in surveys)
            producer.add(1)  # and those who have something to say are heard all the same
            await running.done("billing")
            await running.done("mailer")
            ended = True

    assert heard > 3 * reads
    assert reads <= wakeup.READS_AT_ONCE + wakeup.READS_PER_SECOND * took + 20
    assert asked <= wakeup.SURVEYS_AT_ONCE + wakeup.SURVEYS_PER_SECOND * took + 20
