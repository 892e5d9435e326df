"""``deliver(session)``: handlers in the test's own transaction."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any
from unittest.mock import Mock

import pytest
from sqlalchemy import URL, Engine, NullPool, select, text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession, create_async_engine
from sqlalchemy.orm import Session

from sa_outbox import (
    AsyncOutboxSession,
    Category,
    Event,
    Outbox,
    OutboxSession,
    Reject,
    RetryPolicy,
)
from sa_outbox.clock import Clock
from sa_outbox.clock import clock as the_clock
from sa_outbox.errors import ConfigError, HandlerMustNotCommit, OutboxError
from sa_outbox.policy.order import Order as OrderName
from sa_outbox.testing import deliver
from tests.support.shop import Customer, Order, OrderPlaced

pytestmark = pytest.mark.anyio

RELAY_METHODS = ("check_destination", "send", "close")
DAYS = RetryPolicy(schedule=[timedelta(days=3)], final_on=(KeyError,))


class OwnSession(AsyncSession):
    async def count(self) -> int:
        return len((await self.scalars(select(Customer))).all())


@pytest.fixture
def outbox() -> Outbox:
    return Outbox(notify="off", tenant_setting="shop.tenant")


@pytest.fixture
def clock() -> Iterator[Clock]:
    yield the_clock
    the_clock.reset()


@pytest.fixture
async def connection(engine: Engine, migrated_url: URL) -> AsyncIterator[AsyncConnection]:
    url = migrated_url.set(drivername="postgresql+asyncpg")
    asynchronous = create_async_engine(url, poolclass=NullPool)
    async with asynchronous.connect() as connection:
        transaction = await connection.begin()
        yield connection
        await transaction.rollback()


@pytest.fixture
async def session(outbox: Outbox, connection: AsyncConnection) -> AsyncIterator[AsyncOutboxSession]:
    maker = outbox.async_sessionmaker(
        join_transaction_mode="create_savepoint", expire_on_commit=False
    )
    async with maker(bind=connection) as session:
        yield session


async def names(session: AsyncSession) -> list[str | None]:
    return [*(await session.scalars(select(Customer.name).order_by(Customer.id)))]


async def test_an_async_handler_works_in_the_transaction_of_the_test(
    outbox: Outbox, session: AsyncOutboxSession, engine: Engine
) -> None:
    got: list[Event[Any]] = []

    @outbox.listener("billing", on="order.*")
    async def bill(event: Event[Any], session: AsyncSession) -> None:
        got.append(event)
        session.add(Customer(name=(await session.scalars(select(Order.name))).one()))

    session.add(Order(name="o-1"))
    session.add_event("order.placed", {"n": 1}, key="c-1", headers={"actor_id": "7"})

    deliveries = await deliver(session)

    assert await names(session) == ["o-1"]
    [event] = got
    assert (event.payload, event.key, event.headers["actor_id"]) == ({"n": 1}, "c-1", "7")
    assert event.position is not None
    assert [(each.listener, each.outcome, each.attempt) for each in deliveries] == [
        ("billing", "done", 1)
    ]
    with engine.connect() as other:
        assert other.scalar(text("SELECT count(*) FROM outbox")) == 0


async def test_a_commit_of_the_test_is_in_its_transaction_too(
    outbox: Outbox, session: AsyncOutboxSession
) -> None:
    @outbox.listener("billing", on=OrderPlaced)
    async def bill(event: Event[OrderPlaced], session: AsyncSession) -> None:
        session.add(Customer(name=str(event.payload.order_id)))

    session.add_event(OrderPlaced(order_id=7))
    await session.commit()

    (await deliver(session)).expect_done()

    assert await names(session) == ["7"]
    await session.commit()
    assert len(await deliver(session)) == 0


async def test_one_that_raises_is_rolled_back_to_its_savepoint_alone(
    outbox: Outbox, session: AsyncOutboxSession, caplog: pytest.LogCaptureFixture
) -> None:
    @outbox.listener("billing", on="order.*", retry=DAYS)
    async def bill(event: Event[Any], session: AsyncSession) -> None:
        session.add(Customer(name=event.payload))
        outbox.add(session, "billed", event.payload)
        await session.flush()
        if event.payload == "b":
            raise ValueError("declined")

    for name in "abc":
        session.add_event("order.placed", name)

    deliveries = await deliver(session)

    assert await names(session) == ["a", "c"]
    assert [each.outcome for each in deliveries] == ["done", "retry", "done"]
    [failed] = deliveries.failed
    assert isinstance(failed.error, ValueError)
    assert failed.failure is not None
    assert failed.failure.message == "declined"
    assert failed.due_at is not None
    assert timedelta(days=2) < failed.due_at - datetime.now(UTC) <= timedelta(days=3)
    assert "ValueError: declined" in caplog.text


async def test_an_error_of_the_database_leaves_the_transaction_usable(
    outbox: Outbox, session: AsyncOutboxSession
) -> None:
    @outbox.listener("billing", on="order.*")
    async def bill(event: Event[Any], session: AsyncSession) -> None:
        if event.payload == "swallows":
            with suppress(DBAPIError):
                await session.execute(text("SELECT 1 / 0"))
            return
        await session.execute(text("SELECT 1 / 0"))

    for name in ("raises", "swallows"):
        session.add_event("order.placed", name)

    deliveries = await deliver(session)

    assert [each.outcome for each in deliveries] == ["retry", "retry"]
    assert await names(session) == []


async def test_nobody_but_the_test_ends_its_transaction(
    outbox: Outbox, session: AsyncOutboxSession, engine: Engine
) -> None:
    @outbox.listener("billing", on="order.*")
    async def bill(event: Event[Any], session: AsyncSession) -> None:
        await getattr(session, event.payload)()

    for way in ("commit", "rollback", "close"):
        session.add_event("order.placed", way)
    session.add(Customer(name="of the test"))

    deliveries = await deliver(session)

    assert [type(each.error) for each in deliveries] == [HandlerMustNotCommit] * 3
    assert await names(session) == ["of the test"]
    await session.commit()  # only handlers are refused


@pytest.mark.filterwarnings("ignore:.*transaction already deassociated")
async def test_a_handler_that_commits_the_connection_is_refused_and_ends_the_test(
    outbox: Outbox, session: AsyncOutboxSession, engine: Engine
) -> None:
    @outbox.listener("billing", on="order.*")
    async def bill(event: Event[Any], session: AsyncSession) -> None:
        await (await session.connection()).commit()

    session.add(Customer(name="of the test"))
    session.add_event("order.placed")

    with pytest.raises(HandlerMustNotCommit):
        await deliver(session)

    with engine.connect() as other:
        assert other.scalar(text("SELECT count(*) FROM customers")) == 0


async def test_events_that_handlers_add_are_followed(
    outbox: Outbox, session: AsyncOutboxSession
) -> None:
    got: list[tuple[str, object]] = []

    @outbox.listener("billing", on="order.*")
    async def bill(event: Event[Any], session: AsyncSession) -> None:
        outbox.add(session, "invoice.written", event.payload)

    @outbox.listener("mail", on="invoice.*")
    async def mail(event: Event[Any]) -> None:
        got.append((event.event_type, event.headers["causation_id"]))

    placed = session.add_event("order.placed", 1)

    deliveries = await deliver(session)

    assert [(each.listener, each.event_type) for each in deliveries] == [
        ("billing", "order.placed"),
        ("mail", "invoice.written"),
    ]
    assert got == [("invoice.written", str(placed.event_id))]


async def test_handlers_that_answer_each_other_forever_come_to_an_end(
    outbox: Outbox, session: AsyncOutboxSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sa_outbox.testing.handler_rounds.MAX_ROUNDS", 5)

    @outbox.listener("echo", on="*")
    async def echo(event: Event[Any], session: AsyncSession) -> None:
        outbox.add(session, "again")

    session.add_event("again")

    with pytest.raises(OutboxError, match="5 rounds"):
        await deliver(session)


class TestRetries:
    async def test_the_next_attempt_is_made_when_it_is_due_by_the_clock(
        self, outbox: Outbox, session: AsyncOutboxSession, clock: Clock
    ) -> None:
        attempts: list[int] = []

        @outbox.listener("billing", on="order.*", retry=DAYS)
        async def bill(event: Event[Any]) -> None:
            attempts.append(len(attempts))
            raise ValueError("declined")

        session.add_event("order.placed")
        outcomes = [(await deliver(session)).one("billing")]
        clock.advance(days=2, hours=23)
        outcomes.append((await deliver(session)).one("billing"))
        clock.advance(hours=1)
        outcomes.append((await deliver(session)).one("billing"))

        assert [each.outcome for each in outcomes] == ["retry", "waiting", "dead"]
        assert outcomes[0].due_at == outcomes[1].due_at
        assert (outcomes[2].attempt, outcomes[2].reason) == (2, "attempts")
        assert len(attempts) == 2
        assert len(await deliver(session)) == 0

    async def test_each_event_is_attempted_as_often_as_its_category_says(
        self, connection: AsyncConnection
    ) -> None:
        once = Category("once", retry=RetryPolicy(attempts=1))
        outbox = Outbox(notify="off", categories={"order.*": once, "mail.*": "notification"})

        @outbox.listener("billing", on=["order.*", "mail.*"])
        async def bill(event: Event[Any]) -> None:
            raise ValueError("declined")

        async with outbox.async_sessionmaker(bind=connection)() as session:
            session.add_event("order.placed")
            session.add_event("mail.wanted")
            outcomes = {each.event_type: each.outcome for each in await deliver(session)}

        assert outcomes == {"order.placed": "dead", "mail.wanted": "retry"}

    @pytest.mark.parametrize(
        ("error", "reason"), [(KeyError("x"), "final"), (Reject("no"), "rejected")]
    )
    async def test_what_is_final_is_dead_at_once(
        self, error: Exception, reason: str, outbox: Outbox, session: AsyncOutboxSession
    ) -> None:
        @outbox.listener("billing", on="order.*", retry=DAYS)
        async def bill(event: Event[Any]) -> None:
            raise error

        session.add_event("order.placed")

        delivery = (await deliver(session)).one("billing")

        assert (delivery.outcome, delivery.reason, delivery.error) == ("dead", reason, error)

    @pytest.mark.parametrize(
        ("order", "handled"), [("total", []), ("key", ["other"]), ("none", ["behind", "other"])]
    )
    async def test_what_comes_behind_a_failed_one_waits_as_its_order_says(
        self, order: OrderName, handled: list[str], outbox: Outbox, session: AsyncOutboxSession
    ) -> None:
        got: list[str] = []

        @outbox.listener("billing", on="order.*", retry=DAYS, order=order)
        async def bill(event: Event[Any]) -> None:
            if event.payload == "fails":
                raise ValueError("declined")
            got.append(event.payload)

        session.add_event("order.placed", "fails", key="a")
        session.add_event("order.placed", "behind", key="a")
        session.add_event("order.placed", "other", key="b")

        deliveries = await deliver(session)

        assert got == handled
        outcomes = [each.outcome for each in deliveries]
        assert outcomes.count("waiting") == 2 - len(handled)

    async def test_one_for_later_waits_for_the_clock(
        self, outbox: Outbox, session: AsyncOutboxSession, clock: Clock
    ) -> None:
        @outbox.listener("billing", on="order.*")
        async def bill(event: Event[Any]) -> None:
            pass

        session.add_event("order.placed", delay=timedelta(days=31))

        early = (await deliver(session)).one("billing")
        clock.advance(days=31)
        late = (await deliver(session)).one("billing")

        assert (early.outcome, late.outcome) == ("waiting", "done")
        assert early.due_at is not None
        assert early.due_at > datetime.now(UTC) + timedelta(days=30)


async def test_a_batch_is_one_call_and_the_culprit_is_found(
    outbox: Outbox, session: AsyncOutboxSession
) -> None:
    calls: list[list[int]] = []

    @outbox.listener("billing", on="order.*", batch_size=3)
    async def bill(events: Sequence[Event[Any]]) -> None:
        calls.append([each.payload for each in events])
        if 5 in calls[-1]:
            raise ValueError("declined")

    for number in range(1, 6):
        session.add_event("order.placed", number)

    deliveries = await deliver(session)

    assert calls == [[1, 2, 3], [4, 5], [4], [5]]
    assert [each.outcome for each in deliveries] == ["done"] * 4 + ["retry"]


async def test_a_sync_handler_has_a_sync_session_in_the_same_transaction(
    outbox: Outbox, session: AsyncOutboxSession
) -> None:
    @outbox.listener("billing", on="order.*")
    def bill(event: Event[Any], session: Session) -> None:
        session.add(Customer(name=event.payload))
        event.leave_result("invoices/7")
        if event.payload == "b":
            raise ValueError("declined")

    for name in "abc":
        session.add_event("order.placed", name)

    deliveries = await deliver(session)

    assert await names(session) == ["a", "c"]
    assert deliveries[0].result_ref == "invoices/7"


async def test_a_handler_gets_the_session_class_that_it_asks_for(
    outbox: Outbox, session: AsyncOutboxSession
) -> None:
    got: list[int] = []

    @outbox.listener("billing", on="order.*")
    async def bill(event: Event[Any], session: OwnSession) -> None:
        got.append(await session.count())

    session.add(Customer(name="a"))
    session.add_event("order.placed")

    (await deliver(session)).expect_done()

    assert got == [1]


async def test_the_tenant_is_the_event_s_while_it_is_handled_and_then_the_test_s(
    outbox: Outbox, session: AsyncOutboxSession
) -> None:
    setting = text("SELECT current_setting('shop.tenant', true)")
    got: list[object] = []

    @outbox.listener("billing", on="order.*")
    async def bill(event: Event[Any], session: AsyncSession) -> None:
        got.append(await session.scalar(setting))

    await session.execute(text("SELECT set_config('shop.tenant', 'mine', true)"))
    for tenant in ("acme", "other"):
        session.add_event("order.placed", tenant=tenant)

    await deliver(session)

    assert got == ["acme", "other"]
    assert await session.scalar(setting) == "mine"


class TestSyncSessions:
    @pytest.fixture
    def session(self, outbox: Outbox, engine: Engine) -> Iterator[OutboxSession]:
        with outbox.sessionmaker(engine)() as session:
            yield session

    def test_sync_handlers_run_in_threads_and_in_the_transaction(
        self, outbox: Outbox, session: OutboxSession
    ) -> None:
        threads: set[int] = set()

        @outbox.listener("billing", on="order.*")
        def bill(event: Event[Any], session: Session) -> None:
            threads.add(threading.get_ident())
            session.add(Customer(name=event.payload))

        @outbox.listener("mail", on="order.*")
        async def mail(event: Event[Any]) -> None:
            threads.add(threading.get_ident())

        session.add_event("order.placed", "a")

        deliver(session).expect_done()

        assert session.scalars(select(Customer.name)).all() == ["a"]
        assert threading.get_ident() not in threads
        session.rollback()

    async def test_a_test_that_is_in_a_loop_may_have_one(
        self, outbox: Outbox, session: OutboxSession
    ) -> None:
        @outbox.listener("billing", on="order.*")
        def bill(event: Event[Any], session: Session) -> None:
            session.add(Customer(name=event.payload))

        session.add_event("order.placed", "a")

        deliver(session).expect_done()
        session.rollback()

    def test_an_async_session_can_not_share_it(
        self, outbox: Outbox, session: OutboxSession
    ) -> None:
        @outbox.listener("billing", on="order.*")
        async def bill(event: Event[Any], session: AsyncSession) -> None: ...

        session.add_event("order.placed")

        with pytest.raises(ConfigError, match="'billing' takes an AsyncSession"):
            deliver(session)
        session.rollback()

    def test_without_a_transaction_there_is_nothing_to_deliver_and_that_is_an_error(
        self, outbox: Outbox, session: OutboxSession
    ) -> None:
        outbox.listener("billing", on="order.*")(_nothing)
        session.add_event("order.placed")
        session.commit()

        with pytest.raises(ConfigError, match="no open transaction"):
            deliver(session)

    def test_events_of_others_are_left_to_them(
        self, outbox: Outbox, session: OutboxSession
    ) -> None:
        got: list[str] = []
        outbox.listener("billing", on="*")(_collecting(got))
        session.add_event("earlier")
        session.commit()
        session.add_event("now")
        with session.begin_nested():
            session.add_event("released")

        deliver(session)

        assert got == ["now", "released"]
        session.rollback()


class TestListeners:
    async def test_a_filter_of_payloads_is_asked_of_the_database(
        self, outbox: Outbox, session: AsyncOutboxSession
    ) -> None:
        @outbox.listener("billing", on="order.*", where={"country": "de"})
        async def bill(event: Event[Any]) -> None: ...

        for country in ("de", "fr"):
            session.add_event("order.placed", {"country": country})

        assert len(await deliver(session)) == 1

    async def test_a_queue_gives_each_event_to_its_handler(
        self, outbox: Outbox, session: AsyncOutboxSession
    ) -> None:
        got: list[str] = []
        exports = outbox.queue("exports")

        @exports.on("export.orders")
        async def orders(event: Event[Any], session: AsyncSession) -> None:
            got.append(f"orders {event.event_type}")

        @exports.on("export.*")
        async def others(event: Event[Any]) -> None:
            got.append(f"others {event.event_type}")

        session.add_event("export.orders")
        session.add_event("export.stock")

        deliveries = await deliver(session)

        assert got == ["orders export.orders", "others export.stock"]
        assert [each.listener for each in deliveries] == ["exports", "exports"]

    async def test_the_named_ones_are_run(
        self, outbox: Outbox, session: AsyncOutboxSession
    ) -> None:
        got: list[str] = []
        outbox.listener("billing", on="*")(_collecting(got))
        outbox.listener("mail", on="*")(_collecting(got))
        session.add_event("order.placed")

        await deliver(session, listeners=["mail"])

        assert got == ["order.placed"]
        with pytest.raises(ConfigError, match="no listener 'male'"):
            await deliver(session, listeners=["male"])

    async def test_a_relay_sends_nothing(self, outbox: Outbox, session: AsyncOutboxSession) -> None:
        relay = Mock(spec=["keeps_order", "takes_batches", "attribute_prefix", *RELAY_METHODS])
        outbox.relay("kafka", relay, on="*", to="orders")
        outbox.listener("billing", on="order.*")(_nothing)
        session.add_event("order.placed")

        assert [each.listener for each in await deliver(session)] == ["billing"]
        relay.send.assert_not_called()
        with pytest.raises(ConfigError, match="kafka: a relay"):
            await deliver(session, listeners=["kafka"])

    async def test_what_the_test_itself_raises_is_not_the_handler_s(
        self, outbox: Outbox, session: AsyncOutboxSession
    ) -> None:
        @outbox.listener("billing", on="order.*")
        async def bill(event: Event[Any]) -> None:
            pytest.fail("from inside")

        session.add_event("order.placed")

        with pytest.raises(pytest.fail.Exception, match="from inside"):
            await deliver(session)


async def _nothing(event: Event[Any]) -> None: ...


def _collecting(got: list[str]) -> Callable[[Event[Any]], None]:
    def collect(event: Event[Any]) -> None:
        got.append(event.event_type)

    return collect
