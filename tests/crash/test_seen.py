"""The checks of the stress tests find what they are there for."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from uuid import UUID

from tests.crash.seen import Findings, Seen, Written, compare, delays

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def name(position: int) -> UUID:
    return UUID(int=position)


def written(*positions: int, key: str = "a") -> list[Written]:
    return [Written(position, name(position), key, position) for position in positions]


def seen(*positions: int, key: str = "a", after: float = 0.1) -> list[Seen]:
    seen_at = NOON + timedelta(seconds=after)
    return [Seen(position, name(position), key, position, seen_at) for position in positions]


def findings(log: list[Written], what: list[Seen]) -> Findings:
    return compare(log, what, {event.event_id: NOON for event in log})


def test_everything_once_and_in_order_breaks_no_promise() -> None:
    assert findings(written(1, 2, 4), seen(1, 2, 4)).broken(in_id_order=True) == set()


def test_event_that_was_not_seen_is_lost() -> None:
    found = findings(written(1, 2, 3), seen(1, 3))

    assert found.lost == {name(2)}
    assert found.broken() == {"lost"}


def test_event_seen_twice_is_doubled_and_not_inverted() -> None:
    found = findings(written(1, 2), seen(1, 2, 1))

    assert found.doubled == {name(1)}
    assert found.broken(in_id_order=True) == {"doubled"}


def test_event_that_is_not_in_the_log_is_a_ghost() -> None:
    found = findings(written(1), seen(1, 2))

    assert found.ghosts == {name(2)}
    assert found.broken() == {"ghosts"}


def test_older_version_after_a_newer_one_is_a_key_inversion() -> None:
    found = findings(written(1, 2, 3), seen(1, 3, 2))

    assert [event.position for event in found.key_inversions] == [2]
    assert found.broken() == {"key_inversions"}


def test_other_keys_are_inverted_only_by_id() -> None:
    log = written(1, key="a") + written(2, key="b")

    found = findings(log, seen(2, key="b") + seen(1, key="a"))

    assert found.broken() == set()
    assert found.broken(in_id_order=True) == {"id_inversions"}


def test_delay_lasts_from_the_commit_to_the_first_time() -> None:
    what = seen(1, after=0.5) + seen(2, after=3) + seen(1, after=9)

    assert delays(what, {name(1): NOON, name(2): NOON}) == [0.5, 3]
    assert delays(what, {name(1): NOON}) == [0.5]


def test_long_delay_of_more_than_a_few_is_a_broken_promise() -> None:
    quick, slow = range(1, 91), range(91, 101)
    log = written(*quick, *slow)

    assert findings(log, seen(*quick) + seen(*slow, after=2.1)).broken() == {"p90"}
    assert findings(log, seen(*quick) + seen(*slow, after=1.9)).broken() == set()
    assert findings(log, seen(*quick, 91) + seen(*slow[1:], after=2.1)).broken() == set()
