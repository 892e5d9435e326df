"""Contract, context and categories, as far as the database shows them."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import Engine, func, select, text
from sqlalchemy.orm import Session, sessionmaker

from sa_outbox import Contract, NoSecrets, OutboxSession, event_context
from sa_outbox.errors import ContractViolation, SecretFound
from tests.postgres.conftest import CountingOutbox
from tests.support.shop import Item, Order

CONTRACT = Contract(required=("tenant", "request_id"))


@pytest.fixture
def outbox() -> CountingOutbox:
    return CountingOutbox(contract=CONTRACT)


@pytest.fixture
def sessions(outbox: CountingOutbox, engine: Engine) -> sessionmaker[OutboxSession]:
    return outbox.sessionmaker(engine)


def written(engine: Engine) -> list[Any]:
    with engine.connect() as connection:
        statement = text("SELECT event_type, tenant, headers FROM outbox ORDER BY id")
        return [tuple(row) for row in connection.execute(statement)]


def orders(engine: Engine) -> int:
    with engine.connect() as connection:
        return connection.scalar(select(func.count()).select_from(Order)) or 0


def test_the_context_is_written(engine: Engine, sessions: sessionmaker[OutboxSession]) -> None:
    with event_context(tenant="acme", request_id="r1"), sessions.begin() as session:
        session.add_event("order.placed", lambda: {"n": 1}, headers={"a": "b"})

    assert written(engine) == [("order.placed", "acme", {"a": "b", "request_id": "r1"})]


def test_an_event_that_was_refused_leaves_the_transaction_as_it_was(
    engine: Engine, sessions: sessionmaker[OutboxSession]
) -> None:
    with sessions.begin() as session, event_context(request_id="r1"):
        session.add(Order(name="x"))
        session.add_event("order.placed", tenant="acme")
        with pytest.raises(ContractViolation):
            session.add_event("order.placed")

    assert [row[1] for row in written(engine)] == ["acme"]
    assert orders(engine) == 1


def test_sessions_that_were_only_installed_are_checked(
    engine: Engine, outbox: CountingOutbox
) -> None:
    sessions = outbox.install(sessionmaker(engine))

    with sessions() as session, pytest.raises(ContractViolation):
        outbox.add(session, "order.placed")


class TestEntities:
    def test_the_context_is_that_of_the_recording(
        self, engine: Engine, sessions: sessionmaker[OutboxSession]
    ) -> None:
        order = Order(name="x")
        with event_context(tenant="acme", request_id="r1"):
            order.record_event("order.placed", lambda: {"id": order.id})
        with event_context(tenant="other", request_id="r2"), sessions.begin() as session:
            session.add(order)

        assert written(engine) == [("order.placed", "acme", {"request_id": "r1"})]

    def test_one_in_a_session_refuses_at_the_call(
        self, sessions: sessionmaker[OutboxSession]
    ) -> None:
        with sessions() as session:
            order = Order(name="x")
            session.add(order)

            with pytest.raises(ContractViolation):
                order.record_event("order.placed")

    def test_one_without_a_session_refuses_when_it_comes_to_one(
        self, engine: Engine, sessions: sessionmaker[OutboxSession]
    ) -> None:
        order = Order(name="x")
        order.record_event("order.placed", tenant="acme")

        with pytest.raises(ContractViolation, match="request_id"), sessions.begin() as session:
            session.add(order)

        assert (written(engine), orders(engine)) == ([], 0)

    def test_whoever_goes_on_all_the_same_does_not_lose_the_event(
        self, engine: Engine, sessions: sessionmaker[OutboxSession]
    ) -> None:
        """The object is in the session by then, and its row must not be there without it."""
        order = Order(name="x")
        order.record_event("order.placed")
        with sessions() as session:
            with pytest.raises(ContractViolation):
                session.add(order)
            with pytest.raises(ContractViolation):
                session.commit()

        assert (written(engine), orders(engine)) == ([], 0)

    def test_one_that_comes_by_cascade_is_checked(
        self, engine: Engine, sessions: sessionmaker[OutboxSession]
    ) -> None:
        order, item = Order(name="x"), Item()
        item.record_event("item.added")
        order.items.append(item)

        with pytest.raises(ContractViolation), sessions.begin() as session:
            session.add(order)

        assert (written(engine), orders(engine)) == ([], 0)

    def test_a_session_of_an_outbox_without_a_contract_takes_it(self, engine: Engine) -> None:
        order = Order(name="x")
        order.record_event("order.placed")
        with CountingOutbox().sessionmaker(engine).begin() as session:
            session.add(order)

        assert written(engine) == [("order.placed", None, {})]

    def test_its_events_come_back_with_it_after_a_rollback(
        self, engine: Engine, sessions: sessionmaker[OutboxSession]
    ) -> None:
        order = Order(name="x")
        with event_context(tenant="acme", request_id="r1"):
            order.record_event("order.placed")
        with sessions() as session:
            session.add(order)
            session.flush()
            session.rollback()
            session.add(order)
            session.commit()

        assert written(engine) == [("order.placed", "acme", {"request_id": "r1"})]


class TestCategories:
    def test_each_event_s_key_lives_as_long_as_its_category_says(self, engine: Engine) -> None:
        outbox = CountingOutbox(
            categories={"report.*": "export", "order.reminder": "notification"},
            idempotency_key_lifetime=timedelta(hours=3),
        )
        with outbox.sessionmaker(engine).begin() as session:
            for name in ("report.made", "order.reminder", "order.placed"):
                session.add_event(name, idempotency_key="k")

        with engine.connect() as connection:
            rows = connection.execute(
                text("SELECT event_type, expires_at - first_seen_at FROM outbox_idempotency_keys")
            )
            lived = {name: round(span.total_seconds()) for name, span in rows}
        assert lived == {
            "report.made": 30 * 86_400,
            "order.reminder": 7 * 86_400,
            "order.placed": 3 * 3600,
        }

    def test_the_tenant_of_the_context_is_part_of_the_key(self, engine: Engine) -> None:
        sessions = CountingOutbox().sessionmaker(engine)

        with sessions.begin() as session:
            for tenant in ("a", "b"):
                with event_context(tenant=tenant):
                    session.add_event("order.placed", idempotency_key="k")

        assert [row[1] for row in written(engine)] == ["a", "b"]


def test_entities_in_plain_sessions_know_their_outbox_s_contract(
    engine: Engine, outbox: CountingOutbox
) -> None:
    plain: type[Session] = outbox.install(type("PlainSession", (Session,), {}))
    order = Order(name="x")
    order.record_event("order.placed", tenant="acme")

    with plain(engine) as session, pytest.raises(ContractViolation):
        session.add(order)


class TestCheckEvent:
    """What only the flush knows is checked by it; everything else before it is added."""

    @pytest.fixture
    def outbox(self) -> CountingOutbox:
        return CountingOutbox(check_event=NoSecrets())

    def test_a_payload_that_the_flush_evaluates_is_refused_with_its_data(
        self, engine: Engine, sessions: sessionmaker[OutboxSession]
    ) -> None:
        with sessions() as session:
            order = Order(name="x")
            session.add(order)
            session.add_event("order.placed", lambda: {"id": order.id, "token": "abc"})
            with pytest.raises(SecretFound, match=r"\$\.token"):
                session.commit()

        assert (written(engine), orders(engine)) == ([], 0)

    def test_a_payload_without_a_secret_is_written_with_a_key_that_the_flush_evaluates(
        self, engine: Engine, sessions: sessionmaker[OutboxSession]
    ) -> None:
        with sessions.begin() as session:
            order = Order(name="x")
            session.add(order)
            session.add_event("order.placed", {"n": 1}, key=lambda: f"order-{order.id}")

        assert [row[0] for row in written(engine)] == ["order.placed"]

    def test_an_event_that_was_refused_leaves_the_transaction_usable(
        self, engine: Engine, sessions: sessionmaker[OutboxSession]
    ) -> None:
        with sessions.begin() as session:
            session.add(Order(name="x"))
            with pytest.raises(SecretFound):
                session.add_event("order.placed", {"token": "abc"})
            session.add_event("order.placed", {"n": 1})

        assert (len(written(engine)), orders(engine)) == (1, 1)

    def test_one_recorded_on_an_entity_is_refused_when_that_comes_to_a_session(
        self, engine: Engine, sessions: sessionmaker[OutboxSession]
    ) -> None:
        order = Order(name="x")
        order.record_event("order.placed", {"token": "abc"})

        with pytest.raises(SecretFound), sessions.begin() as session:
            session.add(order)

        assert (written(engine), orders(engine)) == ([], 0)
