"""What is written for what became of events: which statements, in which order."""

from __future__ import annotations

import itertools
import json
from typing import Any, get_args
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sa_outbox.consumer.connection.connections import Query
from sa_outbox.consumer.connection.statements import statements
from sa_outbox.consumer.handler.delivery import InFlight
from sa_outbox.consumer.lease.lease import Lease
from sa_outbox.consumer.position.progress import Saved
from sa_outbox.consumer.settle.writes import Write, plan
from sa_outbox.database.tables import tables
from sa_outbox.policy.delivery import IllegalMove, Outcome, is_legal
from sa_outbox.policy.failure import Failure
from sa_outbox.settings import Names

STATEMENTS = statements(tables(Names()), "outbox")
NAMES = {id(query): name for name, query in vars(STATEMENTS).items() if isinstance(query, Query)}
LEASE = Lease(
    {
        "name": "billing",
        "part": 0,
        "token": 4,
        "position": 10,
        "gaps": "[]",
        "revision": 6,
        "retry_count": 0,
        "retry_position": None,
        "retry_in": None,
        "crashes": 0,
        "suspects": "{}",
        "fingerprint": None,
        "owner": "host:1:ab",
    },
    duration=30.0,
    began=0.0,
)
OLD, NEW = Saved(10, "[]", revision=6), Saved(20, "[[11,12]]", revision=7)
FAILURE = Failure(2, "code", "ValueError", "text")
MOVED = {
    "name": "billing",
    "part": 0,
    "token": 4,
    "owner": "host:1:ab",
    "duration": 30.0,
    "old": 10,
    "revision": 6,
    "position": 20,
    "gaps": "[[11,12]]",
}
_positions = itertools.count(11)


def make_item(
    outcome: Outcome, *, key: str | None = None, state: Any = "", **more: Any
) -> InFlight:
    position = more.pop("position", None) or next(_positions)
    item = InFlight((position, UUID(int=position), "t", key), key or position, state=state)
    item.outcome = outcome
    for name, value in more.items():
        setattr(item, name, value)
    return item


def planned(*items: InFlight, holding: bool = False) -> list[Write]:
    return plan(STATEMENTS, LEASE, items, old=OLD, new=NEW, holding=holding)


def names(writes: list[Write]) -> list[str]:
    return [NAMES[id(write.query)] for write in writes]


def values_of(writes: list[Write], name: str) -> dict[str, Any]:
    return next(write.values for write in writes if NAMES[id(write.query)] == name)


def document_of(writes: list[Write], name: str) -> list[dict[str, Any]]:
    values = values_of(writes, name)
    assert values["listener"] == "billing"
    documents: list[dict[str, Any]] = json.loads(values["document"])
    return documents


class TestTheCursor:
    def test_what_is_done_and_had_no_row_is_only_passed(self) -> None:
        """By far the most: one statement, whatever their number."""
        writes = planned(make_item("done"), make_item("done", key="k"))

        assert writes == [Write(STATEMENTS.advance, MOVED, fenced=True)]

    def test_without_events_only_the_state_is_saved(self) -> None:
        assert planned() == [Write(STATEMENTS.save, MOVED, fenced=True)]

    def test_while_one_waits_for_its_next_attempt_its_errors_are_not_forgotten(self) -> None:
        writes = planned(make_item("schedule"), holding=True)

        assert names(writes)[-1] == "save"


class TestHold:
    def test_the_attempts_and_the_error_are_written_with_the_cursor(self) -> None:
        item = make_item("hold", attempts=2, delay=1.5, failure=FAILURE)

        writes = planned(make_item("done"), item)

        assert STATEMENTS.hold is not None
        assert writes == [
            Write(
                STATEMENTS.hold,
                {
                    **MOVED,
                    "held": item.position,
                    "retry_count": 2,
                    "delay": 1.5,
                    "failure": json.dumps(FAILURE.as_json()),
                    "code": "code",
                    "message": "text",
                },
                fenced=True,
            )
        ]

    def test_others_are_settled_in_the_same_transaction(self) -> None:
        held = make_item("hold", attempts=1, failure=FAILURE)

        assert names(planned(make_item("schedule"), held)) == ["park", "hold"]


class TestParked:
    @pytest.mark.parametrize(
        ("outcome", "state", "delay", "failure"),
        [
            ("park", "parked", 1.5, FAILURE),
            ("schedule", "scheduled", 1.5, FAILURE),
            ("behind", "behind", None, None),
        ],
    )
    def test_each_is_written_with_its_state(
        self, outcome: Outcome, state: str, delay: float | None, failure: Failure | None
    ) -> None:
        item = make_item(outcome, attempts=1, delay=1.5, failure=failure)

        writes = planned(item)

        assert document_of(writes, "park") == [
            {
                "position": item.position,
                "state": state,
                "delay": delay,
                "attempts": 1,
                "failure": None if failure is None else failure.as_json(),
            }
        ]

    def test_one_that_was_not_attempted_has_no_failure(self) -> None:
        writes = planned(make_item("behind"))

        assert document_of(writes, "park")[0]["failure"] is None

    def test_all_of_them_are_one_statement_in_their_order(self) -> None:
        failed = make_item("park", key="a", failure=FAILURE)
        items = [failed, make_item("behind", key="a"), make_item("schedule")]

        document = document_of(planned(*items), "park")

        assert [each["position"] for each in document] == [item.position for item in items]


class TestCancelled:
    @pytest.mark.parametrize("outcome", ["cancel", "withdraw"])
    def test_its_row_stays_and_says_so(self, outcome: Outcome) -> None:
        item = make_item(outcome, attempts=1, delay=9.0, state="scheduled")

        writes = planned(item)

        assert names(writes) == ["park", "advance"]
        assert document_of(writes, "park")[0]["state"] == "cancelled"
        assert document_of(writes, "park")[0]["delay"] is None


class TestResults:
    def test_they_are_stored_with_the_cursor(self) -> None:
        item = make_item("done", result=("s3://7", 60.0))

        writes = planned(make_item("done"), item)

        assert names(writes) == ["leave_results", "advance"]
        assert document_of(writes, "leave_results") == [
            {"event_id": str(item.event_id), "result_ref": "s3://7", "lifetime": 60.0}
        ]

    def test_a_failed_attempt_leaves_none(self) -> None:
        writes = planned(
            make_item("dead", result=("s3://7", 60.0), failure=FAILURE),
            make_item("cancel", result=("s3://8", 60.0)),
        )

        assert "leave_results" not in names(writes)


class TestDeadLetters:
    def test_they_are_written_with_their_reason(self) -> None:
        item = make_item("dead", attempts=5, crashes=3, reason="crashes", failure=FAILURE)

        writes = planned(item)

        assert document_of(writes, "bury") == [
            {
                "position": item.position,
                "reason": "crashes",
                "attempts": 5,
                "crashes": 3,
                "failure": FAILURE.as_json(),
            }
        ]

    def test_their_errors_are_read_before_their_row_is_deleted(self) -> None:
        writes = planned(make_item("dead", state="parked", failure=FAILURE))

        assert names(writes).index("bury") < names(writes).index("settle")


class TestRows:
    def test_the_row_of_one_that_is_done_or_dead_is_deleted(self) -> None:
        done, dead = make_item("done", state="parked"), make_item("dead", state="scheduled")

        writes = planned(make_item("done"), done, dead)

        assert values_of(writes, "settle") == {
            "listener": "billing",
            "positions": [done.position, dead.position],
        }

    def test_the_row_of_one_that_waits_again_is_not(self) -> None:
        writes = planned(
            make_item("park", state="parked"), make_item("schedule", state="scheduled")
        )

        assert "settle" not in names(writes)


class TestPromotion:
    def promoted(self, *items: InFlight) -> list[str]:
        writes = planned(*items)
        if "promote" not in names(writes):
            return []
        values = values_of(writes, "promote")
        assert values["listener"] == "billing"
        keys: list[str] = values["keys"]
        return keys

    @pytest.mark.parametrize("outcome", ["done", "dead", "park"])
    def test_the_next_of_a_key_may_follow_one_that_had_a_row(self, outcome: Outcome) -> None:
        assert self.promoted(make_item(outcome, key="k", state="parked")) == ["k"]

    def test_one_that_goes_behind_may_find_that_nothing_is_before_it(self) -> None:
        assert self.promoted(make_item("behind", key="k")) == ["k"]

    def test_each_key_is_told_once_and_in_one_order(self) -> None:
        """In one order, so that two transactions can't lock them crosswise."""
        items = [make_item("behind", key=key) for key in "cabca"]

        assert self.promoted(*items) == ["a", "b", "c"]

    def test_nothing_waits_behind_one_without_a_key_or_without_a_row(self) -> None:
        parked, done = make_item("park", failure=FAILURE), make_item("done", key="k")

        assert self.promoted(parked, done) == []

    def test_those_that_go_behind_are_written_before(self) -> None:
        writes = names(planned(make_item("behind", key="k"), make_item("done", state="parked")))

        assert writes == ["park", "settle", "promote", "advance"]


class TestErrors:
    def test_the_last_error_is_remembered_for_people_to_see(self) -> None:
        later = Failure(1, "later", "KeyError", "more")

        writes = planned(make_item("park", failure=FAILURE), make_item("dead", failure=later))

        assert values_of(writes, "remember_error") == {
            "name": "billing",
            "part": 0,
            "token": 4,
            "code": "later",
            "message": "more",
        }

    def test_without_one_nothing_is(self) -> None:
        assert "remember_error" not in names(planned(make_item("behind"), make_item("done")))


class TestIllegalMoves:
    @pytest.mark.parametrize(
        "item",
        [
            make_item("behind", state="parked"),
            make_item("behind", failure=FAILURE),
            make_item("park"),
            make_item("schedule", state="parked"),
            make_item("withdraw", state="behind"),
        ],
        ids=lambda item: f"{item.state_before}-{item.outcome}",
    )
    def test_none_is_planned(self, item: InFlight) -> None:
        with pytest.raises(IllegalMove, match=f"{item.outcome!r}.* that is {item.state_before}"):
            planned(make_item("done"), item)

    @pytest.mark.parametrize("state", ["", "scheduled", "parked", "behind"])
    @pytest.mark.parametrize("aside", [False, True])
    def test_whatever_has_not_ended_can_become_a_dead_letter(
        self, state: Any, *, aside: bool
    ) -> None:
        """As an illegal move does."""
        item = make_item("dead", state=state, failure=FAILURE, aside=aside)

        assert names(planned(item))[0] == "bury"


KINDS = [
    (outcome, state, failure)
    for outcome in get_args(Outcome)
    for state in ("", "parked", "behind", "scheduled")
    for failure in (None, FAILURE)
    if is_legal(make_item(outcome, state=state, failure=failure).state_before, outcome)
    and not (outcome == "hold" and (state or failure is None))
    and not (outcome == "done" and failure is not None)
    and not (outcome == "dead" and failure is None)
]
"""Outcome, state and failure of every delivery that can be settled."""


@st.composite
def items(draw: st.DrawFn) -> list[InFlight]:
    found: list[InFlight] = []
    for position in range(11, 11 + draw(st.integers(0, 8))):
        outcome, state, failure = draw(st.sampled_from(KINDS))
        key = draw(st.sampled_from([None, "a", "b"]))
        found.append(make_item(outcome, position=position, key=key, state=state, failure=failure))
    return found


class TestAnyEvents:
    @given(items(), st.booleans())
    def test_the_fenced_statement_is_the_last_and_the_only_one(
        self, items: list[InFlight], holding: bool
    ) -> None:
        writes = planned(*items, holding=holding)

        assert [write.fenced for write in writes] == [False] * (len(writes) - 1) + [True]
        assert writes[-1].values.items() >= MOVED.items()
        order = ["bury", "park", "settle", "leave_results", "promote", "remember_error"]
        assert names(writes)[:-1] == [name for name in order if name in names(writes)]

    @given(items(), st.booleans())
    def test_every_statement_has_its_values(self, items: list[InFlight], holding: bool) -> None:
        for write in planned(*items, holding=holding):
            given = {"now": 0, **write.values}  # None means the server's clock
            assert None not in write.query.arguments(given)

    @given(items())
    def test_every_event_is_accounted_for_once(self, items: list[InFlight]) -> None:
        writes = planned(*items)

        set_aside = ("park", "behind", "schedule", "cancel", "withdraw")
        for name, outcomes in (("bury", ("dead",)), ("park", set_aside)):
            expected = [item.position for item in items if item.outcome in outcomes]
            document = document_of(writes, name) if name in names(writes) else []
            assert [each["position"] for each in document] == expected
