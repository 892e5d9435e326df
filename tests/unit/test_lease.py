"""A lease is a term: how long its holder trusts it, and what it takes over."""

from __future__ import annotations

from typing import Any

import pytest

from sa_outbox.consumer import lease as module
from sa_outbox.consumer.gaps import Gaps
from sa_outbox.consumer.lease import TRUSTED, Lease
from sa_outbox.errors import LeaseLost

DURATION = 10.0


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(module, "monotonic", clock)
    return clock


def claimed(**columns: Any) -> Lease:
    """A lease claimed at 1000."""
    row = {
        "name": "billing",
        "part": 0,
        "token": 4,
        "position": 70,
        "gaps": "[[60, 62]]",
        "revision": 9,
        "retry_count": 0,
        "retry_position": None,
        "retry_in": None,
        "crashes": 0,
        "fingerprint": None,
        **columns,
    }
    return Lease(row, duration=DURATION, began=1000.0)


class TestTrust:
    def test_it_is_trusted_for_a_part_of_its_duration(self, clock: Clock) -> None:
        lease = claimed()

        clock.now = 1000 + TRUSTED * DURATION - 0.01
        assert not lease.has_ended()
        clock.now = 1000 + TRUSTED * DURATION
        assert lease.has_ended()

    def test_the_holder_stops_before_the_database_gives_it_away(self) -> None:
        assert 0.5 <= TRUSTED < 1

    def test_a_renewal_counts_from_when_it_was_begun(self, clock: Clock) -> None:
        """Its answer may have taken long; the database counts from before."""
        lease = claimed()

        clock.now = 1007
        lease.renewed(began=1005)

        clock.now = 1005 + TRUSTED * DURATION - 0.01
        assert not lease.has_ended()
        clock.now = 1005 + TRUSTED * DURATION
        assert lease.has_ended()

    def test_without_a_time_it_counts_from_now(self, clock: Clock) -> None:
        lease = claimed()

        clock.now = 1006
        lease.renewed()

        clock.now = 1013.9
        assert not lease.has_ended()

    def test_an_answer_that_comes_late_does_not_shorten_it(self, clock: Clock) -> None:
        lease = claimed()
        lease.renewed(began=1005)

        lease.renewed(began=1001)

        clock.now = 1012.9
        assert not lease.has_ended()

    def test_what_is_lost_stays_lost(self, clock: Clock) -> None:
        lease = claimed()

        error = lease.lost()
        lease.renewed(began=1005)

        assert isinstance(error, LeaseLost)
        assert lease.is_lost
        assert lease.has_ended()

    def test_the_error_names_the_listener_and_the_term(self) -> None:
        assert "'billing' (token 4)" in str(claimed().lost())


class TestTakingOver:
    def test_it_begins_where_the_row_says(self) -> None:
        lease = claimed(retry_count=2, retry_position=71, retry_in=1.5, fingerprint="f")

        assert (lease.position, lease.gaps) == (70, Gaps([(60, 62)]))
        assert (lease.revision, lease.crashes) == (9, 0)
        assert (lease.retry_count, lease.retry_position, lease.retry_in) == (2, 71, 1.5)
        assert lease.fingerprint == "f"

    def test_the_term_is_what_every_statement_under_it_needs(self) -> None:
        assert claimed().term == {"name": "billing", "part": 0, "token": 4, "duration": DURATION}
