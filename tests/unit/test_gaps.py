"""A set of positions kept as ranges, against a plain set."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sa_outbox.consumer.position.gaps import Gaps

POSITIONS = st.integers(1, 40)
CHANGES = st.tuples(st.sampled_from(["add", "remove", "remove_up_to"]), POSITIONS, POSITIONS)
"""What, and where; a range the wrong way round is empty."""
BIGINT = 2**63 - 1


def positions(gaps: Gaps) -> set[int]:
    """Every position, one by one; and on the way: sorted, disjoint, neighbours merged."""
    found: set[int] = set()
    before = -1
    for low, high in gaps:
        assert before + 1 < low <= high
        before = high
        found |= set(range(low, high + 1))
    assert len(gaps) == len(gaps.lows) == len(gaps.highs)
    assert list(zip(gaps.lows, gaps.highs, strict=True)) == list(gaps)
    return found


@st.composite
def changes(draw: st.DrawFn) -> tuple[Gaps, set[int]]:
    """Gaps after any changes, and the plain set after the same."""
    gaps, plain = Gaps(), set[int]()
    for what, low, high in draw(st.lists(CHANGES, max_size=20)):
        if what == "add":
            gaps.add(low, high)
            plain |= set(range(low, high + 1))
        elif what == "remove":
            gaps.remove(low)
            plain.discard(low)
        else:
            gaps.remove_up_to(low)
            plain = {each for each in plain if each > low}
    return gaps, plain


class TestLikeASet:
    @given(changes())
    def test_it_holds_what_a_set_would_in_as_few_ranges_as_can_be(
        self, both: tuple[Gaps, set[int]]
    ) -> None:
        gaps, plain = both

        assert positions(gaps) == plain
        assert {each for each in range(50) if each in gaps} == plain
        assert bool(gaps) == bool(plain)

    @given(changes(), POSITIONS)
    def test_a_part_is_what_lies_at_or_below_and_leaves_the_whole_alone(
        self, both: tuple[Gaps, set[int]], position: int
    ) -> None:
        gaps, plain = both

        part = gaps.up_to(position)
        assert positions(part) == {each for each in plain if each <= position}

        part.add(1, 100)
        assert positions(gaps) == plain

    def test_a_part_ends_in_the_middle_of_a_range(self) -> None:
        gaps = Gaps([(1, 2), (4, 7)])

        assert list(gaps.up_to(4)) == [(1, 2), (4, 4)]
        assert list(gaps.up_to(6)) == [(1, 2), (4, 6)]

    @given(changes())
    def test_a_copy_goes_its_own_way(self, both: tuple[Gaps, set[int]]) -> None:
        gaps, plain = both

        twin = gaps.copy()
        assert twin == gaps

        twin.add(100, 200)
        assert twin != gaps
        assert positions(gaps) == plain

    @given(st.sets(POSITIONS, min_size=1))
    def test_the_first_is_the_lowest(self, plain: set[int]) -> None:
        assert Gaps((each, each) for each in plain).first == min(plain)

    @given(changes(), changes())
    def test_two_are_equal_when_they_hold_the_same(
        self, one: tuple[Gaps, set[int]], other: tuple[Gaps, set[int]]
    ) -> None:
        assert (one[0] == other[0]) == (one[1] == other[1])
        assert one[0] == Gaps(one[0])

    @given(st.permutations([(1, 3), (4, 4), (6, 9), (8, 12), (20, 20)]))
    def test_the_order_of_adding_does_not_matter(self, ranges: list[tuple[int, int]]) -> None:
        assert list(Gaps(ranges)) == [(1, 4), (6, 12), (20, 20)]


class TestStored:
    @given(changes())
    def test_it_comes_back_as_it_was_written(self, both: tuple[Gaps, set[int]]) -> None:
        gaps, _ = both

        assert Gaps.parse(gaps.dump()) == gaps
        assert [tuple(each) for each in json.loads(gaps.dump())] == list(gaps)

    def test_it_reads_what_postgresql_makes_of_it(self) -> None:
        assert Gaps.parse("[[1, 3], [5, 5]]") == Gaps([(1, 3), (5, 5)])
        assert Gaps.parse("[]") == Gaps()

    def test_nothing_is_an_empty_list(self) -> None:
        assert Gaps().dump() == "[]"

    def test_the_highest_id_there_is_can_be_in_it(self) -> None:
        gaps = Gaps([(BIGINT - 1, BIGINT)])

        assert Gaps.parse(gaps.dump()) == gaps
        assert BIGINT in gaps


class TestSize:
    def test_a_transaction_that_left_very_many_ids_unused_is_one_range(self) -> None:
        gaps = Gaps([(1, 10**9)])

        gaps.remove(500)

        assert gaps.dump() == "[[1,499],[501,1000000000]]"

    def test_reading_over_it_while_it_changes_shows_it_as_it_was(self) -> None:
        gaps = Gaps([(1, 2), (5, 6)])

        for low, high in gaps:
            gaps.remove(low)
            gaps.remove(high)

        assert not gaps

    def test_it_can_not_be_a_key_of_a_dict(self) -> None:
        with pytest.raises(TypeError):
            hash(Gaps())

    def test_it_shows_its_ranges(self) -> None:
        assert repr(Gaps([(1, 2)])) == "Gaps([(1, 2)])"
        assert Gaps() != "[]"


@given(st.sets(POSITIONS))
def test_made_of_single_positions_it_is_the_same_set(ids: set[int]) -> None:
    assert positions(Gaps.of(sorted(ids))) == ids


@pytest.mark.parametrize("ids", [[1, 3], [1, 4], [1, 2, 5], [1, 2, 4, 5, 9]], ids=str)
def test_single_positions_that_are_apart_are_not_joined(ids: list[int]) -> None:
    assert positions(Gaps.of(ids)) == set(ids)
