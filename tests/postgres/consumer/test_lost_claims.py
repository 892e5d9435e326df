"""A server that crashes may lose the claim of a queue's events, and other claims come instead.

Here the crash is simulated: the queue's row is set back to what it was, revision and token too, and
the range is gone. A pooler may hide that from the process that had claimed them: then none of its
connections ends. ``tests/crash/test_lost_claims.py`` crashes a server.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from math import inf
from typing import Any

import anyio
import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncSession

from sa_outbox import Event, Outbox
from sa_outbox.consumer.position.gaps import Gaps
from sa_outbox.consumer.queue import urgency
from sa_outbox.consumer.queue.claim import RangeClaimer
from sa_outbox.consumer.queue.selection import leaving
from sa_outbox.observe import CommitsLost, LeaseDropped, Listening
from sa_outbox.sql.queue import claims
from tests.support import comes_true

from .conftest import Consuming, Database, Producer, Running
from .test_lost_commits import lose_events

# Only what a notification announces is offered, and claimed from memory.
pytestmark = [pytest.mark.anyio, pytest.mark.woken_by("notify")]

EFFECT = text("INSERT INTO effects VALUES ('mailer', :n)")
SETTLED_ELSEWHERE = """
INSERT INTO effects SELECT 'mailer', CAST(payload ->> 'n' AS bigint) FROM outbox
WHERE id = ANY (:ids)
"""
HIDDEN = pytest.mark.parametrize("is_hidden", [False, True], ids=["seen", "hidden"])
LONG = timedelta(minutes=10)


class Mailer:
    """A queue whose effects are in the database. Its handlers wait while they are ``held``."""

    def __init__(self, outbox: Outbox) -> None:
        self.began: list[int] = []
        self._go_on = anyio.Event()
        self._go_on.set()

        @outbox.listener("mailer", on="order.*", order="none", concurrency=4)
        async def mail(event: Event[Any], session: AsyncSession) -> None:
            self.began.append(event.payload["n"])
            await self._go_on.wait()
            await session.execute(EFFECT, {"n": event.payload["n"]})

    def hold(self) -> None:
        self._go_on = anyio.Event()

    def go_on(self) -> None:
        self._go_on.set()


class CrashingServer:
    def __init__(self, database: Database, outbox: Outbox) -> None:
        self._database = database
        self._take = claims.take(outbox.tables)
        self._stood: Any = None

    def will_lose_all_from_here(self) -> None:
        self._stood = self._database.listener("mailer")
        assert self._stood.gaps == []

    def crash(self, *, is_hidden: bool) -> None:
        """Nobody who was connected runs before this, and what the test does next, is over."""
        self._database.rows(
            "UPDATE outbox_listeners SET last_processed_id = :position, gaps = '[]',"
            " revision = :revision, lease_token = :token",
            position=self._stood.last_processed_id,
            revision=self._stood.revision,
            token=self._stood.lease_token,
        )
        self._database.rows("DELETE FROM outbox_ranges")
        if not is_hidden:
            self._database.end_other_backends()

    def others_settle(self, *claimed: Sequence[int]) -> None:
        """Another process was first to connect, claimed these, one claim after the other, and has
        settled them."""
        for ids in claimed:
            stands = self._database.listener("mailer")
            gaps = Gaps()
            for low, high in stands.gaps:
                gaps.add(low, high)
            position, gaps = leaving(stands.last_processed_id, gaps, ids)
            with self._database.engine.begin() as connection:
                values = {"name": "mailer", "owner": "other", "duration": 30.0, "durable": True}
                values |= {"revision": stands.revision, "position": position, "gaps": gaps.dump()}
                values |= {"upper": max(ids), "taken": Gaps.of(sorted(ids)).dump()}
                [row] = connection.execute(self._take, values).all()
                found = text("DELETE FROM outbox_ranges WHERE number = :part")
                connection.execute(found, {"part": row.part})
                connection.execute(text(SETTLED_ELSEWHERE), {"ids": list(ids)})


@pytest.fixture
def mailer(outbox: Outbox) -> Mailer:
    return Mailer(outbox)


@pytest.fixture
def server(database: Database, outbox: Outbox) -> CrashingServer:
    return CrashingServer(database, outbox)


async def rests(running: Running, producer: Producer) -> int:
    """Everything is claimed and settled, and the consumer knows it. How many events there are."""
    await running.listening()
    for n in (1, 2, 3):
        producer.add(n)
        await running.done("mailer", n)
    await running.consumer.drain()
    return 3


async def is_there_again(running: Running, *, is_hidden: bool) -> None:
    if not is_hidden:
        await running.recorder.seen(Listening, times=2)
        await running.consumer.drain()


ELSEWHERE = [
    pytest.param([[4, 5, 6, 7]], id="all in one claim"),
    pytest.param([[4, 5]], id="some in one claim"),
    pytest.param([[4]], id="the same"),
    pytest.param([[7]], id="the last, urgently"),
    pytest.param([[6], [4]], id="out of order"),
    pytest.param([[4], [5], [6], [7]], id="one by one"),
]


@HIDDEN
@pytest.mark.parametrize("elsewhere", ELSEWHERE)
async def test_what_others_claim_instead_is_not_claimed_once_more_and_nothing_is_lost(
    outbox: Outbox,
    mailer: Mailer,
    producer: Producer,
    database: Database,
    server: CrashingServer,
    consuming: Consuming,
    elsewhere: list[list[int]],
    *,
    is_hidden: bool,
) -> None:
    async with consuming(outbox, lease_duration=LONG) as running:
        assert await rests(running, producer) == 3
        server.will_lose_all_from_here()
        mailer.hold()
        producer.add(4)
        await comes_true(lambda: 4 in mailer.began)

        server.crash(is_hidden=is_hidden)
        producer.add(5, 6, 7)
        server.others_settle(*elsewhere)
        mailer.go_on()
        await is_there_again(running, is_hidden=is_hidden)
        producer.add(8)
        await comes_true(lambda: 8 in database.effects("mailer"))
        await running.consumer.drain()

    assert database.effects("mailer") == [1, 2, 3, 4, 5, 6, 7, 8]
    assert database.rows("SELECT FROM outbox_ranges") == []
    assert database.listener("mailer").gaps == []


@HIDDEN
async def test_events_of_other_types_that_were_read_do_not_take_unclaimed_ones_with_them(
    outbox: Outbox,
    mailer: Mailer,
    producer: Producer,
    database: Database,
    server: CrashingServer,
    consuming: Consuming,
    saved_often: float,
    *,
    is_hidden: bool,
) -> None:
    """The cursor is moved over them a while later, and others have claimed less than was lost."""
    async with consuming(outbox, lease_duration=LONG) as running:
        await rests(running, producer)
        server.will_lose_all_from_here()
        mailer.hold()
        producer.add(4, 5)
        await comes_true(lambda: {4, 5} <= {*mailer.began})
        producer.add(6, 7, event_type="user.added")
        await comes_true(lambda: taker(running).pass_at < inf)

        server.crash(is_hidden=is_hidden)
        server.others_settle([4])
        mailer.go_on()
        await comes_true(lambda: taker(running).pass_at == inf)
        await is_there_again(running, is_hidden=is_hidden)
        producer.add(8)
        await comes_true(lambda: 8 in database.effects("mailer"))
        await running.consumer.drain()

    assert database.effects("mailer") == [1, 2, 3, 4, 5, 8]


@HIDDEN
async def test_a_process_that_stops_then_does_not_pass_them_either(
    outbox: Outbox,
    mailer: Mailer,
    producer: Producer,
    database: Database,
    server: CrashingServer,
    consuming: Consuming,
    *,
    is_hidden: bool,
) -> None:
    """It moves the cursor over what it has read when it leaves."""
    async with consuming(outbox, lease_duration=LONG) as running:
        await rests(running, producer)
        server.will_lose_all_from_here()
        mailer.hold()
        producer.add(4, 5)
        await comes_true(lambda: {4, 5} <= {*mailer.began})
        producer.add(6, 7, event_type="user.added")
        await comes_true(lambda: taker(running).pass_at < inf)

        running.consumer.stop()
        server.crash(is_hidden=is_hidden)
        server.others_settle([4])
        mailer.go_on()
        await running.stopped.wait()
    async with consuming(outbox) as running:
        await running.consumer.drain()

    assert database.effects("mailer") == [1, 2, 3, 4, 5]


@HIDDEN
async def test_a_drain_does_not_end_before_what_is_unclaimed_again_is_handled(
    outbox: Outbox,
    mailer: Mailer,
    producer: Producer,
    database: Database,
    server: CrashingServer,
    consuming: Consuming,
    *,
    is_hidden: bool,
) -> None:
    effects: list[list[int]] = []

    async def drain() -> None:
        await running.consumer.drain()
        effects.append(database.effects("mailer"))

    # A renewal finds that the range is gone.
    async with consuming(outbox, lease_duration=timedelta(seconds=3)) as running:
        await rests(running, producer)
        server.will_lose_all_from_here()
        mailer.hold()
        producer.add(4)
        await comes_true(lambda: 4 in mailer.began)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(drain)
            await until_it_waits_for_handlers_only(running)
            server.crash(is_hidden=is_hidden)
            await running.recorder.seen(LeaseDropped)
            mailer.go_on()

    assert effects == [[1, 2, 3, 4]]


async def test_whose_turn_it_was_is_not_claimed_when_its_id_is_another_events(
    outbox: Outbox,
    producer: Producer,
    database: Database,
    consuming: Consuming,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A server that lost events too: the turns of tenants were read before that."""
    got: list[str] = []
    go_on = anyio.Event()

    @outbox.listener("mailer", on="order.*", order="none", concurrency=2, batch_size=2)
    async def mail(event: Event[Any]) -> None:
        got.append(event.event_type)
        await go_on.wait()

    monkeypatch.setattr(urgency, "FAIR_SHARE", 1e-6)  # they are read once
    producer.add(*range(30), tenant="large")
    producer.add(*range(30, 40), tenant="small")
    async with consuming(outbox, lease_duration=LONG) as running:
        await comes_true(lambda: taker(running)._chooser._urgency._turns)
        await comes_true(lambda: got)
        lose_events(database, above=10)
        producer.add(*range(30), event_type="user.added")
        database.end_other_backends()
        go_on.set()
        await running.recorder.seen(CommitsLost)
        await running.consumer.drain()

    assert {*got} == {"order.placed"}


def taker(running: Running) -> RangeClaimer:
    services = running.consumer._services
    assert services is not None
    [queue] = services.workload.queues
    return queue._claimer


async def until_it_waits_for_handlers_only(running: Running) -> None:
    """A drain began: everything that was visible when it did is claimed."""
    services = running.consumer._services
    assert services is not None
    number = services.context.horizon.number + 2
    await comes_true(lambda: taker(running).has_read(number))
