"""docs/examples/jobs: what its page promises, one by one."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import structlog
from sqlalchemy import URL, select, text
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine
from structlog.contextvars import merge_contextvars

from docs.examples.jobs.app import (
    Base,
    Export,
    Project,
    cancel,
    charge,
    outbox,
    plan,
    request_export,
)
from sa_outbox import Event, OutboxError, event_context, schema
from sa_outbox.clock import clock
from sa_outbox.consumer import Consumer, ConsumerSettings, Drained
from sa_outbox.errors import ContractViolation, SecretFound
from sa_outbox.monitoring import Metrics, prometheus
from sa_outbox.observe import AttemptFailed, Observation, Observer

pytestmark = pytest.mark.anyio

USER = event_context(
    tenant="acme",
    project_id="p-1",
    actor_type="user",
    actor_id="ada",
    request_id="req-1",
    correlation_id="c-1",
)
OF_USER = {"tenant": "acme", "project_id": "p-1", "request_id": "req-1", "correlation_id": "c-1"}


@dataclass
class System:
    engine: AsyncEngine
    metrics: Metrics
    seen: list[Observation]

    async def add(self, work: Callable[[Any], Event]) -> Event:
        with USER:
            async with outbox.async_sessionmaker(self.engine).begin() as session:
                return work(session)

    async def request_export(self, day: str) -> Event:
        with USER:
            async with outbox.async_sessionmaker(self.engine).begin() as session:
                return await request_export(session, Project(id="p-1"), day)

    async def drain(self) -> Drained:
        settings = ConsumerSettings(log_starts="info")
        observers: list[Observer] = [self.metrics, self.seen.append]
        consumer = Consumer(outbox, self.engine, settings=settings, observers=observers)
        return await consumer.drain(retries=False)

    async def rows(self, statement: str, **values: object) -> list[Any]:
        async with self.engine.connect() as connection:
            return list(await connection.execute(text(statement), values))

    async def audit(self, event: Event) -> list[Any]:
        return await self.rows(
            "SELECT * FROM outbox_audit WHERE event_id = :it ORDER BY id", it=event.event_id
        )

    def delays(self) -> list[float | None]:
        return [each.retry_in for each in self.seen if isinstance(each, AttemptFailed)]


@pytest.fixture
async def system(new_database: Callable[[], URL]) -> AsyncIterator[System]:
    # At noon: a test that moves the clock on by some minutes comes past no nightly tick.
    tomorrow = datetime.now(UTC) + timedelta(days=1)
    clock.move_to(tomorrow.replace(hour=12))
    engine = create_async_engine(new_database().set(drivername="postgresql+asyncpg"))
    async with engine.begin() as connection:
        await connection.run_sync(schema.migrate, outbox.settings.names)
        await connection.run_sync(Base.metadata.create_all)
    async with outbox.async_sessionmaker(engine).begin() as session:
        session.add_all([Project(id="p-1", tasks=3), Project(id="p-2", tasks=-1)])
    metrics = Metrics(outbox)
    outbox.observers.add(metrics)
    system = System(engine, metrics, [])
    await system.drain()  # its queues and its cron are registered
    yield system
    outbox.observers.remove(metrics)
    clock.reset()
    await engine.dispose()


@pytest.fixture
def lines() -> Iterator[list[Any]]:
    assert not structlog.is_configured()
    with structlog.testing.capture_logs(processors=[merge_contextvars]) as captured:
        yield captured
    structlog.reset_defaults()


def message(to: str, **more: Any) -> Callable[[Any], Event]:
    return lambda session: session.add_event("message.wanted", {"to": to, **more})


KINDS = {
    "payment.due": ("critical", 8, timedelta(minutes=5)),
    "message.wanted": ("notifications", 10, timedelta(minutes=30)),
    "plan.wanted": ("planning", 3, timedelta(minutes=2)),
    "export.wanted": ("exports", 5, timedelta(minutes=10)),
    "export.expired": ("exports", 5, timedelta(minutes=10)),
    "cleanup.nightly": ("maintenance", 5, timedelta(minutes=5)),
    "team.renamed": ("default", 5, timedelta(minutes=5)),
}


def test_its_page_shows_the_program_as_it_is() -> None:
    folder = Path(__file__).parent.parent.parent / "docs" / "examples"
    program = (folder / "jobs" / "app.py").read_text()

    assert f"```python\n{program}```\n" in (folder / "jobs.md").read_text()


@pytest.mark.parametrize("event_type", KINDS)
def test_each_type_has_one_queue_and_the_retries_of_its_category(event_type: str) -> None:
    [listener] = [each for each in outbox.listeners if each.wants(event_type)]
    policy = listener.retry_of(event_type)

    assert (listener.name, policy.attempts, policy.maximum) == KINDS[event_type]
    assert policy.delay_after(1, chance=1) == timedelta(seconds=5)
    assert policy.delay_after(policy.attempts, chance=1) is None


async def test_work_of_every_kind_is_done_once(system: System, lines: list[Any]) -> None:
    await system.add(lambda session: charge(session, "inv-1", "good"))
    await system.add(lambda session: plan(session, Project(id="p-1")))
    export = await system.request_export("monday")
    again = await system.request_export("monday")
    await system.add(lambda session: session.add_event("team.renamed", {"to": "blue"}))

    both = [await system.drain() for _ in range(2)]  # the second: what the handlers added

    assert [sum(each.handled for each in both), *(each.dead for each in both)] == [6, 0, 0]
    assert again.duplicate_of == export.event_id
    assert Counter(line["event"] for line in lines if line["event"] in DONE) == DONE
    async with outbox.async_sessionmaker(system.engine)() as session:
        assert (await session.get_one(Project, "p-1")).planned
        status = await outbox.status(session, export.event_id)
        made = status.listeners["exports"]
        assert made.state == "succeeded"
        assert made.result_ref == "exports/p-1/monday.csv"
        assert [each.lines for each in await session.scalars(select(Export))] == [3]


DONE = Counter({"payment taken": 1, "message sent": 2, "export written": 1, "nothing special": 1})


async def test_lines_of_handlers_and_of_the_consumer_say_which_event(
    system: System, lines: list[Any]
) -> None:
    good = await system.add(lambda session: charge(session, "inv-1", "good"))
    bad = await system.add(lambda session: charge(session, "inv-2", "declined"))

    await system.drain()

    def lines_of(event: Event, what: str) -> dict[str, Any]:
        [line] = [
            each
            for each in lines
            if each["event"] == what and each.get("event_id") == str(event.event_id)
        ]
        return dict(line)

    for event in (good, bad):
        of_event = {"event_id": str(event.event_id), "event_type": "payment.due", "attempt": 1}
        of_event |= {"listener": "critical", **OF_USER}
        started = lines_of(event, "delivery started")
        assert of_event.items() <= started.items()
        assert started["log_level"] == "info"
        assert started["owner"]
        ended = lines_of(event, "payment taken" if event is good else "attempt failed")
        assert of_event.items() <= ended.items()
    assert lines_of(good, "payment taken")["invoice"] == "inv-1"
    failed = lines_of(bad, "attempt failed")
    assert failed["error"].endswith("CardDeclined")
    assert "take_payment" in failed["exception"]
    assert "inv-2" not in str(failed)


async def test_what_is_done_is_counted(system: System) -> None:
    await system.add(lambda session: charge(session, "inv-1", "good"))
    await system.add(lambda session: charge(session, "inv-2", "declined"))
    await system.add(message("ada"))

    await system.drain()

    registry = prometheus.register(system.metrics)

    def number(name: str, **labels: str) -> float | None:
        return registry.get_sample_value(f"sa_outbox_{name}", labels)

    pay, write = {"event_type": "payment.due"}, {"event_type": "message.wanted"}
    critical = {"listener": "critical"}
    declined = {**critical, "error": "docs.examples.jobs.app.CardDeclined"}
    assert number("events_added_total", **pay, queue="critical") == 2
    assert number("events_added_total", **write, queue="notifications") == 1
    assert number("deliveries_claimed_total", **critical) == 2
    assert number("deliveries_settled_total", **critical, **pay, outcome="done") == 1
    assert number("deliveries_settled_total", **critical, **pay, outcome="dead") == 1
    assert number("attempt_errors_total", **declined) == 1
    assert number("handler_seconds_count", **critical, **pay) == 2
    assert number("delivery_attempts_count", **critical) == 2


async def test_who_did_what_is_recorded(system: System) -> None:
    export = await system.request_export("monday")
    other = await system.request_export("tuesday")
    support = event_context(actor_type="api_key", actor_id="support", request_id="req-9")
    with support:
        async with outbox.async_sessionmaker(system.engine).begin() as session:
            assert await cancel(session, other.event_id) == {"exports": "cancelled"}

    await system.drain()

    done = await system.audit(export)
    assert [each.action for each in done] == ["enqueued", "started", "succeeded"]
    whose = ("acme", "p-1", "user", "ada", "req-1", "c-1")
    assert {
        (r.tenant, r.project_id, r.actor_type, r.actor_id, r.request_id, r.correlation_id)
        for r in done
    } == {whose}
    assert [each.attempt for each in done] == [None, 1, 1]
    enqueued, cancelled = await system.audit(other)
    assert (enqueued.action, enqueued.actor_id) == ("enqueued", "ada")
    assert (cancelled.action, cancelled.actor_id, cancelled.request_id) == (
        *("cancelled", "support", "req-9"),
    )
    assert (cancelled.tenant, cancelled.project_id) == ("acme", "p-1")


async def test_a_plan_that_can_not_be_made_is_given_up_after_three_attempts(
    system: System,
) -> None:
    event = await system.add(lambda session: plan(session, Project(id="p-2")))

    for _ in range(3):
        await system.drain()
        clock.advance(minutes=2)

    first, second, last = system.delays()
    assert first is not None
    assert second is not None
    assert 0 <= first <= 5
    assert 0 <= second <= 10
    assert last is None
    recorded = [each.action for each in await system.audit(event)]
    assert recorded == [
        "enqueued",
        *("started", "failed", "retried") * 2,
        *("started", "failed", "deadlettered"),
    ]


async def test_a_full_mailbox_is_tried_again_when_the_handler_says(system: System) -> None:
    await system.add(message("ada", mailbox="full"))

    drained = await system.drain()
    assert (drained.retried, drained.waiting) == (1, 1)
    clock.advance(minutes=19)
    assert (await system.drain()).handled == 0
    clock.advance(minutes=1)

    assert (await system.drain()).handled == 1
    assert system.delays() == [pytest.approx(1200, abs=1)]


@pytest.mark.parametrize(
    ("missing", "add"),
    [
        ("project_id", lambda session: session.add_event("plan.wanted", {"project": "p-1"})),
        ("idempotency_key", lambda session: session.add_event("export.wanted", {"export": 1})),
        ("request_id", lambda session: charge(session, "inv-1", "good")),
        ("password", lambda session: session.add_event("team.made", {"password": "hunter2"})),
    ],
)
async def test_an_event_that_lacks_something_or_has_a_secret_is_refused(
    missing: str, add: Callable[[Any], Event], system: System
) -> None:
    context: dict[str, Any] = {"tenant": "acme", "actor_type": "user", "actor_id": "ada"}
    if missing != "request_id":
        context["request_id"] = "req-1"
    if missing == "idempotency_key":
        context["project_id"] = "p-1"
    wanted: type[OutboxError] = SecretFound if missing == "password" else ContractViolation

    with event_context(**context):
        async with outbox.async_sessionmaker(system.engine).begin() as session:
            with pytest.raises(wanted, match=missing):
                add(session)

    assert await system.rows("SELECT 1 FROM outbox") == []


async def test_who_came_last_with_little_does_not_wait_for_who_came_first_with_much(
    system: System, lines: list[Any]
) -> None:
    for tenant, messages in (("large", 3000), ("small", 3)):
        with event_context(tenant=tenant):
            async with outbox.async_sessionmaker(system.engine).begin() as session:
                for number in range(messages):
                    session.add_event("message.wanted", {"to": number}, headers=SYSTEM)

    await system.drain()

    sent = [line["tenant"] for line in lines if line["event"] == "message sent"]
    assert len(sent) == 3003
    assert sent[:500].count("small") == 3


SYSTEM = {"actor_type": "system", "actor_id": "import", "request_id": "nightly"}


async def test_the_nightly_clean_up_comes_once(system: System, lines: list[Any]) -> None:
    clock.advance(days=1)

    for _ in range(2):
        await system.drain()

    [line] = [each for each in lines if each["event"] == "cleaned up"]
    assert (line["listener"], line["tenant"]) == ("maintenance", "operations")
