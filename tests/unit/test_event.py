"""The event object: what it tells, what it keeps to itself, and that it can't be changed."""

from __future__ import annotations

import copy
import itertools
import pickle
import time
import weakref
from datetime import UTC, datetime
from typing import Any
from uuid import RFC_4122, UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sa_outbox import Event
from sa_outbox.errors import InvalidEvent, PayloadNotKnown, WrongArgument
from sa_outbox.event.event import (
    NOT_KNOWN,
    now_duplicate,
    now_known,
)
from sa_outbox.event.ids import uuid7
from sa_outbox.event.stored import now_attempt, now_cancel_requested

SLOTS = [name for name in Event.__mro__[1].__slots__ if name not in ("__weakref__", "_text")]  # type: ignore[attr-defined]  # its fields


def make_event() -> Event[dict[str, int]]:
    return Event(
        "order.placed",
        {"order_id": 1},
        key="order-1",
        tenant="acme",
        headers={"version": 2, "trace": "abc"},
        run_at=datetime(2026, 1, 1, tzinfo=UTC),
        priority=3,
        idempotency_key="once",
        position=9,
        created_at=datetime(2026, 1, 2, tzinfo=UTC),
    )


class TestEvent:
    def test_it_tells_what_it_was_made_with(self) -> None:
        event = make_event()

        assert event.event_type == "order.placed"
        assert event.payload == {"order_id": 1}
        assert event.key == "order-1"
        assert event.tenant == "acme"
        assert event.headers == {"version": 2, "trace": "abc"}
        assert event.run_at == datetime(2026, 1, 1, tzinfo=UTC)
        assert event.priority == 3
        assert event.idempotency_key == "once"
        assert event.position == 9
        assert event.created_at == datetime(2026, 1, 2, tzinfo=UTC)
        assert event.duplicate_of is None

    def test_what_is_left_out_is_empty(self) -> None:
        event = Event("a", None)

        assert (event.key, event.tenant, event.run_at, event.idempotency_key) == (None,) * 4
        assert (event.position, event.created_at, event.priority) == (None, None, 0)
        assert event.headers == {}
        assert event.payload is None

    @pytest.mark.parametrize("name", [*SLOTS, "payload", "key", "something_new"])
    def test_no_attribute_can_be_set_or_deleted(self, name: str) -> None:
        event = make_event()

        with pytest.raises(AttributeError, match="can't be changed"):
            setattr(event, name, None)
        with pytest.raises(AttributeError, match="can't be changed"):
            delattr(event, name)

    def test_its_headers_can_not_be_changed_either(self) -> None:
        with pytest.raises(TypeError):
            make_event().headers["trace"] = "x"  # type: ignore[index]  # that is the point

    def test_its_headers_are_not_those_of_another_event(self) -> None:
        assert Event("a", 1).headers is not Event("a", 1).headers

    def test_it_can_be_referred_to_weakly(self) -> None:
        event = make_event()

        assert weakref.ref(event)() is event

    @pytest.mark.parametrize("protocol", range(2, pickle.HIGHEST_PROTOCOL + 1))
    def test_it_survives_pickling(self, protocol: int) -> None:
        event = make_event()
        now_duplicate(event, uuid7())
        now_cancel_requested(event)
        now_attempt(event, 2)
        event.leave_result("s3://exports/7")

        again = pickle.loads(pickle.dumps(event, protocol))

        assert type(again) is Event
        assert {name: getattr(again, name) for name in SLOTS} == {
            name: getattr(event, name) for name in SLOTS
        }
        with pytest.raises(AttributeError):
            again.priority = 5

    def test_a_deferred_payload_is_still_unknown_after_pickling(self) -> None:
        again = pickle.loads(pickle.dumps(Event("a", NOT_KNOWN, key=NOT_KNOWN)))

        with pytest.raises(PayloadNotKnown):
            _ = again.payload
        with pytest.raises(PayloadNotKnown):
            _ = again.key

    def test_it_can_be_copied(self) -> None:
        event = make_event()

        for again in (copy.copy(event), copy.deepcopy(event)):
            assert again.event_id == event.event_id
            assert again.payload == event.payload

    def test_its_repr_has_no_payload_key_or_headers(self) -> None:
        event: Event[object] = Event(
            "user.signed_up",
            {"password": "hunter2"},
            key="hunter2",
            tenant="hunter2",
            headers={"a": "hunter2"},
            idempotency_key="hunter2",
        )

        assert repr(event) == f"<Event user.signed_up {event.event_id}>"
        assert "hunter2" not in f"{event} {event!r} {[event]}"

    def test_events_are_told_apart_by_identity(self) -> None:
        event: Event[object] = make_event()
        other: Event[object] = Event("a", 1, event_id=event.event_id)

        assert event != other
        assert len({event, other, event}) == 2


class TestDeferred:
    def test_a_deferred_value_says_when_it_will_be_known(self) -> None:
        event: Event[object] = Event("order.placed", NOT_KNOWN, key=NOT_KNOWN)

        with pytest.raises(PayloadNotKnown, match=r"payload of 'order\.placed'.*after the flush"):
            _ = event.payload
        with pytest.raises(PayloadNotKnown, match=r"key of 'order\.placed'.*after the flush"):
            _ = event.key

    def test_it_is_known_once_it_was_written(self) -> None:
        event: Event[object] = Event("order.placed", NOT_KNOWN, key=NOT_KNOWN)

        now_known(event, payload={"id": 1}, key="k")

        assert event.payload == {"id": 1}
        assert event.key == "k"

    def test_the_payload_may_be_nothing(self) -> None:
        event: Event[object] = Event("order.placed", NOT_KNOWN)

        now_known(event, payload=None, key=None)

        assert event.payload is None
        assert event.key is None

    def test_a_duplicate_names_the_original(self) -> None:
        event, original = make_event(), uuid7()

        now_duplicate(event, original)

        assert event.duplicate_of == original


class TestUuid7:
    def test_it_has_version_7_and_the_variant_of_the_standard(self) -> None:
        for _ in range(1_000):
            made = uuid7()
            assert made.version == 7
            assert made.variant == RFC_4122

    def test_it_carries_the_time_in_milliseconds(self) -> None:
        before = time.time_ns() // 1_000_000
        made = uuid7()
        after = time.time_ns() // 1_000_000

        assert before <= made.int >> 80 <= after

    @given(st.integers(0, 2**48 * 1_000_000 - 1), st.integers(0, 10_000_000_000))
    def test_a_later_time_sorts_later(self, now: int, later: int) -> None:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(time, "time_ns", lambda: now)
            first = uuid7()
            # A quarter of a microsecond is the resolution of the twelve bits.
            patch.setattr(time, "time_ns", lambda: min(now + 250 + later, 2**48 * 1_000_000 - 1))
            second = uuid7()

        assert first.version == second.version == 7
        assert first.variant == second.variant == RFC_4122
        assert first.int >> 64 <= second.int >> 64

    def test_those_made_one_after_another_mostly_sort_that_way(self) -> None:
        made = [uuid7() for _ in range(10_000)]
        pairs = itertools.pairwise(made)

        # Within a quarter of a microsecond by chance; and the system's clock may be set back.
        assert sum(one.int >> 64 > other.int >> 64 for one, other in pairs) < 100

    def test_no_two_are_equal(self) -> None:
        assert len({uuid7() for _ in range(100_000)}) == 100_000

    def test_every_event_has_one_of_its_own_unless_it_is_given(self) -> None:
        given_id = UUID(int=7)

        assert Event("a", 1).event_id != Event("a", 1).event_id
        assert Event("a", 1, event_id=given_id).event_id == given_id


class TestForHandlers:
    def test_nobody_has_cancelled_it_until_the_consumer_says_so(self) -> None:
        event = make_event()
        assert not event.cancel_requested

        now_cancel_requested(event)

        assert event.cancel_requested

    def test_of_several_references_the_last_one_counts(self) -> None:
        event = make_event()
        assert event.result_ref is None

        event.leave_result("s3://exports/1")
        event.leave_result("s3://exports/2")

        assert event.result_ref == "s3://exports/2"

    @pytest.mark.parametrize("reference", ["x" * 1000, "\u00e9" * 500])
    def test_a_reference_has_up_to_1000_bytes(self, reference: str) -> None:
        event = make_event()
        event.leave_result(reference)

        assert event.result_ref == reference

    @pytest.mark.parametrize(
        "reference", ["", "x" * 1001, "\u00e9" * 501, "a\x00b", "a\nb", "\ud800"]
    )
    def test_a_reference_that_can_not_be_stored_is_refused_at_the_call(
        self, reference: str
    ) -> None:
        event = make_event()
        with pytest.raises(InvalidEvent):
            event.leave_result(reference)

        assert event.result_ref is None

    @pytest.mark.parametrize("reference", [None, 7, b"x", ["x"]])
    def test_a_reference_is_text(self, reference: Any) -> None:
        with pytest.raises(WrongArgument):
            make_event().leave_result(reference)
