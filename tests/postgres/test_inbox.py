"""The inbox: a message of another system is acted upon once, together with what it leads to."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, suppress
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from sqlalchemy import URL, Connection, Engine, NullPool, create_engine, select, text
from sqlalchemy.exc import InvalidRequestError, OperationalError
from sqlalchemy.ext.asyncio import (
    AsyncEngine,
    AsyncSession,
    async_scoped_session,
    create_async_engine,
)
from sqlalchemy.orm import Session, scoped_session, sessionmaker

from sa_outbox import Outbox
from sa_outbox.client.inbox import Inbox
from sa_outbox.errors import InvalidEvent, NotAtomic, SchemaError, WrongArgument
from tests.support import eventually
from tests.support.shop import Order

AN_ID = UUID("018f2a3b-0000-7000-8000-00000000002a")


@pytest.fixture
def engine(shared_engine: Engine) -> Engine:
    with shared_engine.begin() as connection:
        connection.execute(text("TRUNCATE outbox_inbox, items, orders"))
    return shared_engine


@pytest.fixture
def inbox() -> Inbox:
    return Outbox().inbox


def marks(engine: Engine) -> list[Any]:
    table = Outbox().tables.inbox
    with engine.connect() as connection:
        return list(connection.execute(select(table).order_by(table.c.message_id)))


def orders(engine: Engine) -> list[str | None]:
    with engine.connect() as connection:
        return list(connection.scalars(select(Order.name).order_by(Order.name)))


def receive(
    inbox: Inbox, place: Session | Connection, message_id: str | UUID = "m", **options: Any
) -> bool:
    with inbox.once(place, message_id, **{"consumer": "payments", **options}) as first:
        return first


def expire(engine: Engine) -> None:
    with engine.begin() as connection:
        connection.execute(
            text(
                "UPDATE outbox_inbox SET received_at = now() - interval '31 days',"
                " expires_at = now() - interval '1 second'"
            )
        )


class TestOneAfterAnother:
    def test_the_first_time_is_true_and_every_later_one_false(
        self, engine: Engine, inbox: Inbox
    ) -> None:
        seen = []
        for _ in range(3):
            with Session(engine) as session, session.begin():
                seen.append(receive(inbox, session))

        assert seen == [True, False, False]

    def test_twice_in_one_transaction_is_once(self, engine: Engine, inbox: Inbox) -> None:
        with Session(engine) as session, session.begin():
            assert receive(inbox, session)
            assert not receive(inbox, session)

    @pytest.mark.parametrize(
        ("one", "other"),
        [
            ({"consumer": "a"}, {"consumer": "b"}),
            ({"message_id": "m"}, {"message_id": "M"}),
            ({"consumer": "a", "message_id": "bc"}, {"consumer": "ab", "message_id": "c"}),
        ],
    )
    def test_another_consumer_or_message_is_another(
        self, engine: Engine, inbox: Inbox, one: dict[str, str], other: dict[str, str]
    ) -> None:
        with Session(engine) as session, session.begin():
            assert receive(inbox, session, **one)
            assert receive(inbox, session, **other)

    def test_a_uuid_is_its_text(self, engine: Engine, inbox: Inbox) -> None:
        with Session(engine) as session, session.begin():
            assert receive(inbox, session, AN_ID)
            assert not receive(inbox, session, str(AN_ID))

    def test_two_outboxes_have_an_inbox_each(self, engine: Engine, inbox: Inbox) -> None:
        other = Outbox(prefix="other").inbox
        with Session(engine) as session:
            session.execute(
                text("CREATE TEMPORARY TABLE other_inbox (LIKE outbox_inbox INCLUDING ALL)")
            )
            assert receive(inbox, session)
            assert receive(other, session)


class TestOneWithTheEffect:
    def test_committed_they_are_both_there(self, engine: Engine, inbox: Inbox) -> None:
        for _ in range(2):
            with (
                Session(engine) as session,
                session.begin(),
                inbox.once(session, "m", consumer="payments") as first,
            ):
                if first:
                    session.add(Order(name="an order"))

        assert orders(engine) == ["an order"]
        assert [mark.message_id for mark in marks(engine)] == ["m"]

    def test_rolled_back_they_are_both_gone_and_the_message_may_come_again(
        self, engine: Engine, inbox: Inbox
    ) -> None:
        with Session(engine) as session:
            assert receive(inbox, session)
            session.add(Order(name="an order"))
            session.flush()
            session.rollback()
        assert marks(engine) == []

        with Session(engine) as session, session.begin():
            assert receive(inbox, session)

        assert orders(engine) == []

    def test_a_session_that_is_never_committed_leaves_no_mark(
        self, engine: Engine, inbox: Inbox
    ) -> None:
        with Session(engine) as session:
            assert receive(inbox, session)

        assert marks(engine) == []

    def test_an_error_in_the_body_comes_through_and_is_decided_by_the_caller(
        self, engine: Engine, inbox: Inbox
    ) -> None:
        with (
            pytest.raises(ZeroDivisionError),
            Session(engine) as session,
            session.begin(),
            inbox.once(session, "m", consumer="payments"),
        ):
            raise ZeroDivisionError
        assert marks(engine) == []

        with (
            Session(engine) as session,
            session.begin(),
            suppress(ZeroDivisionError),
            inbox.once(session, "m", consumer="payments"),
        ):
            raise ZeroDivisionError

        assert [mark.message_id for mark in marks(engine)] == ["m"]

    def test_a_rolled_back_savepoint_takes_its_mark_along(
        self, engine: Engine, inbox: Inbox
    ) -> None:
        with Session(engine) as session, session.begin():
            savepoint = session.begin_nested()
            assert receive(inbox, session)
            savepoint.rollback()
            assert receive(inbox, session)

        assert len(marks(engine)) == 1

    def test_pending_objects_are_not_flushed_by_it(self, engine: Engine, inbox: Inbox) -> None:
        with Session(engine) as session:
            order = Order(name="an order")
            session.add(order)
            assert receive(inbox, session)
            assert order in session.new


class TestLifetime:
    def test_a_mark_is_kept_for_thirty_days_by_the_clock_of_the_database(
        self, engine: Engine, inbox: Inbox
    ) -> None:
        with Session(engine) as session, session.begin():
            receive(inbox, session)

        (mark,) = marks(engine)
        assert abs(mark.expires_at - mark.received_at - timedelta(days=30)) < timedelta(seconds=1)

    def test_or_for_as_long_as_is_said(self, engine: Engine, inbox: Inbox) -> None:
        with Session(engine) as session, session.begin():
            receive(inbox, session, lifetime=timedelta(hours=2, microseconds=500))

        (mark,) = marks(engine)
        assert abs(mark.expires_at - mark.received_at - timedelta(hours=2)) < timedelta(seconds=1)

    def test_an_expired_mark_counts_as_not_there_and_is_made_anew(
        self, engine: Engine, inbox: Inbox
    ) -> None:
        seen = []
        for round_ in range(3):
            with Session(engine) as session, session.begin():
                seen.append(receive(inbox, session))
            if round_ == 0:
                expire(engine)

        assert seen == [True, True, False]
        (mark,) = marks(engine)
        assert mark.expires_at - mark.received_at > timedelta(days=29)

    def test_a_repetition_does_not_prolong_it(self, engine: Engine, inbox: Inbox) -> None:
        with Session(engine) as session, session.begin():
            receive(inbox, session, lifetime=timedelta(days=1))
        before = marks(engine)

        with Session(engine) as session, session.begin():
            receive(inbox, session, lifetime=timedelta(days=90))

        assert marks(engine) == before


Start = Callable[[ThreadPoolExecutor], "Future[bool]"]


class TestConcurrentReceivers:
    @pytest.fixture
    def start(self, inbox: Inbox, engine: Engine) -> Start:
        """Begin a second receiver of the message, and return when it waits for the first."""

        def begin(threads: ThreadPoolExecutor) -> Future[bool]:
            pids: list[int] = []

            def act() -> bool:
                with Session(engine) as session, session.begin():
                    pids.append(session.scalar(text("SELECT pg_backend_pid()")) or 0)
                    return receive(inbox, session)

            acting = threads.submit(act)
            eventually(lambda: pids and waits_for_a_lock(engine, pids[0]))
            assert not acting.done()
            return acting

        return begin

    def test_the_second_waits_for_the_first_and_is_told_no(
        self, engine: Engine, inbox: Inbox, start: Start
    ) -> None:
        with ThreadPoolExecutor() as threads, Session(engine) as session:
            assert receive(inbox, session)
            acting = start(threads)
            session.commit()

            assert acting.result(timeout=30) is False

    def test_the_second_waits_for_the_first_and_is_told_yes_if_that_rolls_back(
        self, engine: Engine, inbox: Inbox, start: Start
    ) -> None:
        with ThreadPoolExecutor() as threads, Session(engine) as session:
            assert receive(inbox, session)
            acting = start(threads)
            session.rollback()

            assert acting.result(timeout=30) is True
        assert len(marks(engine)) == 1

    @pytest.mark.parametrize("ending", ["commit", "rollback"])
    def test_of_two_with_an_expired_message_one_is_told_yes(
        self, engine: Engine, inbox: Inbox, start: Start, ending: str
    ) -> None:
        with Session(engine) as session, session.begin():
            receive(inbox, session)
        expire(engine)

        with ThreadPoolExecutor() as threads, Session(engine) as session:
            assert receive(inbox, session)
            acting = start(threads)
            getattr(session, ending)()

            assert acting.result(timeout=30) is (ending == "rollback")

    @pytest.mark.parametrize("level", ["REPEATABLE READ", "SERIALIZABLE"])
    def test_a_snapshot_that_is_too_old_is_told_to_try_again(
        self, engine: Engine, inbox: Inbox, level: Any
    ) -> None:
        strict = engine.execution_options(isolation_level=level)
        with Session(strict) as session:
            session.execute(text("SELECT 1"))
            with Session(engine) as other, other.begin():
                assert receive(inbox, other)

            with pytest.raises(OperationalError, match="could not serialize"):
                receive(inbox, session)
            session.rollback()

            assert not receive(inbox, session)


def waits_for_a_lock(engine: Engine, pid: int) -> bool:
    with engine.connect() as connection:
        found = connection.scalar(
            text("SELECT wait_event_type FROM pg_stat_activity WHERE pid = :pid"), {"pid": pid}
        )
        return bool(found == "Lock")


@pytest.fixture(params=["asyncpg", "psycopg"])
async def async_engine(
    request: pytest.FixtureRequest, engine: Engine, migrated_url: URL
) -> AsyncIterator[AsyncEngine]:
    url = migrated_url.set(drivername=f"postgresql+{request.param}")
    made = create_async_engine(url, poolclass=NullPool)
    yield made
    await made.dispose()


@pytest.mark.anyio
class TestAsync:
    async def test_a_session_acts_once(self, async_engine: AsyncEngine, engine: Engine) -> None:
        outbox = Outbox(notify="off")
        sessions = outbox.async_sessionmaker(async_engine)
        for _ in range(2):
            async with (
                sessions.begin() as session,
                outbox.inbox.once(session, "m", consumer="payments") as first,
            ):
                if first:
                    session.add(Order(name="an order"))

        assert orders(engine) == ["an order"]

    async def test_rolled_back_it_may_come_again(
        self, async_engine: AsyncEngine, inbox: Inbox, engine: Engine
    ) -> None:
        seen = []
        for ending in ("rollback", "commit", "commit"):
            async with AsyncSession(async_engine) as session:
                async with inbox.once(session, "m", consumer="payments") as first:
                    seen.append(first)
                await getattr(session, ending)()

        assert seen == [True, True, False]
        assert len(marks(engine)) == 1

    async def test_a_connection_and_a_scoped_session_will_do(
        self, async_engine: AsyncEngine, inbox: Inbox
    ) -> None:
        async with (
            async_engine.begin() as connection,
            inbox.once(connection, "m", consumer="payments") as first,
        ):
            assert first
        scoped = async_scoped_session(
            Outbox().async_sessionmaker(async_engine), scopefunc=lambda: 1
        )
        try:
            async with inbox.once(scoped, "m", consumer="payments") as first:
                assert not first
        finally:
            await scoped.remove()

    async def test_of_many_at_once_exactly_one_acts(
        self, async_engine: AsyncEngine, inbox: Inbox, engine: Engine
    ) -> None:
        barrier = asyncio.Barrier(12)

        async def act(number: int) -> bool:
            async with AsyncSession(async_engine) as session, session.begin():
                await session.execute(text("SELECT 1"))
                await barrier.wait()
                async with inbox.once(session, "m", consumer="payments") as first:
                    if first:
                        session.add(Order(name=f"by {number}"))
                    return first

        seen = await asyncio.gather(*(act(number) for number in range(12)))

        assert sorted(seen) == [False] * 11 + [True]
        assert orders(engine) == [f"by {seen.index(True)}"]


class TestPlaces:
    @pytest.fixture
    def places(self, engine: Engine) -> Iterator[list[Any]]:
        """Every form in which a program may hold the transaction."""
        outbox = Outbox(notify="off")
        with ExitStack() as stack:
            scoped = scoped_session(sessionmaker(engine))
            stack.callback(scoped.remove)
            yield [
                stack.enter_context(Session(engine)),
                stack.enter_context(outbox.sessionmaker(engine)()),
                scoped,
                stack.enter_context(engine.connect()),
                stack.enter_context(Session(stack.enter_context(engine.connect()))),
            ]

    def test_any_session_or_connection_will_do(self, places: list[Any], inbox: Inbox) -> None:
        for place in places:
            with inbox.once(place, "m", consumer="payments") as first:
                assert first
            place.rollback()

    def test_a_session_with_several_engines_is_asked_for_that_of_the_table(
        self, engine: Engine
    ) -> None:
        elsewhere = create_engine("postgresql+psycopg://nowhere.invalid/nothing")
        outbox = Outbox()
        binds: dict[Any, Any] = {outbox.tables.inbox: engine}

        with Session(elsewhere, binds=binds) as session:
            assert receive(outbox.inbox, session)

    def test_autocommit_is_refused_and_nothing_marked(self, engine: Engine, inbox: Inbox) -> None:
        loose = engine.execution_options(isolation_level="AUTOCOMMIT")
        with loose.connect() as connection, pytest.raises(NotAtomic):
            receive(inbox, connection)

        assert marks(engine) == []

    def test_a_session_that_must_be_begun_is_not_begun_by_it(
        self, engine: Engine, inbox: Inbox
    ) -> None:
        with Session(engine, autobegin=False) as session, pytest.raises(InvalidRequestError):
            receive(inbox, session)


class TestMisuse:
    @pytest.mark.parametrize("field", ["message_id", "consumer"])
    @pytest.mark.parametrize(
        ("value", "error"),
        [
            ("", InvalidEvent),
            ("x" * 513, InvalidEvent),
            ("a\x00b", InvalidEvent),
            ("\ud800", InvalidEvent),
            (None, WrongArgument),
            (7, WrongArgument),
            (b"m", WrongArgument),
        ],
    )
    def test_what_is_no_text_is_refused_at_the_call(
        self, engine: Engine, inbox: Inbox, field: str, value: Any, error: type[InvalidEvent]
    ) -> None:
        with Session(engine) as session:
            with pytest.raises(error) as caught:
                inbox.once(session, **{"message_id": "m", "consumer": "c", field: value})

            assert caught.value.field == field
            assert not session.in_transaction()

    def test_the_longest_text_fits(self, engine: Engine, inbox: Inbox) -> None:
        with Session(engine) as session:
            assert receive(inbox, session, "€" * 170, consumer="c" * 512)

    @pytest.mark.parametrize(
        ("lifetime", "error"),
        [
            (timedelta(0), InvalidEvent),
            (timedelta(days=-1), InvalidEvent),
            (timedelta(days=4000), InvalidEvent),
            (30, WrongArgument),
        ],
    )
    def test_a_lifetime_that_is_none_is_refused(
        self, engine: Engine, inbox: Inbox, lifetime: Any, error: type[InvalidEvent]
    ) -> None:
        with Session(engine) as session, pytest.raises(error) as caught:
            inbox.once(session, "m", consumer="c", lifetime=lifetime)

        assert caught.value.field == "lifetime"

    def test_an_engine_is_no_transaction(self, engine: Engine, inbox: Inbox) -> None:
        with pytest.raises(WrongArgument, match="not Engine"):
            inbox.once(engine, "m", consumer="c")  # type: ignore[call-overload]

    def test_without_with_it_is_no_answer(self, engine: Engine, inbox: Inbox) -> None:
        with Session(engine) as session, pytest.raises(TypeError, match="as first"):
            bool(inbox.once(session, "m", consumer="c"))

    @pytest.mark.anyio
    async def test_the_wrong_kind_of_with_says_so(self, engine: Engine, inbox: Inbox) -> None:
        session: Any = Session(engine)
        with pytest.raises(WrongArgument, match="not `async with`"):
            async with inbox.once(session, "m", consumer="c"):
                pass
        other: Any = AsyncSession()
        with (
            pytest.raises(WrongArgument, match="not `with`"),
            inbox.once(other, "m", consumer="c"),
        ):
            pass
        session.close()

    def test_missing_tables_are_told_with_the_command(self, engine: Engine) -> None:
        nowhere = Outbox(prefix="nowhere").inbox
        with Session(engine) as session, pytest.raises(SchemaError, match="--prefix nowhere"):
            receive(nowhere, session)

    def test_missing_rights_are_told_with_the_command(self, engine: Engine, inbox: Inbox) -> None:
        with engine.connect() as connection:
            connection.execute(text("CREATE ROLE inbox_stranger"))
            connection.execute(text("SET LOCAL ROLE inbox_stranger"))
            with pytest.raises(SchemaError, match="INSERT, UPDATE ON outbox_inbox TO role"):
                receive(inbox, connection)
            connection.rollback()

    def test_an_error_of_the_database_does_not_print_the_message_id(
        self, engine: Engine, inbox: Inbox
    ) -> None:
        with engine.connect() as connection:
            connection.execute(text("SET LOCAL lock_timeout = '10ms'"))
            with engine.connect() as other:
                receive(inbox, other, "a secret")
                with pytest.raises(OperationalError) as caught:
                    receive(inbox, connection, "a secret")

        assert "a secret" not in str(caught.value)
