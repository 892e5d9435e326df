"""The partition of an event, by its key. test_partition_of.py compares it with SQL."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sa_outbox.consumer.position.partition import partition_of

KEYS = st.text(st.characters(exclude_categories=["Cs"]))


@pytest.mark.parametrize(
    ("key", "count", "partition"),
    [("", 8, 2), ("a", 8, 2), ("order 1", 8, 5), ("ä", 256, 63), ("a", 1, 0)],
)
def test_it_never_changes(key: str, count: int, partition: int) -> None:
    # Another answer would leave events of running listeners to nobody.
    assert partition_of(key, 17, count) == partition


def test_an_event_without_a_key_goes_by_its_position() -> None:
    assert [partition_of(None, position, 3) for position in range(1, 7)] == [1, 2, 0, 1, 2, 0]


@given(key=KEYS, position=st.integers(1, 2**63 - 1), count=st.integers(1, 256))
def test_it_is_one_of_them_and_the_position_of_a_key_does_not_matter(
    key: str, position: int, count: int
) -> None:
    found = partition_of(key, position, count)

    assert 0 <= found < count
    assert found == partition_of(key, 1, count)


def test_keys_are_spread() -> None:
    found = [partition_of(f"order {n}", 1, 8) for n in range(8000)]

    assert all(800 < found.count(partition) < 1200 for partition in range(8))
