"""Several events in one transaction: committed together, and nobody is taken along by another."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any, TypeAlias

import anyio
import pytest
from sqlalchemy import Engine, text
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import Session

from sa_outbox import AsyncOutboxSession, Event, Outbox
from sa_outbox.consumer.transaction import group
from sa_outbox.errors import RetryLater
from sa_outbox.observe import AttemptFailed
from sa_outbox.policy.order import Order
from tests.support.shop import Order as OrderRow

from .conftest import ONCE, QUICK, Consuming, Database, Producer

pytestmark = [pytest.mark.anyio, pytest.mark.woken_by("notify")]

EFFECT = text("INSERT INTO effects VALUES ('billing', :n)")
LATE = text("INSERT INTO checked_late VALUES (:n)")
XID = text("SELECT CAST(pg_current_xact_id() AS text)")
END = text("SELECT pg_terminate_backend(pg_backend_pid())")
COUNT, POISON = 20, 11
EACH_ORDER = pytest.mark.parametrize("order", ["key", "total", "none"])

Act: TypeAlias = Callable[[AsyncSession], Awaitable[object]]


@pytest.fixture(autouse=True)
def patient_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    """However slow the machine is, a group ends with what waits."""
    monkeypatch.setattr(group, "MAX_SECONDS", 60.0)


@pytest.fixture
def calls() -> Counter[int]:
    return Counter()


@pytest.fixture
def poisoned(outbox: Outbox, calls: Counter[int]) -> Callable[..., None]:
    """Declares a listener whose event ``POISON`` does something bad in its session."""

    def declare(act: Act, **options: Any) -> None:
        @outbox.listener("billing", on="order.*", **{"retry": ONCE, **options})
        async def charge(event: Event[Any], session: AsyncSession) -> None:
            n = event.payload["n"]
            calls[n] += 1
            await session.execute(EFFECT, {"n": n})
            if n == POISON:
                await act(session)

    return declare


@pytest.fixture
def all_but_poison(
    outbox: Outbox, producer: Producer, database: Database, consuming: Consuming
) -> Callable[[], Awaitable[list[Any]]]:
    """Runs until ``COUNT`` events are settled; all but one had their effect, once. Returns the
    errors of the dead one."""

    async def run() -> list[Any]:
        for n in range(COUNT):
            producer.add(n, key=str(n % 3))
        async with consuming(outbox) as running:
            await running.dead("billing")
            await running.done("billing", COUNT - 1)
        assert database.effects("billing") == [n for n in range(COUNT) if n != POISON]
        [dead] = database.dead_letters("billing")
        assert dead.position == POISON + 1
        errors: list[Any] = dead.errors
        return errors

    return run


@EACH_ORDER
@pytest.mark.parametrize("grouped", [True, False])
async def test_what_waits_is_committed_together_unless_that_is_switched_off(
    order: Order,
    grouped: bool,
    outbox: Outbox,
    producer: Producer,
    database: Database,
    consuming: Consuming,
) -> None:
    transactions: list[str] = []

    @outbox.listener("billing", on="order.*", order=order, group_commit=grouped)
    async def charge(event: Event[Any], session: AsyncSession) -> None:
        await session.execute(EFFECT, {"n": event.payload["n"]})
        transactions.append(str(await session.scalar(XID)))

    producer.add(*range(10), key="a")

    async with consuming(outbox) as running:
        await running.done("billing", 10)

    assert database.effects("billing") == list(range(10))
    if not grouped:
        assert len(set(transactions)) == 10
    elif order == "none":  # what a queue claims at a time, it commits together
        assert len(set(transactions)) < 10
    else:
        assert len(set(transactions)) == 1


async def test_a_sync_handler_s_events_are_committed_together(
    outbox: Outbox, producer: Producer, database: Database, consuming: Consuming
) -> None:
    transactions: list[Any] = []

    @outbox.listener("billing", on="order.*")
    def charge(event: Event[Any], session: Session) -> None:
        session.execute(EFFECT, {"n": event.payload["n"]})
        session.add(OrderRow(name=f"order {event.payload['n']}"))
        transactions.append(session.scalar(XID))

    producer.add(*range(10))

    async with consuming(outbox) as running:
        await running.done("billing", 10)

    assert database.effects("billing") == list(range(10))
    assert len(set(transactions)) == 1
    assert database.value("SELECT count(*) FROM orders") == 10


async def test_a_group_has_an_end(
    outbox: Outbox, producer: Producer, database: Database, consuming: Consuming
) -> None:
    """Fewer events than PostgreSQL keeps subtransactions; a handler's savepoints count."""
    transactions: list[Any] = []

    @outbox.listener("billing", on="order.*")
    async def charge(event: Event[Any], session: AsyncSession) -> None:
        async with session.begin_nested():
            await session.execute(EFFECT, {"n": event.payload["n"]})
        transactions.append(await session.scalar(XID))

    producer.add(*range(120))

    async with consuming(outbox) as running:
        await running.done("billing", 120)

    sizes = Counter(transactions).values()
    assert max(sizes) == group.MAX_EVENTS // 2
    assert database.effects("billing") == list(range(120))


async def test_each_event_has_a_session_of_its_own(
    outbox: Outbox, producer: Producer, consuming: Consuming
) -> None:
    sessions: list[AsyncSession] = []
    known: list[int] = []

    @outbox.listener("billing", on="order.*")
    async def charge(event: Event[Any], session: AsyncSession) -> None:
        known.append(len(list(session)))
        session.add(OrderRow(name=f"order {event.payload['n']}"))
        sessions.append(session)

    producer.add(1, 2, 3)

    async with consuming(outbox) as running:
        await running.done("billing", 3)

    assert len({id(each) for each in sessions}) == 3
    assert known == [0, 0, 0]


class TestAFailure:
    @EACH_ORDER
    async def test_takes_nobody_along(
        self,
        order: Order,
        poisoned: Callable[..., None],
        all_but_poison: Callable[[], Awaitable[list[Any]]],
        calls: Counter[int],
    ) -> None:
        """Each other event's handler runs once."""

        async def refuse(session: AsyncSession) -> None:
            raise ValueError("never")

        poisoned(refuse, order=order, retry=QUICK)

        errors = await all_but_poison()

        assert [each["attempt"] for each in errors] == [1, 2, 3]
        assert calls == Counter(dict.fromkeys(range(COUNT), 1) | {POISON: 3})

    async def test_of_a_sync_handler_takes_nobody_along(
        self,
        outbox: Outbox,
        all_but_poison: Callable[[], Awaitable[list[Any]]],
        calls: Counter[int],
    ) -> None:
        @outbox.listener("billing", on="order.*", retry=ONCE)
        def charge(event: Event[Any], session: Session) -> None:
            calls[event.payload["n"]] += 1
            session.execute(EFFECT, {"n": event.payload["n"]})
            if event.payload["n"] == POISON:
                raise ValueError("never")

        await all_but_poison()

        assert set(calls.values()) == {1}

    async def test_of_the_database_counts_only_alone(
        self,
        poisoned: Callable[..., None],
        all_but_poison: Callable[[], Awaitable[list[Any]]],
        calls: Counter[int],
    ) -> None:
        """The group may be to blame: its locks, its settings, its temporary tables."""
        poisoned(lambda session: session.execute(text("SELECT 1 / 0")))

        [error] = await all_but_poison()

        assert "division by zero" in error["message"]
        assert calls == Counter(dict.fromkeys(range(COUNT), 1) | {POISON: 2})

    async def test_that_only_a_group_can_cause_is_none(
        self, outbox: Outbox, producer: Producer, database: Database, consuming: Consuming
    ) -> None:
        @outbox.listener("billing", on="order.*", retry=ONCE)
        async def charge(event: Event[Any], session: AsyncSession) -> None:
            await session.execute(text("CREATE TEMP TABLE work (n bigint) ON COMMIT DROP"))
            await session.execute(EFFECT, {"n": event.payload["n"]})

        producer.add(*range(6))

        async with consuming(outbox) as running:
            await running.done("billing", 6)

        assert database.effects("billing") == list(range(6))
        assert running.recorder.of(AttemptFailed) == []

    async def test_of_a_flush_takes_nobody_along(
        self,
        poisoned: Callable[..., None],
        all_but_poison: Callable[[], Awaitable[list[Any]]],
    ) -> None:
        async def add(session: AsyncSession) -> None:
            session.add_all([OrderRow(name="one"), OrderRow(name="one")])
            await session.flush()

        poisoned(add)

        await all_but_poison()

    async def test_that_the_handler_swallows_is_its_own(
        self,
        poisoned: Callable[..., None],
        all_but_poison: Callable[[], Awaitable[list[Any]]],
        calls: Counter[int],
    ) -> None:
        """The server has aborted the savepoint: nothing of it can be committed."""

        async def swallow(session: AsyncSession) -> None:
            with pytest.raises(SQLAlchemyError):
                await session.execute(text("SELECT 1 / 0"))

        poisoned(swallow)

        await all_but_poison()

        assert all(count == 1 for n, count in calls.items() if n != POISON)

    async def test_at_the_commit_is_found_one_by_one(
        self,
        poisoned: Callable[..., None],
        all_but_poison: Callable[[], Awaitable[list[Any]]],
        calls: Counter[int],
    ) -> None:
        """A deferred constraint: nobody knows whose it is before each has committed alone."""

        async def twice(session: AsyncSession) -> None:
            await session.execute(LATE, {"n": 1})
            await session.execute(LATE, {"n": 1})

        poisoned(twice)

        await all_but_poison()

        assert max(calls.values()) == 2

    async def test_by_a_lost_connection_is_found_one_by_one(
        self,
        poisoned: Callable[..., None],
        all_but_poison: Callable[[], Awaitable[list[Any]]],
        calls: Counter[int],
    ) -> None:
        poisoned(lambda session: session.execute(END))

        await all_but_poison()

        assert all(count <= 2 for n, count in calls.items() if n != POISON)

    @pytest.mark.parametrize("statements", ["ROLLBACK", "COMMIT", "ROLLBACK; BEGIN"])
    async def test_that_ends_the_transaction_loses_nobody_s_effects(
        self,
        statements: str,
        outbox: Outbox,
        producer: Producer,
        database: Database,
        consuming: Consuming,
    ) -> None:
        """Beneath SQLAlchemy. What it does to its own effects is its own affair."""

        @outbox.listener("billing", on="order.*", retry=ONCE)
        async def charge(event: Event[Any], session: AsyncSession) -> None:
            n = event.payload["n"]
            if n == POISON:
                connection = await session.connection()
                raw = await connection.get_raw_connection()
                driver: Any = raw.driver_connection
                await driver.execute(statements)
            else:
                await session.execute(EFFECT, {"n": n})

        producer.add(*range(COUNT))

        async with consuming(outbox) as running:
            await running.settled("billing", COUNT)

        effects = Counter(database.effects("billing"))
        if statements == "COMMIT":  # it committed what the group had done, without the cursor
            assert set(effects) == set(range(COUNT)) - {POISON}
        else:
            assert effects == Counter(set(range(COUNT)) - {POISON})

    async def test_by_its_time_limit_takes_nobody_along(
        self,
        poisoned: Callable[..., None],
        all_but_poison: Callable[[], Awaitable[list[Any]]],
    ) -> None:
        """In the middle of a statement: the connection is lost by our own doing."""
        poisoned(
            lambda session: session.execute(text("SELECT pg_sleep(60)")),
            timeout=timedelta(seconds=0.5),
        )

        [error] = await all_but_poison()

        assert "took longer than" in error["message"]

    async def test_by_the_time_limit_of_a_thread_takes_nobody_along(
        self,
        outbox: Outbox,
        all_but_poison: Callable[[], Awaitable[list[Any]]],
    ) -> None:
        """The thread can't be stopped, and has the connection of all of them."""

        @outbox.listener("billing", on="order.*", retry=ONCE, timeout=timedelta(seconds=1))
        def charge(event: Event[Any], session: Session) -> None:
            session.execute(EFFECT, {"n": event.payload["n"]})
            if event.payload["n"] == POISON:
                session.execute(text("SELECT pg_sleep(2)"))

        [error] = await all_but_poison()

        assert "took longer than" in error["message"]

    @pytest.mark.parametrize("order", ["key", "total"])
    async def test_keeps_later_events_of_its_key_waiting(
        self,
        order: Order,
        outbox: Outbox,
        producer: Producer,
        database: Database,
        consuming: Consuming,
    ) -> None:
        done: list[tuple[str, int]] = []
        failures = Counter[int]()

        @outbox.listener("billing", on="order.*", order=order, retry=QUICK)
        async def charge(event: Event[Any], session: AsyncSession) -> None:
            n = event.payload["n"]
            await session.execute(EFFECT, {"n": n})
            if n % 5 == 3 and failures[n] < 2:
                failures[n] += 1
                raise RetryLater(delay=timedelta(milliseconds=20))
            done.append((str(event.key), n))

        for n in range(30):
            producer.add(n, key=str(n % 2))

        async with consuming(outbox) as running:
            await running.done("billing", 30)

        assert database.effects("billing") == list(range(30))
        for key in ("0", "1"):
            of_key = [n for each, n in done if each == key]
            assert of_key == sorted(of_key)
        if order == "total":
            assert [n for _, n in done] == list(range(30))


async def test_two_groups_that_want_each_other_s_rows_both_get_through(
    outbox: Outbox, producer: Producer, database: Database, consuming: Consuming
) -> None:
    """Each has what the other one waits for; PostgreSQL ends one of them, which costs nothing."""
    database.rows("INSERT INTO effects VALUES ('row', 1), ('row', 2)")
    both = anyio.Event()
    first: set[int] = set()
    update = text("UPDATE effects SET n = n WHERE listener = 'row' AND n = :n")

    @outbox.listener("billing", on="order.*", concurrency=2, retry=ONCE)
    async def charge(event: Event[Any], session: AsyncSession) -> None:
        n, row = event.payload["n"], event.payload["n"] % 2 + 1
        await session.execute(update, {"n": row})
        if not both.is_set():
            first.add(row)
            if len(first) == 2:
                both.set()
            with anyio.move_on_after(10):
                await both.wait()
        await session.execute(EFFECT, {"n": n})

    for n, key in ((0, "a"), (1, "b"), (1, "a"), (0, "b")):
        producer.add(n, key=key)

    async with consuming(outbox) as running:
        await running.done("billing", 4)

    assert database.effects("billing") == [0, 0, 1, 1]
    assert running.recorder.of(AttemptFailed) == []


async def test_events_that_a_group_adds_are_announced_when_they_are_committed(
    outbox: Outbox, producer: Producer, consuming: Consuming
) -> None:
    """The poll is a minute away: only a notification brings them."""
    mailed: list[int] = []

    @outbox.listener("billing", on="order.*")
    async def charge(event: Event[Any], session: AsyncOutboxSession) -> None:
        if event.payload["n"] == 5:
            session.add_event("mail.wanted", {"n": 5})

    @outbox.listener("mailer", on="mail.*")
    async def mail(event: Event[Any]) -> None:
        mailed.append(event.payload["n"])

    async with consuming(outbox, poll_interval=timedelta(minutes=1)) as running:
        await running.listening()
        producer.add(*range(10))
        await running.done("mailer")

    assert mailed == [5]


async def test_events_of_one_that_fails_go_with_it(
    outbox: Outbox, producer: Producer, database: Database, consuming: Consuming
) -> None:
    @outbox.listener("billing", on="order.*", retry=ONCE)
    async def charge(event: Event[Any], session: AsyncOutboxSession) -> None:
        session.add_event("mail.wanted", {"n": event.payload["n"]})
        await session.flush()
        session.add_event("mail.wanted", {"n": event.payload["n"]})
        if event.payload["n"] == 3:
            raise ValueError("never")

    producer.add(*range(6))

    async with consuming(outbox) as running:
        await running.done("billing", 5)
        await running.dead("billing")

    found = database.rows("SELECT payload FROM outbox WHERE event_type = 'mail.wanted' ORDER BY id")
    assert [row.payload["n"] for row in found] == [0, 0, 1, 1, 2, 2, 4, 4, 5, 5]


async def test_the_tenant_s_setting_is_right_for_every_event(
    engine: Engine, database: Database, consuming: Consuming
) -> None:
    outbox = Outbox(tenant_setting="app.tenant")
    producer = Producer(outbox, engine)
    seen: list[tuple[str | None, Any]] = []

    @outbox.listener("billing", on="order.*", retry=ONCE)
    async def charge(event: Event[Any], session: AsyncSession) -> None:
        setting = await session.scalar(text("SELECT current_setting('app.tenant')"))
        seen.append((event.tenant, setting))
        if event.payload["n"] == 2:
            raise ValueError("never")

    for n, tenant in enumerate(("acme", "globex", "acme", None, "globex")):
        producer.add(n, tenant=tenant)

    async with consuming(outbox) as running:
        await running.settled("billing", 5)

    assert [(tenant or "", setting) for tenant, setting in seen] == [
        ("acme", "acme"),
        ("globex", "globex"),
        ("acme", "acme"),
        ("", ""),
        ("globex", "globex"),
    ]
