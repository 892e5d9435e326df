"""The catalogue of bad input (tests/support/bad_input.py): refused, or stored exactly.

For what is refused: an error at the call, a transaction that still works, nothing stored; which
error it is needs no database (tests/unit/test_bad_input.py). For what is accepted: the value
itself, read back by SELECT. The letters and numbers in names and ids are the catalogue's.

Not here. A18 can't be reached, because A17 comes first. B32, C51, C53, C58 and C60's horizon are
the consumer's, or ``verify``'s. B33 and B34 (the same ``event_id`` twice) can't happen: an
``event_id`` is made by the library for each call and can't be passed in; a second event for one
reason is what ``idempotency_key`` is for, see test_idempotency.py.
"""

from __future__ import annotations

import asyncio
import json
import logging
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import date, datetime, timedelta, timezone, tzinfo
from decimal import Decimal
from typing import Any, TypeVar
from uuid import UUID

import psycopg
import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import URL, Engine, create_engine, select, text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.orm import Session

from sa_outbox import Event, Outbox, OutboxError, OutboxSession
from sa_outbox.errors import (
    ConfigError,
    InvalidEvent,
    NotAtomic,
    PayloadError,
    PayloadTooLarge,
    PendingTooLarge,
    SchemaError,
)
from sa_outbox.event.codec import encode
from sa_outbox.schema import migrate
from sa_outbox.settings import Limits, Names
from sa_outbox.sql.server.notify import notify
from tests.support.bad_input import (
    ACCEPTED,
    NAIVE,
    REFUSED,
    SECRET,
    YEAR,
    Kind,
    Lazy,
    Stage,
    Text,
    Unregistered,
    nested,
    within_itself,
)
from tests.support.shop import Base, Order

T = TypeVar("T")
DRIVERS = ("psycopg", "psycopg2", "asyncpg")


# How an event is added, in the three ways there are.


def by_session(session: OutboxSession, order: Order, *args: Any, **options: Any) -> Event[Any]:
    return session.add_event(*args, **options)


def by_outbox(session: OutboxSession, order: Order, *args: Any, **options: Any) -> Event[Any]:
    assert isinstance(session.outbox, Outbox)
    return session.outbox.add(session, *args, **options)


def by_entity(session: OutboxSession, order: Order, *args: Any, **options: Any) -> Event[Any]:
    return order.record_event(*args, **options)


WAYS = [by_session, by_outbox, by_entity]
each_way = pytest.mark.parametrize("add", WAYS, ids=lambda way: way.__name__)


@pytest.fixture
def outbox() -> Outbox:
    return Outbox(notify="off")


def log_of(engine: Engine) -> list[Any]:
    log = Outbox(notify="off").tables.outbox
    with engine.connect() as connection:
        return list(connection.execute(select(log).order_by(log.c.id)))


def orders_of(engine: Engine) -> list[str | None]:
    with engine.connect() as connection:
        return list(connection.scalars(select(Order.name).order_by(Order.id)))


def in_session(  # one sync function for the sync drivers and, in a greenlet, for the async one
    url: URL,
    driver: str,
    outbox: Outbox,
    work: Callable[[Session], T],
    **options: Any,
) -> T:
    url = url.set(drivername=f"postgresql+{driver}")
    if driver != "asyncpg":
        engine = create_engine(url, **options)
        try:
            with outbox.sessionmaker(engine)() as session:
                return work(session)
        finally:
            engine.dispose()

    async def run() -> T:
        engine = create_async_engine(url, **options)
        try:
            async with outbox.async_sessionmaker(engine)() as session:
                return await session.run_sync(work)
        finally:
            await engine.dispose()

    return asyncio.run(run())


def add_event(session: Session, *args: Any, **options: Any) -> Event[Any]:
    assert isinstance(session, OutboxSession)
    return session.add_event(*args, **options)


# What is refused.


@each_way
def test_bad_input_is_refused_at_the_call_and_harms_nothing(
    engine: Engine, outbox: Outbox, add: Callable[..., Event[Any]]
) -> None:
    """Which error, for which field: tests/unit/test_bad_input.py."""
    accepted = []
    with outbox.sessionmaker(engine)() as session:
        order = Order(name="an order")
        session.add(order)
        add(session, order, "before", {"n": 1})
        for name, case in REFUSED.items():
            try:
                add(session, order, *case.arguments, **case.options)
            except case.error:
                continue
            accepted.append(name)
        add(session, order, "after", {"n": 2})
        session.commit()

    assert accepted == []
    assert [(row.event_type, row.payload) for row in log_of(engine)] == [
        ("before", {"n": 1}),
        ("after", {"n": 2}),
    ]
    assert orders_of(engine) == ["an order"]


def test_input_refused_after_a_flush_leaves_the_open_transaction_usable(
    engine: Engine, outbox: Outbox
) -> None:
    with outbox.sessionmaker(engine)() as session:
        session.add(Order(name="an order"))
        session.add_event("before")
        session.flush()
        with pytest.raises(PayloadError):
            session.add_event("probe", float("nan"))
        session.add_event("after")
        session.commit()

    assert [row.event_type for row in log_of(engine)] == ["before", "after"]


def test_a20_300_megabytes_are_refused_before_any_statement(engine: Engine, outbox: Outbox) -> None:
    with outbox.sessionmaker(engine)() as session:
        with pytest.raises(PayloadTooLarge) as caught:
            session.add_event("probe", "x" * 300_000_000)
        session.add_event("after")
        session.commit()

    assert caught.value.size == 300_000_002
    assert caught.value.limit == 1_048_576
    assert [row.event_type for row in log_of(engine)] == ["after"]


# A value that a callable makes is known only at the flush: there it is refused.


@pytest.mark.parametrize(
    ("arguments", "options", "field"),
    [
        pytest.param(("probe", lambda: float("nan")), {}, "payload", id="A01-payload"),
        pytest.param(("probe", lambda: "\x00"), {}, "payload", id="A03-payload"),
        pytest.param(("probe", lambda: "x" * 2_000_000), {}, "payload", id="A19-payload"),
        pytest.param(("probe",), {"key": lambda: "\x00"}, "key", id="A04-key"),
        pytest.param(("probe",), {"key": lambda: 7}, "key", id="B31-key"),
    ],
)
def test_a_callable_that_makes_bad_input_fails_the_flush_and_not_the_session(
    engine: Engine, outbox: Outbox, arguments: Any, options: Any, field: str
) -> None:
    with outbox.sessionmaker(engine)() as session:
        session.add(Order(name="lost"))
        session.add_event("before")
        session.add_event(*arguments, **options)
        with pytest.raises(InvalidEvent) as caught:
            session.commit()
        assert caught.value.field == field
        session.rollback()

        session.add(Order(name="kept"))
        session.add_event("after")
        session.commit()

    assert [row.event_type for row in log_of(engine)] == ["after"]
    assert orders_of(engine) == ["kept"]


# What is accepted.


@each_way
def test_odd_but_good_input_is_stored_exactly(
    engine: Engine, outbox: Outbox, add: Callable[..., Event[Any]]
) -> None:
    """Each in a transaction of its own; the next test has all of them in one."""
    added: dict[str, UUID] = {}
    for name, case in ACCEPTED.items():
        with outbox.sessionmaker(engine)() as session:
            order = Order(name=name)
            session.add(order)
            added[name] = add(session, order, case.event, case.payload, **case.options).event_id
            session.commit()

    rows = log_of(engine)
    assert [row.event_id for row in rows] == list(added.values())
    assert not_as_given(rows) == []


@pytest.mark.parametrize("driver", DRIVERS)
def test_every_driver_stores_all_of_it_in_one_transaction(
    engine: Engine, migrated_url: URL, outbox: Outbox, driver: str
) -> None:
    def work(session: Session) -> list[UUID]:
        added = [
            add_event(session, each.event, each.payload, **each.options)
            for each in ACCEPTED.values()
        ]
        session.commit()
        return [event.event_id for event in added]

    ids = in_session(migrated_url, driver, outbox, work)

    rows = log_of(engine)
    assert [row.event_id for row in rows] == ids
    assert not_as_given(rows) == []


def not_as_given(rows: list[Any]) -> list[str]:
    """Which of the accepted ones have another value in the log, in which column."""
    return [
        f"{name}: {column} is {getattr(row, column)!r:.80}"
        for row, (name, case) in zip(rows, ACCEPTED.items(), strict=True)
        for column, stored in case.row.items()
        if getattr(row, column) != stored
    ]


def test_a12_numbers_are_kept_as_written_and_keys_in_the_order_of_jsonb(
    engine: Engine, outbox: Outbox
) -> None:
    with outbox.sessionmaker(engine).begin() as session:
        session.add_event("probe", {"bb": 1.0, "a": 1, "c": 1e2, "d": 1.50})

    with engine.connect() as connection:
        stored = connection.scalar(text("SELECT CAST(payload AS text) FROM outbox"))
    assert stored == '{"a": 1, "c": 100.0, "d": 1.5, "bb": 1.0}'


def test_a19_a_raised_limit_lets_16_megabytes_through(engine: Engine) -> None:
    outbox = Outbox(notify="off", limits=Limits(max_payload_bytes=20_000_000))

    with outbox.sessionmaker(engine).begin() as session:
        session.add_event("probe", "x" * 16_000_000)

    (row,) = log_of(engine)
    assert len(row.payload) == 16_000_000


def test_a21_more_than_the_bound_of_pending_bytes_is_refused_until_a_flush(engine: Engine) -> None:
    outbox = Outbox(notify="off", limits=Limits(max_pending_bytes=3_000_000))
    megabyte = "x" * 1_000_000
    added: list[UUID] = []

    with outbox.sessionmaker(engine)() as session:
        session.add(Order(name="an order"))
        while len(added) < 7:
            try:
                added.append(session.add_event("probe", megabyte).event_id)
            except PendingTooLarge as error:
                assert "flush()" in str(error)  # noqa: PT017 - each time it happens
                assert len(outbox.pending(session)) == 2
                session.flush()
                assert outbox.pending(session) == ()
        session.commit()

    assert [row.event_id for row in log_of(engine)] == added


def test_a21_the_bound_is_64_megabytes_unless_set(engine: Engine, outbox: Outbox) -> None:
    megabyte = "x" * 1_000_000

    with outbox.sessionmaker(engine)() as session:
        for _ in range(67):
            session.add_event("probe", megabyte)
        with pytest.raises(PendingTooLarge):
            session.add_event("probe", megabyte)
        session.rollback()
        session.add_event("after")
        session.commit()

    assert [row.event_type for row in log_of(engine)] == ["after"]


def test_a21_what_one_statement_can_not_carry_is_written_in_order_by_several(
    engine: Engine, outbox: Outbox
) -> None:
    with outbox.sessionmaker(engine).begin() as session:
        added = [session.add_event("probe", [n, "x" * 1_000_000]).event_id for n in range(20)]

    assert [row.event_id for row in log_of(engine)] == added


def test_a22_a_payload_changed_after_the_call_is_stored_as_it_was(
    engine: Engine, outbox: Outbox
) -> None:
    order = {"items": [1]}
    headers = {"a": "1"}

    with outbox.sessionmaker(engine).begin() as session:
        session.add_event("probe", order, headers=headers)
        order["items"].append(2)
        headers["a"] = "2"

    (row,) = log_of(engine)
    assert row.payload == {"items": [1]}
    assert row.headers == {"a": "1"}


def test_a23_a_callable_that_reads_a_detached_entity_fails_the_flush_clearly(
    engine: Engine, outbox: Outbox
) -> None:
    maker = outbox.sessionmaker(engine)
    with maker.begin() as session:
        order = Order(name="an order")
        session.add(order)  # expired by the commit, detached by the close

    with maker() as session:
        session.add_event("probe", lambda: {"name": order.name})
        with pytest.raises(Exception, match="not bound to a Session"):
            session.commit()
        session.rollback()
        session.add_event("after")
        session.commit()

    assert [row.event_type for row in log_of(engine)] == ["after"]


def test_b42_a_delay_is_counted_by_the_clock_of_the_database(
    engine: Engine, outbox: Outbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    class AnHourAhead(datetime):
        @classmethod
        def now(cls, tz: tzinfo | None = None) -> datetime:  # type: ignore[override]  # a plain one
            return datetime.now(tz) + timedelta(hours=1)

    monkeypatch.setattr("sa_outbox.event.validation.datetime", AnHourAhead)

    with outbox.sessionmaker(engine).begin() as session:
        session.add_event("probe", delay=timedelta(minutes=10))

    (row,) = log_of(engine)
    assert abs(row.run_at - row.created_at - timedelta(minutes=10)) < timedelta(seconds=1)


# A25: secrets.


@pytest.mark.parametrize("driver", DRIVERS)
def test_a25_echo_does_not_print_payloads(
    engine: Engine,
    migrated_url: URL,
    outbox: Outbox,
    driver: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    def work(session: Session) -> None:
        add_event(session, "probe", {"password": SECRET}, headers={"a": SECRET})
        add_event(session, "probe", {"password": SECRET}, idempotency_key="k")
        session.commit()

    with caplog.at_level(logging.DEBUG):
        in_session(migrated_url, driver, outbox, work, echo=True)

    assert "INSERT INTO outbox " in caplog.text
    assert "INSERT INTO outbox_idempotency_keys " in caplog.text
    assert SECRET not in caplog.text
    assert len(log_of(engine)) == 2


@pytest.fixture
def bare(new_database: Callable[[], URL]) -> URL:
    """A new database with the shop's tables and without the outbox's."""
    url = new_database()
    with connected(url) as engine:
        Base.metadata.create_all(engine)
    return url


@pytest.fixture
def fresh(bare: URL) -> URL:
    """A new database with the shop's tables and the outbox's, to be altered by the test."""
    make_tables(bare)
    return bare


@contextmanager
def connected(url: URL) -> Iterator[Engine]:
    engine = create_engine(url.set(drivername="postgresql+psycopg"))
    try:
        yield engine
    finally:
        engine.dispose()


def make_tables(url: URL, names: Names | None = None) -> None:
    with connected(url) as engine, engine.begin() as connection:
        migrate(connection, names or Names())


def alter(url: URL, *statements: str) -> None:
    with connected(url) as engine, engine.begin() as connection:
        for statement in statements:
            connection.execute(text(statement))


def scalars(url: URL, statement: str) -> list[Any]:
    with connected(url) as engine, engine.connect() as connection:
        return list(connection.scalars(text(statement)))


def failing_write(url: URL, driver: str, outbox: Outbox) -> DBAPIError:
    def work(session: Session) -> DBAPIError:
        add_event(session, "probe", {"password": SECRET})
        with pytest.raises(DBAPIError) as caught:
            session.commit()
        session.rollback()
        assert session.scalar(select(1)) == 1
        return caught.value

    return in_session(url, driver, outbox, work)


@pytest.mark.parametrize("driver", DRIVERS)
def test_a25_the_error_of_a_failing_insert_has_no_parameters(
    fresh: URL, outbox: Outbox, driver: str
) -> None:
    alter(
        fresh,
        "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql"
        " AS 'BEGIN RAISE ''refused by a trigger''; END'",
        "CREATE TRIGGER refuse BEFORE INSERT ON outbox FOR EACH ROW EXECUTE FUNCTION refuse()",
    )

    error = failing_write(fresh, driver, outbox)

    assert "refused by a trigger" in str(error)
    assert SECRET not in "".join(traceback.format_exception(error))


@pytest.mark.parametrize("driver", DRIVERS)
def test_a25_the_error_of_a_violated_constraint_does_not_show_the_row(
    fresh: URL, outbox: Outbox, driver: str
) -> None:
    alter(fresh, "ALTER TABLE outbox ADD CONSTRAINT refused CHECK (event_type <> 'probe')")

    error = failing_write(fresh, driver, outbox)

    assert "refused" in str(error)
    assert SECRET not in "".join(traceback.format_exception(error))


# C: names, SQL, configuration.


@pytest.mark.parametrize(
    "options",
    [
        pytest.param({"schema": 'x"; DROP TABLE orders; --'}, id="C43-schema"),
        pytest.param({"prefix": 'x"; DROP TABLE orders; --'}, id="C43-prefix"),
        pytest.param({"channel": "x; CREATE TABLE pwned ()"}, id="C44-channel"),
        pytest.param({"schema": "s" * 64}, id="C45-schema"),
        pytest.param({"prefix": "p" * 32}, id="C45-prefix"),
        pytest.param({"prefix": "größe"}, id="C45-bytes-not-characters"),
        pytest.param({"channel": "c" * 64}, id="C46-channel"),
        pytest.param({"schema": "s" * 40, "prefix": "p" * 31}, id="C46-channel-made-of-both"),
        pytest.param({"channel": ""}, id="C48-empty-channel"),
    ],
)
def test_a_bad_name_is_refused_before_there_is_an_outbox(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        Outbox(**options)


def test_c44_a_channel_is_a_parameter_and_never_a_statement(engine: Engine) -> None:
    with engine.begin() as connection:
        connection.execute(notify('x"; CREATE TABLE pwned (); --'))
        assert connection.scalar(text("SELECT to_regclass('pwned')")) is None


def test_c46_the_longest_channel_is_heard(engine: Engine, migrated_url: URL) -> None:
    channel = Names(channel="C" * 63).notify_channel
    address = migrated_url.render_as_string(hide_password=False)
    with psycopg.connect(address, autocommit=True) as listening:
        listening.execute(f'LISTEN "{channel}"'.encode())
        with engine.begin() as connection:
            connection.execute(notify(channel))

        heard = list(listening.notifies(timeout=10, stop_after=1))

    # C49: a wakeup carries no data, so that no size limit can be met.
    assert [(each.channel, each.payload) for each in heard] == [(channel, "")]


def fails_until_fixed(
    url: URL,
    driver: str,
    outbox: Outbox,
    fix: Callable[[], None],
    options: dict[str, Any] | None = None,
    **engine_options: Any,
) -> SchemaError:
    """A commit fails; after the rollback, and when it is fixed, the same session works."""

    def work(session: Session) -> SchemaError:
        session.add(Order(name="lost"))
        add_event(session, "probe", {"password": SECRET}, **(options or {}))
        with pytest.raises(SchemaError) as caught:
            session.commit()
        session.rollback()
        assert session.scalar(select(1)) == 1
        session.rollback()
        fix()
        session.add(Order(name="kept"))
        add_event(session, "after", **(options or {}))
        session.commit()
        return caught.value

    error = in_session(url, driver, outbox, work, **engine_options)
    assert isinstance(error.__cause__, DBAPIError)
    assert SECRET not in "".join(traceback.format_exception(error))
    assert scalars(url, "SELECT name FROM orders") == ["kept"]
    return error


@pytest.mark.parametrize("driver", DRIVERS)
def test_c50_without_tables_the_error_has_the_command_that_makes_them(
    bare: URL, outbox: Outbox, driver: str
) -> None:
    error = fails_until_fixed(bare, driver, outbox, lambda: make_tables(bare))

    assert "sa-outbox migrate --database-url URL" in str(error)
    assert scalars(bare, "SELECT event_type FROM outbox") == ["after"]


@pytest.mark.parametrize("driver", DRIVERS)
def test_c50_without_its_schema_the_error_names_it(bare: URL, driver: str) -> None:
    outbox = Outbox(notify="off", schema="app", prefix="events")

    error = fails_until_fixed(
        bare, driver, outbox, lambda: make_tables(bare, outbox.settings.names)
    )

    assert "--schema app --prefix events" in str(error)
    assert scalars(bare, "SELECT event_type FROM app.events") == ["after"]


@pytest.mark.parametrize("driver", DRIVERS)
def test_c50_a_table_without_its_columns_is_called_old(
    fresh: URL, outbox: Outbox, driver: str
) -> None:
    alter(fresh, "ALTER TABLE outbox RENAME COLUMN headers TO old")

    error = fails_until_fixed(
        fresh,
        driver,
        outbox,
        lambda: alter(fresh, "ALTER TABLE outbox RENAME COLUMN old TO headers"),
    )

    assert "missing or outdated" in str(error)


def as_role(driver: str, role: str) -> dict[str, Any]:
    """Arguments of an engine whose connections have the rights of *role* only."""
    if driver == "asyncpg":
        return {"connect_args": {"server_settings": {"role": role}}}
    return {"connect_args": {"options": f"-c role={role}"}}


# A role that every server has, and which has no right on a table of ours.
ROLE = "pg_monitor"
ORDERS_ALLOWED = f"GRANT ALL ON ALL TABLES IN SCHEMA public TO {ROLE}"


@pytest.mark.parametrize("driver", DRIVERS)
def test_c54_a_role_that_may_not_insert_is_told_the_grant(
    fresh: URL, outbox: Outbox, driver: str
) -> None:
    alter(fresh, ORDERS_ALLOWED, f"REVOKE INSERT ON outbox FROM {ROLE}")

    error = fails_until_fixed(
        fresh,
        driver,
        outbox,
        lambda: alter(fresh, f"GRANT INSERT ON outbox TO {ROLE}"),
        **as_role(driver, ROLE),
    )

    assert "GRANT INSERT ON outbox TO" in str(error)
    assert scalars(fresh, "SELECT event_type FROM outbox") == ["after"]


def test_c54_the_right_to_insert_is_all_that_a_producer_needs(fresh: URL, outbox: Outbox) -> None:
    alter(fresh, f"GRANT INSERT ON outbox TO {ROLE}")

    def work(session: Session) -> None:
        add_event(session, "probe")
        session.commit()

    in_session(fresh, "psycopg", outbox, work, **as_role("psycopg", ROLE))

    assert scalars(fresh, "SELECT event_type FROM outbox") == ["probe"]


def test_c54_a_missing_right_on_the_idempotency_keys_is_told_by_its_name(
    fresh: URL, outbox: Outbox
) -> None:
    alter(fresh, ORDERS_ALLOWED, f"REVOKE ALL ON outbox_idempotency_keys FROM {ROLE}")

    error = fails_until_fixed(
        fresh,
        "psycopg",
        outbox,
        lambda: alter(fresh, f"GRANT SELECT, INSERT, UPDATE ON outbox_idempotency_keys TO {ROLE}"),
        {"idempotency_key": "k"},
        **as_role("psycopg", ROLE),
    )

    assert "ON outbox_idempotency_keys TO" in str(error)


def test_c55_a_shadow_of_the_log_does_not_catch_events_of_an_outbox_with_a_schema(
    bare: URL,
) -> None:
    outbox = Outbox(notify="off", schema="app")
    make_tables(bare, outbox.settings.names)
    alter(
        bare,
        "CREATE TABLE public.outbox AS SELECT * FROM app.outbox",
        "CREATE FUNCTION public.clock_timestamp() RETURNS timestamptz LANGUAGE sql"
        " AS 'SELECT NULL::timestamptz'",
        "CREATE FUNCTION public.json_to_recordset(json) RETURNS SETOF record LANGUAGE plpgsql"
        " AS 'BEGIN RAISE ''shadow''; END'",
    )

    def work(session: Session) -> None:
        session.execute(text("CREATE TEMP TABLE outbox AS SELECT * FROM app.outbox"))
        add_event(session, "probe", delay=timedelta(1))
        session.commit()

    in_session(bare, "psycopg", outbox, work)

    assert scalars(bare, "SELECT event_type FROM app.outbox WHERE run_at > now()") == ["probe"]
    assert scalars(bare, "SELECT event_type FROM public.outbox") == []


@pytest.mark.parametrize("driver", DRIVERS)
def test_c57_a_read_only_database_is_refused_in_clear_words(
    fresh: URL, outbox: Outbox, driver: str
) -> None:
    readonly = "default_transaction_read_only"
    connect_args: dict[str, Any] = {"options": f"-c {readonly}=on"}
    if driver == "asyncpg":
        connect_args = {"server_settings": {readonly: "on"}}

    def work(session: Session) -> SchemaError:
        add_event(session, "probe", {"password": SECRET})
        with pytest.raises(SchemaError) as caught:
            session.commit()
        session.rollback()
        session.execute(text(f"SET SESSION {readonly} = off"))
        session.commit()
        session.connection()
        add_event(session, "after")
        session.commit()
        return caught.value

    error = in_session(fresh, driver, outbox, work, connect_args=connect_args, pool_size=1)

    assert "read-only" in str(error)
    assert "primary" in str(error)
    assert scalars(fresh, "SELECT event_type FROM outbox") == ["after"]


def test_c57_a_read_only_engine_is_refused_in_clear_words(engine: Engine, outbox: Outbox) -> None:
    readonly = engine.execution_options(postgresql_readonly=True)
    with outbox.sessionmaker(readonly)() as session:
        session.add_event("probe")
        with pytest.raises(SchemaError, match="read-only"):
            session.commit()
        session.rollback()
        assert session.scalar(select(1)) == 1

    assert log_of(engine) == []


@pytest.mark.parametrize("level", ["READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"])
def test_c60_events_are_written_in_every_isolation_level(
    engine: Engine, outbox: Outbox, level: Any
) -> None:
    strict = engine.execution_options(isolation_level=level)

    with outbox.sessionmaker(strict).begin() as session:
        session.add_event("probe", idempotency_key="k")

    assert [row.event_type for row in log_of(engine)] == ["probe"]


def in_one_flush(session: OutboxSession) -> None:
    session.add(Order(name="lost"))
    session.add_event("probe")
    session.flush()


def data_first(session: OutboxSession) -> None:
    session.add(Order(name="lost"))
    session.flush()
    session.add_event("probe")


def event_first(session: OutboxSession) -> None:
    session.add_event("probe")
    session.flush()
    session.add(Order(name="lost"))


def only_a_commit(session: OutboxSession) -> None:
    session.add(Order(name="lost"))
    session.add_event("probe")


def deferred(session: OutboxSession) -> None:
    session.add(Order(name="lost"))
    session.add_event("probe", lambda: 1)


@pytest.mark.parametrize(
    "work",
    [
        in_one_flush,
        pytest.param(data_first),
        pytest.param(event_first),
        only_a_commit,
        deferred,
    ],
)
def test_c61_data_of_another_database_than_the_events_is_refused(
    engine: Engine, bare: URL, outbox: Outbox, work: Callable[[OutboxSession], None]
) -> None:
    with (
        connected(bare) as elsewhere,
        outbox.sessionmaker(engine, binds={Order: elsewhere})() as session,
    ):
        session.execute(text("SELECT 1"), bind_arguments={"bind": engine})
        with pytest.raises(NotAtomic):  # noqa: PT012 - by the flush or by the commit
            work(session)
            session.commit()
        session.rollback()
        session.add_event("after")
        session.commit()

    assert [row.event_type for row in log_of(engine)] == ["after"]
    assert orders_of(engine) == []
    assert scalars(bare, "SELECT name FROM orders") == []


# F28: whatever is thrown at add_event.

WILD_TEXT = st.text(st.characters(), max_size=20)
NAMES = st.from_regex(r"\A[a-z]{1,9}(\.[a-z]{1,9}){0,2}\Z")
OBJECTS = st.sampled_from(
    [
        object(),
        Unregistered(),
        Lazy(),
        int,
        b"bytes",
        {1, 2},
        1j,
        Decimal("NaN"),
        float("nan"),
        10**4_290,
        nested(150),
        within_itself(),
        NAIVE,
        timedelta.max,
        date.max,
        UUID(int=1),
        Stage.PLACED,
        pydantic.SecretStr(SECRET),
        "x" * 1_100_000,
        range(3),
        True,
        -1,
        1.5,
        None,
        "",
        ("a", "b"),
    ]
)
JSON_LIKE = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | WILD_TEXT | OBJECTS,
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(WILD_TEXT | st.integers(), inner, max_size=4)
    ),
    max_leaves=8,
)
SHORT = st.none() | st.text("abc", min_size=1, max_size=3)
NEAR = st.datetimes(
    datetime(1960, 1, 1),  # noqa: DTZ001 - Hypothesis adds the zone
    datetime(YEAR + 12, 1, 1),  # noqa: DTZ001 - Hypothesis adds the zone
    timezones=st.one_of(st.none(), st.timezones()),
)
OPTIONS = st.fixed_dictionaries(
    {},
    optional={
        # A function is called at the flush, and its result is checked there.
        "key": SHORT | WILD_TEXT | OBJECTS.filter(lambda each: not callable(each)),
        "tenant": SHORT | WILD_TEXT | OBJECTS,
        "idempotency_key": SHORT | WILD_TEXT | OBJECTS,
        "headers": st.dictionaries(st.text("ab-", max_size=3) | WILD_TEXT, SHORT | WILD_TEXT)
        | OBJECTS.filter(lambda each: not isinstance(each, Lazy)),
        "run_at": NEAR | st.none() | OBJECTS,
        "delay": st.timedeltas() | st.none() | OBJECTS,
        "priority": st.integers(-40_000, 40_000) | OBJECTS,
    },
)
CALLS = st.tuples(NAMES | NAMES | WILD_TEXT | OBJECTS, JSON_LIKE, OPTIONS)

# What still gets through today; each has its own test above.
NASTY_TEXT = st.sampled_from([Text("a"), Kind.PLACED])
NASTY_CALLS = st.tuples(
    NAMES | NASTY_TEXT,
    JSON_LIKE,
    st.fixed_dictionaries(
        {},
        optional={
            "key": NASTY_TEXT,
            "tenant": NASTY_TEXT,
            "idempotency_key": NASTY_TEXT,
            "headers": st.just(Lazy()),
            "run_at": st.datetimes(
                datetime(2000, 1, 1),  # noqa: DTZ001 - Hypothesis adds the zone
                datetime(YEAR, 1, 1),  # noqa: DTZ001 - Hypothesis adds the zone
                timezones=st.timedeltas(timedelta(hours=-23), timedelta(hours=23)).map(timezone),
            ),
        },
    ),
)


def as_jsonb_tells(value: Any) -> Any:
    """jsonb writes a large float out as an integer; as floats they are the same number."""
    if isinstance(value, dict):
        return {key: as_jsonb_tells(item) for key, item in value.items()}
    if isinstance(value, list):
        return [as_jsonb_tells(item) for item in value]
    if isinstance(value, int) and 2**53 < abs(value) <= sys.float_info.max:
        return float(value)
    return value


def throw_at(engine: Engine, calls: list[tuple[Any, Any, dict[str, Any]]]) -> None:
    """Only our errors come out, the commit works, and what was accepted is stored."""
    outbox = Outbox(notify="off")
    accepted: list[tuple[Event[Any], dict[str, Any]]] = []
    with outbox.sessionmaker(engine)() as session:
        for name, given_value, options in calls:
            try:
                event = session.add_event(name, given_value, **options)
            except OutboxError:
                continue
            accepted.append((event, options))
        last = session.add_event("last")
        session.commit()

    log = outbox.tables.outbox
    wanted = [event.event_id for event, _ in accepted] + [last.event_id]
    with engine.connect() as connection:
        found = connection.execute(
            select(log).where(log.c.event_id.in_(wanted)).order_by(log.c.id)
        ).all()
    written = [each for each in accepted if each[0].duplicate_of is None]
    assert [row.event_id for row in found] == [
        *(event.event_id for event, _ in written),
        last.event_id,
    ]
    for row, (event, options) in zip(found, written, strict=False):
        assert row.event_type == str.__str__(event.event_type)
        given_text = encode(event.payload, max_bytes=10**7, max_depth=100)
        assert as_jsonb_tells(row.payload) == as_jsonb_tells(json.loads(given_text))
        assert row.key == options.get("key")
        assert row.tenant == options.get("tenant")
        expected = dict(options.get("headers") or {})
        if options.get("idempotency_key") is not None:
            expected["idempotency_key"] = options["idempotency_key"]
        assert row.headers == expected
        assert row.priority == options.get("priority", 0)
        if options.get("run_at") is not None:
            assert row.run_at == options["run_at"]
        elif options.get("delay") is None:
            assert row.run_at is None


@given(st.lists(CALLS, min_size=1, max_size=6))
def test_f28_whatever_is_thrown_at_add_event_only_typed_errors_come_out(
    shared_engine: Engine, calls: list[tuple[Any, Any, dict[str, Any]]]
) -> None:
    throw_at(shared_engine, calls)


@given(st.lists(NASTY_CALLS, min_size=1, max_size=6))
def test_f28_nastier_things_too(
    shared_engine: Engine, calls: list[tuple[Any, Any, dict[str, Any]]]
) -> None:
    throw_at(shared_engine, calls)
