"""Which errors are held against an event, and which are nobody's fault."""

from __future__ import annotations

from uuid import UUID

import asyncpg
import pytest

from sa_outbox.consumer.connection.errors import is_refusal, is_unreachable
from sa_outbox.consumer.fault.refusals import LOST_READS, Refusal, Refusals
from sa_outbox.consumer.handler.delivery import InFlight


def answered(sqlstate: str) -> Exception:
    error: Exception = asyncpg.PostgresError("no")
    error.sqlstate = sqlstate  # type: ignore[attr-defined]  # asyncpg's, untyped
    return error


LOST = ConnectionResetError("gone")
OF_A_ROW = ("22P05", "22021", "23514", "54000", "P0001", "XX001", "XX000")
OF_EVERYBODY = ("42501", "42P01", "25006", "55P03", "57014", "40001", "28000", "0A000", "3D000")
OF_THE_SERVER = ("08006", "53200", "57P01", "58030", "25P03")


@pytest.mark.parametrize("sqlstate", OF_A_ROW)
def test_what_is_in_a_row_is_refused_at_once(sqlstate: str) -> None:
    assert is_refusal(answered(sqlstate))
    assert Refusals().is_evidence(1, answered(sqlstate))


@pytest.mark.parametrize("sqlstate", OF_EVERYBODY)
def test_what_is_said_to_everybody_is_never_evidence(sqlstate: str) -> None:
    refusals = Refusals()

    assert not is_refusal(answered(sqlstate))
    assert not any(refusals.is_evidence(1, answered(sqlstate)) for _ in range(10))


@pytest.mark.parametrize("sqlstate", OF_THE_SERVER)
def test_an_outage_is_no_refusal(sqlstate: str) -> None:
    assert is_unreachable(answered(sqlstate))
    assert not is_refusal(answered(sqlstate))


@pytest.mark.parametrize(
    "error", [MemoryError(), UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid start byte")]
)
def test_what_python_can_t_hold_is_refused(error: Exception) -> None:
    assert is_refusal(error)


def test_a_connection_that_is_lost_at_the_same_place_again_and_again_is_evidence() -> None:
    refusals = Refusals()

    found = [refusals.is_evidence(7, LOST) for _ in range(LOST_READS)]

    assert found == [False] * (LOST_READS - 1) + [True]


def test_a_connection_that_is_lost_elsewhere_or_after_a_read_is_not() -> None:
    refusals = Refusals()

    for place in (7, 8, 7, 8, 7, 8):
        assert not refusals.is_evidence(place, LOST)
    for _ in range(5):
        assert not refusals.is_evidence(9, LOST)
        refusals.read(9, 1)


def test_reads_that_fail_only_together_become_smaller_and_grow_again() -> None:
    refusals = Refusals()
    sizes = []
    count = 500
    while refusals.smaller(count):
        assert refusals.most is not None
        sizes.append(refusals.most)
        count = refusals.most

    assert sizes == [250, 125, 62, 31, 15, 7, 3, 1]
    assert not refusals.smaller(1)
    for _ in range(20):
        refusals.read(1, 1)
    assert refusals.most is None


def event_at(position: int, event_id: int) -> InFlight:
    return InFlight((position, UUID(int=event_id), "t", None), position)


def test_what_is_held_against_an_event_is_not_held_against_the_one_that_gets_its_id() -> None:
    refusals = Refusals()
    refused = Refusal(UUID(int=1), LOST, ("texts",))
    refusals.known[7] = refused

    assert refusals.against(event_at(7, event_id=1)) is refused
    assert refusals.against(event_at(7, event_id=2)) is None
    assert refusals.against(event_at(8, event_id=1)) is None
    assert refusals.named() == {
        "refused": [7],
        "unnamed": [7],
        "refused_events": [UUID(int=1)],
    }


def test_what_was_lost_is_forgotten_when_the_one_at_its_place_is_settled() -> None:
    refusals = Refusals()
    refusals.known[7] = Refusal(UUID(int=1), LOST)

    refusals.settled([event_at(7, event_id=2)])

    assert refusals.known == {}
