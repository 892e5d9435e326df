"""A lease is a term: how long its holder trusts it, and what it takes over."""

from __future__ import annotations

from typing import Any

import pytest

from sa_outbox.consumer.lease.lease import TRUSTED, Lease
from sa_outbox.consumer.position.progress import Progress, Saved
from sa_outbox.errors import LeaseLost

DURATION = 10.0


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def claimed(clock: Clock | None = None, **columns: Any) -> Lease:
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
        "suspects": "{}",
        "fingerprint": None,
        "owner": "host:1:ab",
        **columns,
    }
    return Lease(row, duration=DURATION, began=1000.0, clock=clock or Clock())


class TestTrust:
    def test_it_is_trusted_for_a_part_of_its_duration(self, clock: Clock) -> None:
        lease = claimed(clock)

        clock.now = 1000 + TRUSTED * DURATION - 0.01
        assert not lease.has_ended()
        clock.now = 1000 + TRUSTED * DURATION
        assert lease.has_ended()

    def test_the_holder_stops_before_the_database_gives_it_away(self) -> None:
        assert 0.5 <= TRUSTED < 1

    def test_a_renewal_counts_from_when_it_was_begun(self, clock: Clock) -> None:
        """Its answer may have taken long; the database counts from before."""
        lease = claimed(clock)

        clock.now = 1007
        lease.renewed(began=1005)

        clock.now = 1005 + TRUSTED * DURATION - 0.01
        assert not lease.has_ended()
        clock.now = 1005 + TRUSTED * DURATION
        assert lease.has_ended()

    def test_without_a_time_it_counts_from_now(self, clock: Clock) -> None:
        lease = claimed(clock)

        clock.now = 1006
        lease.renewed()

        clock.now = 1013.9
        assert not lease.has_ended()

    def test_an_answer_that_comes_late_does_not_shorten_it(self, clock: Clock) -> None:
        lease = claimed(clock)
        lease.renewed(began=1005)

        lease.renewed(began=1001)

        clock.now = 1012.9
        assert not lease.has_ended()

    def test_what_is_lost_stays_lost(self, clock: Clock) -> None:
        lease = claimed(clock)

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

        assert (lease.position, lease.gaps) == (70, "[[60, 62]]")
        assert (lease.revision, lease.crashes) == (9, 0)
        assert (lease.retry_count, lease.retry_position, lease.retry_in) == (2, 71, 1.5)
        assert lease.fingerprint == "f"

    def test_the_term_is_what_every_statement_under_it_needs(self) -> None:
        term = {"name": "billing", "part": 0, "token": 4, "owner": "host:1:ab"}
        assert claimed().term == {**term, "duration": DURATION}


def shown(revision: int, position: int = 70) -> dict[str, int]:
    """What a renewal answers."""
    return {"revision": revision, "position": position}


class TestTheRow:
    """A renewal is answered while the holder writes, or does not."""

    def test_what_was_saved_and_nothing_else_is_right(self) -> None:
        lease = claimed()

        assert not lease.is_contradicted_by(shown(9), before=lease.saved)
        assert lease.is_contradicted_by(shown(8), before=lease.saved)
        assert lease.is_contradicted_by(shown(9, position=69), before=lease.saved)
        assert lease.is_contradicted_by(shown(11, position=90), before=lease.saved)

    def test_a_write_whose_answer_has_not_come_is_right_too(self) -> None:
        lease = claimed()

        assert not lease.is_contradicted_by(shown(10, position=71), before=lease.saved)

    def test_writes_that_were_answered_meanwhile_are_right_and_so_is_each_before_them(self) -> None:
        lease = claimed()
        progress = Progress(70, revision=9)
        lease.worked_by(progress)
        before = lease.saved
        for revision in (10, 11, 12):
            progress.settle((), Saved(60 + revision, "[]", revision))

        for revision in range(9, 14):
            position = 70 if revision == 9 else 60 + revision
            assert not lease.is_contradicted_by(shown(revision, position), before=before)
        assert lease.is_contradicted_by(shown(8), before=before)
        assert lease.is_contradicted_by(shown(14), before=before)

    def test_one_that_is_outdated_is_no_crash(self) -> None:
        lease = claimed()
        lease.outdated()
        lease.lost()

        assert lease.is_lost
        assert not lease.may_have_crashed
