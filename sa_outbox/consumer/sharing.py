"""Sharing listeners and their partitions among processes. Pure; ``leasing.py`` asks and acts.

Every process looks at the same rows and comes to the same result by itself: nobody leads.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

Key: TypeAlias = tuple[str, int]
"""A listener, and one of its partitions."""


@dataclass(frozen=True, slots=True)
class Unit:
    """What is held by one process at a time."""

    key: Key
    owner: str | None
    """None: free."""
    consumers: frozenset[str]
    """Those who work for this listener."""
    is_claimable: bool = True
    """Not, when it stands at a barrier."""


@dataclass(frozen=True, slots=True)
class Shares:
    claim: list[Key] = field(default_factory=list)
    hand_over: list[Key] = field(default_factory=list)


def targets(held: Mapping[str, int], free: int, beside: Mapping[str, int]) -> dict[str, int]:
    """How many each should have: as few as possible change hands until none has two more than
    another, with what each has *beside* them."""
    result = dict(held)

    def load(owner: str) -> tuple[int, str]:
        return result[owner] + beside.get(owner, 0), owner

    for _ in range(free):
        result[min(result, key=load)] += 1
    while True:
        poorest = min(result, key=load)
        richest = max((owner for owner in result if result[owner]), key=load, default=poorest)
        if load(richest)[0] - load(poorest)[0] < 2:
            return result
        result[richest] -= 1
        result[poorest] += 1


def share(
    units: Iterable[Unit],
    me: str,
    names: Collection[str],
    *,
    overdue: Collection[Key] = (),
    keep: Collection[Key] = (),
) -> Shares:
    """What *me*, who works for the listeners *names*, should claim and hand over.

    *overdue* has been free for so long that whoever should have claimed it will not; *keep* is not
    handed over. Who has not announced itself claims whatever is free, and hands nothing over.
    """
    shares = Shares()
    groups: dict[frozenset[str], list[Unit]] = {}
    for unit in units:
        if unit.consumers:
            groups.setdefault(unit.consumers, []).append(unit)
        is_free = unit.owner is None and unit.is_claimable
        if is_free and me not in unit.consumers and unit.key[0] in names:
            shares.claim.append(unit.key)
    # Those that the same processes work for are shared as a whole: then also a few listeners of
    # one partition each are spread. Those for which there is the least choice come first.
    beside: dict[str, int] = {}
    for consumers, group in sorted(
        groups.items(), key=lambda each: (len(each[0]), sorted(each[0]))
    ):
        held = dict.fromkeys(sorted(consumers), 0)
        free = 0
        for unit in group:
            if unit.owner is None:
                free += 1
            elif unit.owner in held:
                held[unit.owner] += 1
        wanted = targets(held, free, beside)
        for owner, count in wanted.items():
            beside[owner] = beside.get(owner, 0) + count
        if me not in consumers:
            continue
        difference = wanted[me] - held[me]
        mine = [unit.key for unit in group if unit.owner == me]
        if difference < 0:
            movable = [key for key in mine if key not in keep]
            shares.hand_over.extend(_most_of_one(movable, -difference))
            continue
        claimable = [unit.key for unit in group if unit.owner is None and unit.is_claimable]
        chosen = _fewest_of_one(claimable, mine, difference)
        shares.claim.extend(chosen)
        shares.claim.extend(key for key in claimable if key in overdue and key not in chosen)
    return shares


def _most_of_one(mine: Sequence[Key], count: int) -> list[Key]:
    """So many of *mine*, each time one of the listener that has the most of them."""
    left = list(mine)
    chosen: list[Key] = []
    while left and len(chosen) < count:
        names = [name for name, _ in left]
        key = max(left, key=lambda each: (names.count(each[0]), each))
        left.remove(key)
        chosen.append(key)
    return chosen


def _fewest_of_one(free: Sequence[Key], mine: Sequence[Key], count: int) -> list[Key]:
    """So many of *free*, each time one of the listener of which there are the fewest so far."""
    left = list(free)
    chosen: list[Key] = []
    while left and len(chosen) < count:
        names = [name for name, _ in (*mine, *chosen)]
        key = min(left, key=lambda each: (names.count(each[0]), each))
        left.remove(key)
        chosen.append(key)
    return chosen
