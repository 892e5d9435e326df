"""Who should hold what: each process finds it out alone, and all find the same."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from sa_outbox.consumer.lease.shares import Claimable, Key, Shares, share, targets

ALL = ("a", "b", "c", "d")


def units(holders: dict[Key, str | None], *consumers: str) -> list[Claimable]:
    return [Claimable(key, owner, frozenset(consumers)) for key, owner in holders.items()]


def partitions(*owners: str | None, name: str = "billing") -> dict[Key, str | None]:
    return {(name, number): owner for number, owner in enumerate(owners)}


def shares(found: list[Claimable], me: str) -> Shares:
    return share(found, me, {unit.key[0] for unit in found})


def test_one_process_claims_everything() -> None:
    assert len(shares(units(partitions(None, None, None), "a"), "a").claim) == 3


def test_who_comes_first_hands_half_over_to_the_second() -> None:
    found = units(partitions("a", "a", "a", "a"), "a", "b")

    assert shares(found, "a").hand_over == [("billing", 2), ("billing", 3)]
    assert shares(found, "b") == Shares()


def test_the_third_gets_its_share_too() -> None:
    found = units(partitions("a", "a", "b", "b"), "a", "b", "c")

    given_up = [shares(found, owner).hand_over for owner in ("a", "b", "c")]

    assert sorted(len(each) for each in given_up) == [0, 0, 1]


def test_one_more_than_another_is_fair_and_stays_where_it_is() -> None:
    found = units(partitions("a", "a", "b"), "a", "b")

    assert shares(found, "a") == shares(found, "b") == Shares()


def test_listeners_of_one_partition_are_spread_as_well() -> None:
    names: dict[Key, str | None] = {(name, 0): "a" for name in ("w", "x", "y", "z")}

    assert len(shares(units(names, "a", "b"), "a").hand_over) == 2


def test_each_listener_is_spread_not_one_given_away_whole() -> None:
    both = partitions("a", "a", name="x") | partitions("a", "a", name="y")

    assert sorted(shares(units(both, "a", "b"), "a").hand_over) == [("x", 1), ("y", 1)]


def test_of_every_listener_a_third_process_has_some() -> None:
    found = units(
        partitions("a", "a", "b", "b", name="x") | partitions("a", "a", "b", "b", name="y"),
        "a",
        "b",
        "c",
    )

    given_up = [key for owner in ("a", "b") for key in shares(found, owner).hand_over]

    assert {name for name, _ in given_up} == {"x", "y"}


def test_listeners_that_are_shared_evenly_stay_where_they_are() -> None:
    names: dict[Key, str | None] = {("v", 0): "a", ("w", 0): "a", ("x", 0): "b", ("y", 0): "b"}
    found = units(names, "a", "b")

    assert shares(found, "a") == shares(found, "b") == Shares()


def test_what_others_alone_can_do_counts_for_their_share() -> None:
    found = [
        Claimable(("x", 0), "a", frozenset({"a", "b"})),
        Claimable(("y", 0), "a", frozenset({"a", "b"})),
        Claimable(("p", 0), "b", frozenset({"b"})),
        Claimable(("q", 0), "b", frozenset({"b"})),
    ]

    assert shares(found, "a") == shares(found, "b") == Shares()


def test_who_has_not_announced_itself_claims_what_is_free_of_its_listeners() -> None:
    found = units(partitions("a", None, None), "a", "b") + units(
        partitions(None, name="not ours"), "a"
    )

    assert share(found, "me", {"billing"}).claim == [("billing", 1), ("billing", 2)]


def test_what_nobody_claims_is_anybodys_after_a_while() -> None:
    found = units(partitions("b", None), "a", "b")

    assert shares(found, "b").claim == []
    assert share(found, "b", {"billing"}, overdue=[("billing", 1)]).claim == [("billing", 1)]


def test_what_was_claimed_like_that_is_kept_for_a_while() -> None:
    found = units(partitions("b", "b"), "a", "b")

    assert share(found, "b", {"billing"}, keep=[("billing", 1)]).hand_over == [("billing", 0)]


def test_nobody_claims_what_stands_at_a_barrier() -> None:
    unit = Claimable(("billing", 0), None, frozenset({"a"}), is_claimable=False)

    assert shares([unit], "a") == Shares()


@given(
    held=st.dictionaries(st.sampled_from(ALL), st.integers(0, 20), min_size=1),
    free=st.integers(0, 20),
    beside=st.dictionaries(st.sampled_from(ALL), st.integers(0, 5)),
)
def test_nobody_should_have_two_more_than_another_unless_it_can_give_none(
    held: dict[str, int], free: int, beside: dict[str, int]
) -> None:
    found = targets(held, free, beside)

    load = {owner: count + beside.get(owner, 0) for owner, count in found.items()}
    giving = [load[owner] for owner in found if found[owner]]
    assert sum(found.values()) == sum(held.values()) + free
    assert not giving or max(giving) - min(load.values()) <= 1


@given(
    owners=st.lists(st.none() | st.sampled_from([*ALL, "dead"]), max_size=24),
    consumers=st.sets(st.sampled_from(ALL), min_size=1),
)
def test_they_come_to_rest_with_fair_shares_and_nobody_is_left_out(
    owners: list[str | None], consumers: set[str]
) -> None:
    holders: dict[Key, str | None] = {
        (f"l{number % 3}", number // 3): None if owner == "dead" else owner
        for number, owner in enumerate(owners)
        if owner is None or owner == "dead" or owner in consumers
    }
    for _ in range(30):
        # All act on what all have seen; of two who claim one, the first has it.
        seen = units(dict(holders), *consumers)
        changes = [(owner, shares(seen, owner)) for owner in sorted(consumers)]
        for owner, each in changes:
            for key in each.hand_over:
                holders[key] = None
            for key in each.claim:
                holders[key] = holders[key] or owner
        if not any(each.claim or each.hand_over for _, each in changes):
            break
    else:
        raise AssertionError(f"they never come to rest: {holders}")
    counts = [list(holders.values()).count(owner) for owner in consumers]
    assert None not in holders.values()
    assert max(counts) - min(counts) <= 1
