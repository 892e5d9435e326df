"""When events are written, with which statement, and in which order."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from sqlalchemy import URL, Engine, NullPool, create_engine, event, func, insert, select, text

from sa_outbox.errors import InvalidEvent, OutboxError, PayloadError, PayloadNotKnown
from sa_outbox.producer import write
from tests.postgres.conftest import Setup, setup_of
from tests.support.sent import noted
from tests.support.shop import Customer, Item, Order, OrderPlaced


@pytest.fixture
def sent(engine: Engine) -> Iterator[list[str]]:
    with noted(engine) as seen:
        yield seen


@pytest.fixture(params=["psycopg", "psycopg2"])
def on_driver(request: pytest.FixtureRequest, engine: Engine, migrated_url: URL) -> Setup:
    """Like ``setup``, for each of the synchronous drivers."""
    url = migrated_url.set(drivername=f"postgresql+{request.param}")
    return setup_of("factory", create_engine(url, poolclass=NullPool))


def test_commit_of_a_clean_session_writes_its_events(setup: Setup) -> None:
    with setup.maker() as session:
        setup.outbox.add(session, "a", {"x": 1})
        session.commit()

    assert setup.rows() == [("a", {"x": 1})]
    assert setup.outbox.pokes == 1


def test_commit_without_events_sends_nothing_and_wakes_nobody(
    setup: Setup, sent: list[str]
) -> None:
    with setup.maker() as session:
        session.commit()
        session.execute(text("SELECT 1"))
        session.commit()

    assert sent == ["SELECT 1", "COMMIT"]
    assert setup.outbox.pokes == 0


def test_data_is_written_first_then_its_events_then_comes_the_commit(
    setup: Setup, sent: list[str]
) -> None:
    with setup.maker.begin() as session:
        order = Order(name="x")
        order.record_event("e", lambda: order.id)
        session.add(order)
        setup.outbox.add(session, "f")

    assert sent == ["INSERT INTO orders", "INSERT INTO outbox", "COMMIT"]


def test_many_events_are_one_statement_without_returning(setup: Setup) -> None:
    statements: list[str] = []

    def statement(_c: Any, _cursor: Any, sql: str, *_: Any) -> None:
        statements.append(sql)

    event.listen(setup.engine, "before_cursor_execute", statement)
    try:
        with setup.maker.begin() as session:
            for number in range(200):
                setup.outbox.add(session, f"e{number}")
    finally:
        event.remove(setup.engine, "before_cursor_execute", statement)

    assert len(statements) == 1
    assert "RETURNING" not in statements[0]
    assert setup.types() == [f"e{number}" for number in range(200)]


def test_the_statement_is_compiled_once_for_any_number_of_events(setup: Setup) -> None:
    hits: list[str] = []

    def executed(_c: Any, _cursor: Any, sql: str, _p: Any, context: Any, _many: bool) -> None:
        if "INSERT INTO outbox" in sql:
            hits.append(context.cache_hit.name)

    event.listen(setup.engine, "after_cursor_execute", executed)
    try:
        for count in (1, 3, 50):
            with setup.maker.begin() as session:
                for _ in range(count):
                    setup.outbox.add(session, "x")
    finally:
        event.remove(setup.engine, "after_cursor_execute", executed)

    assert hits[1:] == ["CACHE_HIT", "CACHE_HIT"]


def test_events_of_every_kind_keep_the_order_of_adding(on_driver: Setup) -> None:
    with on_driver.maker.begin() as session:
        on_driver.outbox.add(session, "1")
        order = Order()
        order.record_event("2", lambda: order.id)
        on_driver.outbox.add(session, "3")
        session.add(order)
        on_driver.outbox.add(session, "4", lambda: order.id)
        session.flush()
        on_driver.outbox.add(session, "5")
        order.name = "z"
        order.record_event("6")

    assert on_driver.types() == list("123456")


def test_an_event_keeps_all_its_fields(on_driver: Setup) -> None:
    with on_driver.maker.begin() as session:
        added = session.add_event(
            OrderPlaced(order_id=7), key='k"ä', tenant="t", headers={"trace": "1"}, priority=3
        )

    log = on_driver.outbox.tables.outbox
    with on_driver.engine.connect() as connection:
        row = connection.execute(select(log)).one()
    assert (row.event_id, row.event_type, row.payload) == (
        added.event_id,
        "shop.order_placed",
        {"order_id": 7},
    )
    assert (row.key, row.tenant, row.priority) == ('k"ä', "t", 3)
    assert row.headers["trace"] == "1"


def test_more_than_a_statement_carries_is_split_and_stays_in_order(
    on_driver: Setup, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(write, "_STATEMENT_BYTES", 500)
    statements = []

    def statement(*arguments: Any) -> None:
        statements.append(arguments[2])

    event.listen(on_driver.engine, "before_cursor_execute", statement)

    with on_driver.maker.begin() as session:
        for number in range(20):
            session.add_event("e", [number, "x" * 60])

    assert [payload[0] for _, payload in on_driver.rows()] == list(range(20))
    writes = [each for each in statements if "INSERT INTO outbox" in each]
    assert 1 < len(writes) < 20


def test_one_event_larger_than_a_statement_is_written_alone(
    setup: Setup, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(write, "_STATEMENT_BYTES", 50)

    with setup.maker.begin() as session:
        setup.outbox.add(session, "large", "x" * 1000)
        setup.outbox.add(session, "small")

    assert setup.types() == ["large", "small"]


def test_an_autoflush_that_writes_data_writes_the_events_too(setup: Setup) -> None:
    with setup.maker() as session:
        session.add(Order(name="a"))
        setup.outbox.add(session, "1")
        session.scalars(select(Order)).all()

        assert setup.outbox.pending(session) == ()
        session.commit()

    assert setup.types() == ["1"]


def test_a_read_in_a_clean_session_leaves_the_events_waiting(setup: Setup) -> None:
    with setup.maker() as session:
        waiting = setup.outbox.add(session, "1")
        session.scalars(select(Order)).all()

        assert setup.outbox.pending(session) == (waiting,)
        session.commit()

    assert setup.types() == ["1"]


def test_several_flushes_wake_the_consumers_once(setup: Setup) -> None:
    with setup.maker.begin() as session:
        for name in ("1", "2", "3"):
            session.add(Order(name=name))
            setup.outbox.add(session, name)
            session.flush()

    assert setup.types() == ["1", "2", "3"]
    assert setup.outbox.pokes == 1


def test_an_explicit_flush_of_a_clean_session_writes(setup: Setup) -> None:
    log = setup.outbox.tables.outbox
    with setup.maker() as session:
        setup.outbox.add(session, "1")
        setup.flush(session)

        assert session.scalar(select(func.count()).select_from(log)) == 1
        session.commit()

    assert setup.types() == ["1"]


def test_a_flush_of_some_objects_holds_back_the_events_of_the_others(setup: Setup) -> None:
    with setup.maker() as session:
        first, second = Order(name="first"), Order(name="second")
        session.add_all([first, second])
        held = second.record_event("second", lambda: second.id)
        first.record_event("first", lambda: first.id)
        with pytest.deprecated_call():
            session.flush([first])

        assert setup.outbox.pending(session) == (held,)
        session.commit()

    assert setup.rows() == [("first", 1), ("second", 2)]


def test_a_payload_is_what_it_was_when_the_event_was_added(setup: Setup) -> None:
    added, recorded = {"x": 1}, {"y": 1}
    with setup.maker.begin() as session:
        setup.outbox.add(session, "a", added)
        order = Order(name="n")
        order.record_event("b", recorded)
        added["x"] = recorded["y"] = 2
        session.add(order)

    assert setup.rows() == [("a", {"x": 1}), ("b", {"y": 1})]


def test_a_callable_is_evaluated_after_the_flush(setup: Setup) -> None:
    with setup.maker.begin() as session:
        order = Order()
        session.add(order)
        added = setup.outbox.add(
            session, "a", lambda: {"id": order.id}, key=lambda: f"order-{order.id}"
        )
        with pytest.raises(PayloadNotKnown):
            _ = added.payload

    assert (added.payload, added.key) == ({"id": 1}, "order-1")
    assert setup.rows() == [("a", {"id": 1})]


def test_a_callable_may_load_from_the_database(setup: Setup) -> None:
    with setup.maker.begin() as session:
        session.add(Customer(name="c1"))
    with setup.maker.begin() as session:
        order = Order(name="n", customer_id=1)
        session.add(order)
        order.record_event("e", lambda: order.customer.name if order.customer else None)

    assert setup.rows() == [("e", "c1")]


def test_a_callable_of_the_session_is_evaluated_by_the_next_flush_whatever_it_flushes(
    setup: Setup,
) -> None:
    """A trap, documented: an event recorded on the entity waits for it, this one does not."""
    with setup.maker.begin() as session:
        late = Order(name="late")
        setup.outbox.add(session, "a", lambda: {"id": late.id})
        session.add(Order(name="other"))
        session.flush()
        session.add(late)

    assert setup.rows() == [("a", {"id": None})]


def test_a_callable_may_add_events(setup: Setup) -> None:
    with setup.maker.begin() as session:

        def add_b() -> None:
            setup.outbox.add(session, "b", add_c)

        def add_c() -> None:
            setup.outbox.add(session, "c")

        setup.outbox.add(session, "a", add_b)

    assert setup.types() == ["a", "b", "c"]


def test_callables_that_add_events_for_ever_are_stopped(setup: Setup) -> None:
    with setup.maker() as session:

        def add_another() -> None:
            setup.outbox.add(session, "again", add_another)

        add_another()
        with pytest.raises(OutboxError, match="forever"):
            session.commit()

    assert setup.types() == []


def test_events_next_to_bulk_and_core_statements_are_written(setup: Setup) -> None:
    with setup.maker.begin() as session:
        session.bulk_insert_mappings(Order, [{"name": "a"}, {"name": "b"}])
        setup.outbox.add(session, "bulk")
        session.execute(insert(Order), [{"name": "c"}, {"name": "d"}])
        setup.outbox.add(session, "core")
        session.connection().execute(insert(Item).values(order_id=1))

    assert setup.types() == ["bulk", "core"]


@pytest.mark.parametrize(
    "payload", [{"x": object()}, float("nan"), {"x": "a\x00b"}, {"a\x00": 1}, ["\ud800"]]
)
def test_what_jsonb_refuses_fails_where_it_is_added_and_costs_nothing(
    setup: Setup, payload: Any
) -> None:
    with setup.maker.begin() as session:
        session.add(Order(name="kept"))
        with pytest.raises(PayloadError):
            setup.outbox.add(session, "bad", payload)
        setup.outbox.add(session, "good", {"x": "\\u0000 as text", "y": "\U0001f600"})

    assert setup.rows() == [("good", {"x": "\\u0000 as text", "y": "\U0001f600"})]


def test_a_payload_may_be_named(setup: Setup) -> None:
    order = Order(name="x")
    order.record_event("b", payload={"n": 2})
    with setup.maker.begin() as session:
        setup.outbox.add(session, "a", payload={"n": 1})
        session.add(order)
    with setup.outbox.sessionmaker(setup.engine).begin() as session:
        session.add_event("c", payload={"n": 3})

    assert sorted(setup.rows()) == [("a", {"n": 1}), ("b", {"n": 2}), ("c", {"n": 3})]


def test_an_event_type_is_checked_by_its_text_not_by_what_it_claims_to_equal(setup: Setup) -> None:
    class Impostor(str):
        __slots__ = ()

        def __eq__(self, other: object) -> bool:
            return other == "known"

        def __hash__(self) -> int:
            return hash("known")

    with setup.maker.begin() as session:
        setup.outbox.add(session, "known")
        with pytest.raises(InvalidEvent):
            setup.outbox.add(session, Impostor('x","tenant":"another'))

    assert setup.types() == ["known"]
