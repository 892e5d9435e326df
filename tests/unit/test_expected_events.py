"""What a test expects of events, and what it is shown when that is not so."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any
from unittest.mock import ANY
from uuid import UUID, uuid4

import pytest

from sa_outbox import event_type
from sa_outbox.errors import PayloadNotKnown, UnknownEventType
from sa_outbox.policy.failure import Failure
from sa_outbox.testing import AddedEvent, AddedEvents, Deliveries, Delivery
from sa_outbox.testing.added_events import added_event

ID = UUID("0190b2f0-0000-7000-8000-000000000001")


@event_type("expected.refund")
@dataclass(frozen=True)
class Refund:
    order: UUID
    amount: Decimal


def an_event(event_type: str = "order.placed", payload: object = None, **more: Any) -> AddedEvent:
    row = {"event_id": str(uuid4()), "event_type": event_type, "payload": payload, **more}
    return added_event(row, "committed", None)


def events(*found: AddedEvent, undone: tuple[str, ...] = ()) -> AddedEvents:
    return AddedEvents(lambda: (list(found), list(undone)), lambda: None)


def message(expectation: Any) -> str:
    with pytest.raises(AssertionError) as caught:
        expectation()
    return str(caught.value)


class TestFinding:
    def test_the_event_with_these_fields_is_returned_whatever_else_it_has(self) -> None:
        first = an_event(payload={"order_id": 1, "total": 5})
        second = an_event(payload={"order_id": 2, "total": 5})

        assert events(first, second).expect("order.placed", order_id=2) is second

    def test_a_whole_payload_has_nothing_else(self) -> None:
        found = events(an_event(payload={"order_id": 1, "total": 5}))

        found.expect("order.placed", {"order_id": 1, "total": 5})
        assert "payload.total: not expected, found 5" in message(
            lambda: found.expect("order.placed", {"order_id": 1})
        )

    def test_an_object_is_its_type_and_its_payload(self) -> None:
        refund = Refund(ID, Decimal("1.50"))
        found = events(an_event("expected.refund", {"order": str(ID), "amount": "1.50"}))

        assert found.expect(refund).payload == refund
        found.expect(Refund, amount=Decimal("1.50"))
        assert "payload.amount: expected '2', found '1.50'" in message(
            lambda: found.expect(Refund(ID, Decimal(2)))
        )

    def test_values_are_compared_as_they_are_stored(self) -> None:
        moment = datetime(2026, 3, 1, tzinfo=UTC)
        found = events(an_event(payload={"id": str(ID), "at": "2026-03-01T00:00:00Z"}))

        found.expect("order.placed", id=ID, at=moment)

    def test_what_can_not_be_stored_compares_itself(self) -> None:
        found = events(an_event(payload={"order_id": 7, "total": 0.1 + 0.2}))

        found.expect("order.placed", order_id=ANY, total=pytest.approx(0.3))
        assert "total: expected 0.4" in message(
            lambda: found.expect("order.placed", total=pytest.approx(0.4))
        )

    def test_a_pattern_is_that_of_a_listener(self) -> None:
        found = events(an_event("order.placed"), an_event("order.paid"), an_event("orders"))

        assert [each.event_type for each in found.of("order.*")] == ["order.placed", "order.paid"]
        assert len(found.expect_count(2, "order.*")) == 2
        found.expect_none("invoice.*")

    def test_a_class_without_an_event_type_is_refused(self) -> None:
        with pytest.raises(UnknownEventType):
            events().expect(object())


class TestFailing:
    def test_the_nearest_come_first_each_with_its_differences(self) -> None:
        far = an_event("order.paid", {"order_id": 8})
        near = an_event(payload={"order_id": 7, "total": 5}, key="c-1")
        nearer = an_event(payload={"order_id": 7, "total": 6})

        shown = message(
            lambda: events(far, near, nearer).expect("order.placed", order_id=8, total=6)
        )

        assert shown == (
            "expected one event order.placed with order_id=8, total=6, found 0\n"
            "  3 events were added in all; the nearest:\n"
            f"  1. {nearer!r}\n"
            "       order_id: expected 8, found 7\n"
            f"  2. {near!r}\n"
            "       order_id: expected 8, found 7\n"
            "       total: expected 6, found 5\n"
            f"  3. {far!r}\n"
            "       event type: expected order.placed, found order.paid"
        )
        assert repr(near) == "order.placed {'order_id': 7, 'total': 5} key='c-1' (committed)"

    def test_a_field_that_is_not_there_is_named(self) -> None:
        found = events(an_event(payload={"id": 7}), an_event(payload=[7]))

        shown = message(lambda: found.expect("order.placed", order_id=7))

        assert shown.count("order_id: expected 7, and there is no such field") == 2

    def test_without_any_event_it_says_what_was_rolled_back(self) -> None:
        shown = message(lambda: events(undone=("order.placed",)).expect("order.placed"))

        assert "no event was added" in shown
        assert "rolled back: order.placed" in shown

    def test_more_than_one_is_a_failure_that_shows_them(self) -> None:
        twice = events(an_event(payload=1), an_event(payload=2))

        shown = message(lambda: twice.expect("order.placed"))

        assert "found 2" in shown
        assert "order.placed 1" in shown
        assert "order.placed 2" in shown

    def test_one_that_must_not_be_is_shown(self) -> None:
        found = events(an_event(payload={"order_id": 7}))

        assert "{'order_id': 7}" in message(lambda: found.expect_none("order.*", order_id=7))

    def test_a_payload_that_the_flush_makes_known_says_so(self) -> None:
        row = {"event_id": str(ID), "event_type": "order.placed"}
        waiting = added_event(row, "pending", None)

        assert events(waiting).expect("order.placed") is waiting
        assert "flush the session first" in message(
            lambda: events(waiting).expect("order.placed", order_id=7)
        )
        with pytest.raises(PayloadNotKnown, match="flush the session"):
            _ = waiting.payload


def test_everything_that_was_given_is_in_the_event_and_shown() -> None:
    event = an_event(
        "order.placed",
        None,
        key="c-1",
        tenant="acme",
        headers={"actor_id": "7"},
        run_at="2026-03-01T00:00:00+00:00",
        delay=60.0,
        priority=3,
    )

    assert (event.run_at, event.delay) == (datetime(2026, 3, 1, tzinfo=UTC), timedelta(minutes=1))
    assert (event.key, event.tenant, event.priority) == ("c-1", "acme", 3)
    assert event.headers == {"actor_id": "7"}
    for part in ("key='c-1'", "tenant='acme'", "run_at=2026-03-01", "priority=3", "actor_id"):
        assert part in repr(event)


class TestDeliveries:
    def delivery(self, **more: Any) -> Delivery:
        given = {"listener": "billing", "event_type": "order.placed", "outcome": "done", **more}
        return Delivery(event_id=ID, **given)

    def test_those_of_a_listener_and_the_only_one(self) -> None:
        paid = self.delivery(event_type="order.paid")
        found = Deliveries([self.delivery(), paid, self.delivery(listener="mail")])

        assert len(found.of("billing")) == 2
        assert found.one("billing", "order.paid") is paid
        assert "expected one delivery of billing, found 2" in message(lambda: found.one("billing"))

    def test_not_everything_done_is_a_failure_caused_by_what_was_raised(self) -> None:
        error = ValueError("declined")
        failure = Failure(1, "ValueError", "ValueError", "declined")
        moment = datetime(2026, 3, 1, tzinfo=UTC)
        late = self.delivery(
            outcome="retry", attempt=1, due_at=moment, failure=failure, error=error
        )

        Deliveries([self.delivery()]).expect_done()
        with pytest.raises(AssertionError) as caught:
            Deliveries([self.delivery(), late]).expect_done()

        assert caught.value.__cause__ is error
        assert str(caught.value) == (
            "not everything was handled:\n  billing: order.placed retry "
            "until 2026-03-01 00:00:00+0000 after ValueError: declined"
        )
        assert Deliveries([self.delivery(), late]).failed == [late]
