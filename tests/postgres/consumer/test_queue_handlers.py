"""A queue with a handler for each event type, and queues whose types come from categories."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import anyio
import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import Session

from sa_outbox import Category, Event, Outbox, RetryPolicy, event_type
from sa_outbox.consumer.transaction import group
from sa_outbox.observe import AttemptFailed, DeliverySettled

from .conftest import ONCE, QUICK, Consuming, Database, Producer

pytestmark = [pytest.mark.anyio, pytest.mark.woken_by("notify")]

XID = text("SELECT CAST(pg_current_xact_id() AS text)")
EFFECT = text("INSERT INTO effects (listener, n) VALUES ('exports', :n)")


@event_type("export.typed")
@dataclass(frozen=True)
class Exported:
    n: int


async def test_each_event_goes_to_the_handler_of_its_type_with_the_session_it_takes(
    outbox: Outbox, producer: Producer, database: Database, consuming: Consuming
) -> None:
    exports = outbox.queue("exports", concurrency=2)
    got: list[tuple[str, Any]] = []

    @exports.on("export.plain")
    async def plain(event: Event[Any]) -> None:
        got.append(("plain", event.payload["n"]))

    @exports.on("export.stored")
    async def stored(event: Event[Any], session: AsyncSession) -> None:
        got.append(("stored", event.payload["n"]))
        await session.execute(EFFECT, {"n": event.payload["n"]})

    @exports.on("export.threaded")
    def threaded(event: Event[Any], session: Session) -> None:
        got.append(("threaded", event.payload["n"]))
        session.execute(EFFECT, {"n": event.payload["n"]})

    @exports.on()
    def typed(event: Event[Exported]) -> None:
        got.append(("typed", event.payload.n))

    kinds = ("plain", "stored", "threaded", "typed", "nobody's")
    for n in range(20):
        producer.add(n, event_type=f"export.{kinds[n % 5]}".replace("nobody's", "other"))

    async with consuming(outbox) as running:
        await running.done("exports", 16)

    assert sorted(got) == sorted((kinds[n % 5], n) for n in range(20) if n % 5 < 4)
    assert database.effects("exports") == [n for n in range(20) if n % 5 in (1, 2)]
    assert database.deliveries("exports") == []


async def test_a_failure_of_one_handler_is_rolled_back_and_keeps_no_other_waiting(
    outbox: Outbox, producer: Producer, database: Database, consuming: Consuming
) -> None:
    exports = outbox.queue("exports", retry=QUICK)

    @exports.on("export.bad")
    async def bad(event: Event[Any], session: AsyncSession) -> None:
        await session.execute(EFFECT, {"n": -1})
        raise ValueError("no")

    @exports.on("export.good")
    async def good(event: Event[Any], session: AsyncSession) -> None:
        await session.execute(EFFECT, {"n": event.payload["n"]})

    producer.add(1, event_type="export.bad")
    producer.add(2, 3, event_type="export.good")

    async with consuming(outbox) as running:
        await running.dead("exports")
        await running.done("exports", 2)

    assert database.effects("exports") == [2, 3]
    assert [row.event_type for row in database.dead_letters("exports")] == ["export.bad"]


async def test_events_of_several_handlers_share_a_transaction_and_a_failing_one_takes_nobody_along(
    outbox: Outbox,
    producer: Producer,
    database: Database,
    consuming: Consuming,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Those whose handlers take the same kind of session. The group ends before any other: what was
    done so far is committed by then."""
    monkeypatch.setattr(group, "MAX_SECONDS", 60.0)
    exports = outbox.queue("exports", retry=ONCE)
    transactions: dict[int, str] = {}
    seen: dict[int, list[int]] = {}
    calls: list[tuple[str, int]] = []

    async def act(event: Event[Any], session: AsyncSession) -> None:
        n = event.payload["n"]
        await session.execute(EFFECT, {"n": n})
        transactions[n] = str(await session.scalar(XID))
        calls.append((event.event_type, n))

    @exports.on("export.a")
    async def first(event: Event[Any], session: AsyncSession) -> None:
        await act(event, session)

    @exports.on("export.b")
    async def second(event: Event[Any], session: AsyncSession) -> None:
        await act(event, session)
        if event.payload["n"] == 3:
            raise ValueError("no")

    @exports.on("export.plain")
    async def plain(event: Event[Any]) -> None:
        calls.append((event.event_type, event.payload["n"]))
        seen[event.payload["n"]] = await anyio.to_thread.run_sync(database.effects, "exports")

    @exports.on("export.sync")
    def threaded(event: Event[Any], session: Session) -> None:
        n = event.payload["n"]
        calls.append((event.event_type, n))
        seen[n] = database.effects("exports")
        session.execute(EFFECT, {"n": n})
        transactions[n] = str(session.scalar(XID))

    kinds = [*("a", "b", "a", "b", "a", "b", "plain"), *("b", "a", "sync", "sync", "b", "plain")]
    with producer.open() as session:  # one transaction: one range
        for n, kind in enumerate(kinds):
            session.add_event(f"export.{kind}", {"n": n})

    async with consuming(outbox) as running:
        await running.dead("exports")
        await running.done("exports", len(kinds) - 1)

    done = [n for n, kind in enumerate(kinds) if kind != "plain" and n != 3]
    assert database.effects("exports") == done
    assert sorted(calls) == sorted((f"export.{kind}", n) for n, kind in enumerate(kinds))
    parts = ([0, 1, 2], [4, 5], [7, 8], [9, 10], [11])
    shared = [{transactions[n] for n in part} for part in parts]
    assert [len(each) for each in shared[:2]] == [1, 1]  # the first range has at least these
    assert sum(map(len, shared)) == len(set.union(*shared))
    assert seen[6] == [0, 1, 2, 4, 5]
    assert seen[9] == [0, 1, 2, 4, 5, 7, 8]
    assert seen[12] == done


async def test_the_time_limit_applies_to_each_handler_after_another_was_called(
    outbox: Outbox, producer: Producer, consuming: Consuming
) -> None:
    """The limit of one handler's calls is kept between them, and that of another begins inside."""
    exports = outbox.queue("exports", timeout=timedelta(milliseconds=200), retry=QUICK)
    calls: list[str] = []

    @exports.on("export.slow")
    async def slow(event: Event[Any]) -> None:
        calls.append(f"slow {event.payload['n']}")
        if event.payload["n"]:
            await anyio.sleep_forever()

    @exports.on("export.quick")
    async def quick(event: Event[Any]) -> None:
        calls.append("quick")
        await anyio.sleep(0)

    producer.add(0, event_type="export.slow")
    producer.add(0, event_type="export.quick")
    producer.add(1, event_type="export.slow")
    producer.add(0, event_type="export.quick")

    async with consuming(outbox) as running:
        await running.dead("exports")
        await running.done("exports", 3)

    assert calls[:4] == ["slow 0", "quick", "slow 1", "quick"]
    codes = {each.failure.code for each in running.recorder.of(AttemptFailed)}
    assert codes == {"handler-timeout"}


async def test_a_running_handler_of_any_type_is_cancelled(
    outbox: Outbox, producer: Producer, consuming: Consuming
) -> None:
    exports = outbox.queue("exports", cancellable=True)
    begun = anyio.Event()

    @exports.on("export.quick")
    async def quick(event: Event[Any]) -> None: ...

    @exports.on("export.long")
    async def long(event: Event[Any]) -> None:
        begun.set()
        await anyio.sleep_forever()

    producer.add(0, event_type="export.quick")
    with producer.open() as session:
        wanted = session.add_event("export.long", {"n": 1})

    async with consuming(outbox) as running:
        await begun.wait()
        with producer.open() as session:
            assert outbox.cancel(session, wanted.event_id) == {"exports": "requested"}
        await running.settled("exports", outcome="cancelled")


async def test_an_event_whose_handler_is_gone_is_attempted_and_then_a_dead_letter(
    outbox: Outbox, producer: Producer, database: Database, consuming: Consuming
) -> None:
    """It was scheduled while there was one. The others of the queue are handled."""
    earlier = Outbox(notify=outbox.settings.notify)
    queue = earlier.queue("exports")
    for name in ("export.kept", "export.other", "export.gone"):

        @queue.on(name)
        async def handle(event: Event[Any]) -> None: ...

    with producer.open() as session:
        for name in ("export.gone", "export.kept"):
            session.add_event(name, {"n": 1}, delay=timedelta(hours=1))
    async with consuming(earlier) as running:
        await running.consumer.drain()
    assert [row.state for row in database.deliveries("exports")] == ["scheduled", "scheduled"]
    database.rows("UPDATE outbox_deliveries SET due_at = now()")

    exports = outbox.queue("exports", retry=QUICK)
    for name in ("export.kept", "export.other"):

        @exports.on(name)
        async def handle_now(event: Event[Any]) -> None: ...

    async with consuming(outbox) as running:
        await running.done("exports")
        await running.dead("exports")

    (dead,) = database.dead_letters("exports")
    assert (dead.event_type, dead.reason, dead.attempts) == ("export.gone", "attempts", 3)
    assert {each["code"] for each in dead.errors} == {"no-handler"}


class TestCategories:
    async def test_a_queue_gets_the_events_whose_category_names_it_and_no_others(
        self, engine: Any, producer: Producer, consuming: Consuming, database: Database
    ) -> None:
        """Those that wait, urgent ones, of several tenants, and those that are offered."""
        outbox = Outbox(
            categories={
                "report.*": "export",
                "report.mail*": Category("mail", queue="mails"),
                "file.taken": "import",
            }
        )
        got: dict[str, list[str]] = {"exports": [], "mails": [], "default": []}
        for name, types in got.items():

            @outbox.queue(name, batch_size=3)
            async def handle(event: Event[Any], types: list[str] = types) -> None:
                types.append(event.event_type)

        names = ("report.made", "report.mailed", "file.taken", "file.lost")
        for n in range(12):
            for each in names:
                producer.add(n, event_type=each, tenant=f"t{n % 3}", priority=n % 2)

        async with consuming(outbox) as running:
            await running.settled("exports", 24)
            await running.settled("mails", 12)
            await running.settled("default", 12)
            for each in names:
                producer.add(1, event_type=each)
            await running.settled("exports", 26)
            await running.settled("mails", 13)
            await running.settled("default", 13)

        assert {name: sorted(set(types)) for name, types in got.items()} == {
            "exports": ["file.taken", "report.made"],
            "mails": ["report.mailed"],
            "default": ["file.lost"],
        }
        assert len(running.recorder.of(DeliverySettled)) == 52

    async def test_each_event_of_one_listener_is_retried_as_its_own_category_says(
        self, engine: Any, consuming: Consuming, database: Database
    ) -> None:
        once = Category("once", retry=RetryPolicy(attempts=1))
        thrice = Category("thrice", retry=QUICK.replace(final_on=(KeyError,)))
        outbox = Outbox(categories={"a.once": once, "a.*": thrice})

        @outbox.listener("it", on=["a.*", "b.c"])
        async def fail(event: Event[Any]) -> None:
            raise KeyError if event.event_type == "a.final" else ValueError

        producer = Producer(outbox, engine)
        for name in ("a.once", "a.thrice", "a.final", "b.c"):
            producer.add(1, event_type=name)
        async with consuming(outbox) as running:
            await running.dead("it", 3)
            await running.recorder.seen(AttemptFailed, event_type="b.c")

        found = {row.event_type: (row.reason, row.attempts) for row in database.dead_letters("it")}
        assert found == {
            "a.once": ("attempts", 1),
            "a.thrice": ("attempts", 3),
            "a.final": ("final", 1),
        }
        (waiting,) = running.recorder.of(AttemptFailed, event_type="b.c")
        assert waiting.retry_in is not None

    async def test_so_is_each_event_of_a_batch(
        self, engine: Any, consuming: Consuming, database: Database
    ) -> None:
        once = Category("once", retry=RetryPolicy(attempts=1))
        outbox = Outbox(categories={"a.once": once, "a.thrice": Category("more", retry=QUICK)})

        @outbox.listener("it", on="a.*")
        async def fail(events: list[Event[Any]]) -> None:
            raise ValueError

        producer = Producer(outbox, engine)
        with producer.open() as session:
            for name in ("a.once", "a.thrice"):
                session.add_event(name)
        async with consuming(outbox) as running:
            await running.dead("it", 2)

        found = {row.event_type: row.attempts for row in database.dead_letters("it")}
        assert found == {"a.once": 1, "a.thrice": 3}
