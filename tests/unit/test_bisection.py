"""Narrowing down to the events that fail: all of them, and nobody else."""

from __future__ import annotations

from math import ceil, log2

from hypothesis import given
from hypothesis import strategies as st

from sa_outbox.consumer.fault.bisection import Bisection

IDS = st.lists(st.integers(1, 10**6), max_size=200, unique=True).map(sorted)


def searched(ids: list[int], bad: set[int], *, enough: int = 2) -> tuple[Bisection, int]:
    search, tries = Bisection(ids), 0
    while (group := search.group) is not None:
        tries += 1
        assert tries < 10_000, "it never ends"
        if bad & set(group):
            search.failed(enough)
        else:
            search.passed()
    return search, tries


@given(IDS, st.data(), st.integers(1, 3))
def test_exactly_those_that_fail_are_found_in_their_order(
    ids: list[int], data: st.DataObject, enough: int
) -> None:
    bad = set(data.draw(st.lists(st.sampled_from(ids)))) if ids else set[int]()

    search, _ = searched(ids, bad, enough=enough)

    assert search.culprits == sorted(bad)


@given(IDS.filter(bool), st.data())
def test_one_of_many_takes_a_few_tries(ids: list[int], data: st.DataObject) -> None:
    bad = {data.draw(st.sampled_from(ids))}

    _, tries = searched(ids, bad)

    assert tries <= 2 * ceil(log2(len(ids)) if len(ids) > 1 else 0) + 2


@given(IDS, st.data())
def test_what_fails_only_together_is_nobody_s_fault(ids: list[int], data: st.DataObject) -> None:
    """Too much for the memory, say."""
    most = data.draw(st.integers(1, 50))
    search = Bisection(ids)
    while (group := search.group) is not None:
        if len(group) > most:
            search.failed(2)
        else:
            search.passed()

    assert search.culprits == []


@given(IDS, st.data())
def test_a_group_that_was_tried_in_part_is_tried_to_its_end(
    ids: list[int], data: st.DataObject
) -> None:
    """A read ends when it has enough bytes."""
    bad = set(data.draw(st.lists(st.sampled_from(ids)))) if ids else set[int]()
    search = Bisection(ids)
    while (group := search.group) is not None:
        count = data.draw(st.integers(1, len(group)))
        if bad & set(group):
            search.failed(1)
        else:
            search.passed(count)

    assert search.culprits == sorted(bad)


def test_one_that_fails_once_and_then_passes_is_innocent() -> None:
    search = Bisection([7])
    search.failed(2)
    search.passed()

    assert search.group is None
    assert search.culprits == []


def test_failures_of_one_are_not_added_to_the_next() -> None:
    search = Bisection([7, 8])
    search.failed(2)
    search.failed(2)
    search.passed()
    search.failed(2)
    search.passed()

    assert search.culprits == []
