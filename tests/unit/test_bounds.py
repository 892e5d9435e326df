"""Which partitions of the log there are, and which are missing."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sa_outbox.consumer.position.bounds import HIGHEST, Bounds, Layout, is_ours, reach


def layout(*bounds: tuple[str, int, int]) -> Layout:
    return Layout(tuple(Bounds(*each) for each in bounds), "outbox_rest", ())


class TestReading:
    def test_bounds_as_postgresql_writes_them(self) -> None:
        found = Layout.of(
            [
                ("outbox_rest", "DEFAULT", True),
                ("outbox_p1", "FOR VALUES FROM ('10') TO ('20')", True),
                ("outbox_p0", "FOR VALUES FROM (MINVALUE) TO ('10')", True),
                ("last", "FOR VALUES FROM ('20') TO (MAXVALUE)", True),
                ("outbox_p9", "CHECK (((id >= 90) AND (id < 100)))", False),
                ("outbox_p8", "CHECK (((id >= '5000000000'::bigint) AND (id < 100)))", False),
                ("outbox_p7", None, False),
            ]
        )

        assert found.partitions == (
            Bounds("outbox_p0", 0, 10),
            Bounds("outbox_p1", 10, 20),
            Bounds("last", 20, HIGHEST),
        )
        assert found.rest == "outbox_rest"
        assert found.filling == (Bounds("outbox_p9", 90, 100), Bounds("outbox_p8", 5000000000, 100))
        assert found.strangers == {"outbox_p7"}

    @pytest.mark.parametrize("bounds", ["FOR VALUES IN (1)", "", "DEFAULTS"])
    def test_what_is_not_understood_is_refused(self, bounds: str) -> None:
        with pytest.raises(ValueError, match="bounds of outbox_p0"):
            Layout.of([("outbox_p0", bounds, True)])

    @pytest.mark.parametrize("name", ["outbox_rest", "outbox_p", "outbox_p1x", "my_outbox_p1"])
    def test_a_name_that_we_would_not_give_is_not_ours(self, name: str) -> None:
        assert not is_ours(name, "outbox")
        assert is_ours("outbox_p12", "outbox")


class TestMissing:
    def test_none_while_there_are_enough(self) -> None:
        assert (
            layout(("outbox_p0", 0, 10), ("outbox_p1", 10, 20)).missing(3, 20, 10, "outbox") == []
        )

    def test_a_name_that_means_another_one_is_not_given_twice(self) -> None:
        found = layout(("outbox_p1", 10, 20)).missing(25, 60, 20, "outbox")

        assert found == [Bounds("outbox_p20", 20, 40), Bounds("outbox_p2", 40, 60)]

    @given(
        st.lists(st.integers(0, 200), unique=True, max_size=8),
        st.integers(0, 150),
        st.integers(1, 60),
        st.integers(1, 40),
    )
    def test_with_them_every_id_has_exactly_one(
        self, edges: list[int], low: int, span: int, size: int
    ) -> None:
        edges.sort()
        pairs = list(zip(edges[::2], edges[1::2], strict=False))
        there = layout(*((f"x{low}", low, high) for low, high in pairs))

        made = there.missing(low, low + span, size, "outbox")

        everything = [*there.partitions, *made]
        assert len({each.name for each in everything}) == len(everything)
        for each in range(low, low + span):
            assert sum(one.low <= each < one.high for one in everything) == 1, each
        ordered = sorted(everything, key=lambda one: one.low)
        assert all(a.high <= b.low for a, b in itertools.pairwise(ordered))
        assert all(one.high - one.low <= size for one in made)


@pytest.mark.parametrize(("rate", "expected"), [(0.0, 120), (0.005, 120), (1.0, 3700)])
def test_it_reaches_two_partitions_ahead_or_an_hour(rate: float, expected: int) -> None:
    assert reach(100, 10, rate) == expected
