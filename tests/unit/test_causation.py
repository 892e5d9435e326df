"""Linking events to the event whose handler added them."""

from __future__ import annotations

import contextvars
from collections.abc import Iterator, Mapping
from typing import Any
from uuid import UUID

import pytest

from sa_outbox import Event
from sa_outbox.errors import CausationTooDeep, CausationTooWide, InvalidEvent
from sa_outbox.event import causation
from sa_outbox.event.causation import (
    DEPTH,
    MAX_TREES,
    TREE,
    HandledBatch,
    Trees,
    handled,
    link_to_cause,
)
from sa_outbox.producer.pending import make_pending
from sa_outbox.settings import Limits

CAUSE = UUID(int=7)
FIRST = {TREE: "000000000007:1"}


@pytest.fixture(autouse=True)
def _not_in_a_handler(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(causation, "trees", Trees())
    token = handled.set(None)
    yield
    handled.reset(token)


def handle(headers: Mapping[str, str | int] | None = None) -> None:
    """From here on we are in the handler of an event with these *headers*."""
    event: Event[Any] = Event("order.placed", {}, event_id=CAUSE, headers=headers)
    handled.set(event)


def linked(
    headers: dict[str, str | int] | None = None, limit: int = 100, most: int = 1000
) -> dict[str, str | int]:
    given = dict(headers or {})
    link_to_cause("order.paid", given, limit, most)
    return given


class TestLinks:
    def test_outside_of_a_handler_nothing_is_added(self) -> None:
        assert linked({"a": "b"}) == {"a": "b"}

    def test_the_first_event_of_a_chain_gives_its_id_to_all(self) -> None:
        handle()

        ids = {"correlation_id": str(CAUSE), "causation_id": str(CAUSE)}
        assert linked() == {**ids, **FIRST, DEPTH: 1}

    def test_later_ones_pass_the_correlation_on(self) -> None:
        handle({"correlation_id": "first", "causation_id": "second", DEPTH: 4})

        ids = {"correlation_id": "first", "causation_id": str(CAUSE)}
        assert linked() == {**ids, **FIRST, DEPTH: 5}

    def test_what_the_caller_gave_stays(self) -> None:
        handle({"correlation_id": "first"})

        added = linked({"correlation_id": "mine", "causation_id": "mine too", "a": "b"})

        ids = {"correlation_id": "mine", "causation_id": "mine too"}
        assert added == {**ids, **FIRST, "a": "b", DEPTH: 1}

    def test_other_headers_are_not_passed_on(self) -> None:
        handle({"a": "b", "version": 3})

        assert set(linked()) == {"correlation_id", "causation_id", DEPTH, TREE}

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


class TestTrees:
    def test_a_tree_has_an_end(self) -> None:
        """Each handler adds ten events of the type that it listens to: a million in six steps."""
        waiting: list[dict[str, str | int]] = [{}]
        added = refused = 0
        while waiting:
            handle(waiting.pop(0))
            for _ in range(10):
                try:
                    waiting.append(linked(most=50))
                    added += 1
                except CausationTooWide as error:
                    assert error.limit == 50  # noqa: PT017 - one of many
                    refused += 1
        assert (added, refused) == (50, 51 * 10 - 50)

    def test_each_tree_has_a_limit_of_its_own(self) -> None:
        for number in range(100):
            handled.set(Event("order.placed", {}, event_id=UUID(int=number)))
            assert linked(most=1)[TREE] == f"{number:012x}:1"
            with pytest.raises(CausationTooWide):
                linked(most=1)

    def test_another_process_goes_on_counting_where_this_one_was(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        handle()
        headers = [linked(most=5) for _ in range(4)][-1]
        monkeypatch.setattr(causation, "trees", Trees())

        handle(headers)
        assert linked(most=5)[TREE] == "000000000007:5"
        with pytest.raises(CausationTooWide):
            linked(most=5)

    def test_what_was_forgotten_is_in_the_events(self) -> None:
        trees = Trees()
        assert trees.grow("grows", 0, 10) == 1
        for number in range(MAX_TREES):
            trees.grow(str(number), 0, 10)
        assert len(trees._sizes) == MAX_TREES
        assert trees.grow("grows", 1, 10) == 2

    @pytest.mark.parametrize(
        "wrong", ["", "x", 7, "000000000008", "zzzzzzzzzzzz:1", "0" * 12 + ":-1"]
    )
    def test_a_tree_that_is_none_is_its_own(self, wrong: str | int) -> None:
        handle({TREE: wrong})

        assert linked()[TREE] == FIRST[TREE]

    def test_of_a_batch_the_deepest_event_counts(self) -> None:
        deep: Event[Any] = Event("a.b", {}, headers={DEPTH: 3, TREE: "0123456789ab:17"})
        batch = HandledBatch([Event("a.b", {}), deep, Event("a.b", {})])
        token = handled.set(batch)
        try:
            assert linked() == {DEPTH: 4, TREE: "0123456789ab:18"}
        finally:
            handled.reset(token)


class TestAddedEvents:
    def test_an_event_added_by_a_handler_is_linked(self) -> None:
        handle()

        event = make_pending("order.paid", {}, limits=Limits()).event

        assert event.headers["causation_id"] == str(CAUSE)

    def test_one_too_many_is_refused_where_it_is_added(self) -> None:
        handle({DEPTH: 3})

        with pytest.raises(CausationTooDeep):
            make_pending("order.paid", {}, limits=Limits(max_causation_depth=3))
