"""Twice as long each time, up to a limit; and what is reported of an outage."""

from __future__ import annotations

from sa_outbox.consumer.shared.outage import Outage
from sa_outbox.observe import DatabaseAway, DatabaseBack, Observation, Place
from sa_outbox.policy.backoff import Backoff, pause_after


def test_a_pause_is_twice_the_one_before_up_to_the_limit() -> None:
    backoff = Backoff(0.1, 0.5)

    assert [backoff.next() for _ in range(5)] == [0.1, 0.2, 0.4, 0.5, 0.5]


def test_after_a_reset_it_begins_again() -> None:
    backoff = Backoff(0.1, 0.5)
    backoff.next()
    backoff.reset()

    assert backoff.next() == 0.1


def test_the_first_pause_is_not_longer_than_the_limit() -> None:
    assert Backoff(0.1, 0.05).next() == 0.05


def test_after_a_thousand_tries_in_a_row_a_pause_is_the_limit() -> None:
    """Of a handler whose database is away for two hours: the lease is renewed meanwhile."""
    assert [pause_after(tries) for tries in (0, 1, 5, 6, 1100)] == [0.1, 0.2, 3.2, 5.0, 5.0]


def test_an_outage_is_reported_each_time_and_its_end_too() -> None:
    emitted: list[Observation] = []
    outage = Outage(Place("leases"), emitted.append)

    pauses = [outage.goes_on(OSError("gone")) for _ in range(2)]
    was_away = outage.is_away
    outage.ends()

    assert emitted == [
        DatabaseAway(Place("leases"), "OSError", 0.1),
        DatabaseAway(Place("leases"), "OSError", 0.2),
        DatabaseBack(Place("leases")),
    ]
    assert (was_away, outage.is_away) == (True, False)
    assert 0.05 <= pauses[0] <= 0.1 <= pauses[1] <= 0.2
