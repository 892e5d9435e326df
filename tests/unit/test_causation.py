"""Linking events to the event whose handler added them."""

from __future__ import annotations

import contextvars
from collections.abc import Iterator, Mapping
from typing import Any
from uuid import UUID

import pytest

from sa_outbox import Event
from sa_outbox.causation import DEPTH, handled, link_to_cause
from sa_outbox.errors import CausationTooDeep, InvalidEvent
from sa_outbox.producer.pending import make_pending
from sa_outbox.settings import Limits

CAUSE = UUID(int=7)


@pytest.fixture(autouse=True)
def _not_in_a_handler() -> Iterator[None]:
    token = handled.set(None)
    yield
    handled.reset(token)


def handle(headers: Mapping[str, str | int] | None = None) -> None:
    """From here on we are in the handler of an event with these *headers*."""
    event: Event[Any] = Event("order.placed", {}, event_id=CAUSE, headers=headers)
    handled.set(event)


def linked(headers: dict[str, str | int] | None = None, limit: int = 100) -> dict[str, str | int]:
    given = dict(headers or {})
    link_to_cause("order.paid", given, limit)
    return given


class TestLinks:
    def test_outside_of_a_handler_nothing_is_added(self) -> None:
        assert linked({"a": "b"}) == {"a": "b"}

    def test_the_first_event_of_a_chain_gives_its_id_to_all(self) -> None:
        handle()

        assert linked() == {"correlation_id": str(CAUSE), "causation_id": str(CAUSE), DEPTH: 1}

    def test_later_ones_pass_the_correlation_on(self) -> None:
        handle({"correlation_id": "first", "causation_id": "second", DEPTH: 4})

        assert linked() == {"correlation_id": "first", "causation_id": str(CAUSE), DEPTH: 5}

    def test_what_the_caller_gave_stays(self) -> None:
        handle({"correlation_id": "first"})

        added = linked({"correlation_id": "mine", "causation_id": "mine too", "a": "b"})

        assert added == {"correlation_id": "mine", "causation_id": "mine too", "a": "b", DEPTH: 1}

    def test_other_headers_are_not_passed_on(self) -> None:
        handle({"a": "b", "version": 3})

        assert set(linked()) == {"correlation_id", "causation_id", DEPTH}

    def test_each_context_has_its_own_cause(self) -> None:
        handle()
        elsewhere = contextvars.copy_context()
        handled.set(None)

        assert linked() == {}
        assert elsewhere.run(linked)["causation_id"] == str(CAUSE)


class TestDepth:
    def test_a_chain_has_an_end(self) -> None:
        handle({DEPTH: 2})
        assert linked(limit=3)[DEPTH] == 3

        handle({DEPTH: 3})
        with pytest.raises(CausationTooDeep, match=r"'order\.paid' would be event 4") as caught:
            linked(limit=3)

        assert caught.value.limit == 3
        assert isinstance(caught.value, InvalidEvent)

    def test_the_caller_can_not_set_it_back(self) -> None:
        handle({DEPTH: 2})

        assert linked({DEPTH: 0})[DEPTH] == 3

    def test_a_depth_that_is_no_number_counts_from_the_beginning(self) -> None:
        handle({DEPTH: "many"})

        assert linked()[DEPTH] == 1

    def test_a_loop_of_handlers_ends(self) -> None:
        """Each handler adds the type of event that it listens to."""
        headers: dict[str, str | int] = {}
        for _ in range(5):
            handle(headers)
            headers = linked(limit=5)

        handle(headers)
        with pytest.raises(CausationTooDeep):
            linked(limit=5)


class TestAddedEvents:
    def test_an_event_added_by_a_handler_is_linked(self) -> None:
        handle()

        event = make_pending("order.paid", {}, limits=Limits()).event

        assert event.headers["causation_id"] == str(CAUSE)

    def test_one_too_many_is_refused_where_it_is_added(self) -> None:
        handle({DEPTH: 3})

        with pytest.raises(CausationTooDeep):
            make_pending("order.paid", {}, limits=Limits(max_causation_depth=3))
