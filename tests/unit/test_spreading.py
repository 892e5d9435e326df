"""The order of a test run: all tests, and the long ones spread."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from tests.support.spreading import spread

counts = st.integers(0, 200)


@given(counts, counts, st.integers(1, 8))
def test_every_test_is_run_once(short: int, long: int, processes: int) -> None:
    tests = [("short", number) for number in range(short)]
    more = [("long", number) for number in range(long)]

    assert sorted(spread(tests, more, processes)) == sorted(tests + more)


def test_each_process_has_its_share_of_the_long_ones_and_none_at_its_end() -> None:
    ordered = spread(["short"] * 3000, ["long"] * 30, 3)

    for number in range(3):
        stretch = ordered[number * 1010 : (number + 1) * 1010]
        assert stretch.count("long") == 10
        assert "long" not in stretch[-200:]
        places = [at for at, each in enumerate(stretch) if each == "long"]
        assert min(b - a for a, b in pairwise(places)) > 50


def test_alone_there_is_one_stretch() -> None:
    assert spread([1, 2, 3, 4], [5], 1) == [5, 1, 2, 3, 4]
    assert spread([], [5, 6], 2) == [5, 6]
