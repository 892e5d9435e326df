"""Share listeners and their partitions among processes. Pure; ``services/lease_coordinator.py``
queries and acts.

Every process reads the same rows and computes the same result: there is no leader.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

Key: TypeAlias = tuple[str, int]
"""A listener, and one of its partitions."""


@dataclass(frozen=True, slots=True)
class Claimable:
    """Something held by one process at a time."""

    key: Key
    owner: str | None
    """None: free."""
    consumers: frozenset[str]
    """The processes that work on this listener."""
    is_claimable: bool = True
    """False while it is at a barrier."""


@dataclass(frozen=True, slots=True)
class Shares:
    claim: list[Key] = field(default_factory=list)
    hand_over: list[Key] = field(default_factory=list)


def targets(held: Mapping[str, int], free: int, beside: Mapping[str, int]) -> dict[str, int]:
    """How many each should have: as few as possible change hands until none has two more than
    another, including what each has *beside* them."""
    result = dict(held)

    def load(owner: str) -> tuple[int, str]:
        return result[owner] + beside.get(owner, 0), owner

    for _ in range(free if result else 0):
        result[min(result, key=load)] += 1
    while result:
        poorest = min(result, key=load)
        richest = max((owner for owner in result if result[owner]), key=load, default=poorest)
        if load(richest)[0] - load(poorest)[0] < 2:
            break
        result[richest] -= 1
        result[poorest] += 1
    return result


def share(
    units: Iterable[Claimable],
    me: str,
    names: Collection[str],
    *,
    overdue: Collection[Key] = (),
    keep: Collection[Key] = (),
) -> Shares:
    """What *me*, who works on the listeners *names*, should claim and hand over.

    *overdue* has been free so long that whoever should have claimed it will not; *keep* is not
    handed over. A process that has not announced itself claims whatever is free, and hands nothing
    over.
    """
    shares = Shares()
    beside: dict[str, int] = {}
    for group in _groups(units):
        consumers = group[0].consumers
        held = dict.fromkeys(sorted(consumers), 0)
        for unit in group:
            if unit.owner in held:
                held[unit.owner] += 1
        free = [unit for unit in group if unit.owner is None]
        claimable = [unit.key for unit in free if unit.is_claimable and unit.key[0] in names]
        wanted = targets(held, len(free), beside)
        for owner, count in wanted.items():
            beside[owner] = beside.get(owner, 0) + count
        if me not in consumers:
            shares.claim.extend(claimable)
            continue
        more = wanted[me] - held[me]
        if more < 0:
            movable = [unit.key for unit in group if unit.owner == me and unit.key not in keep]
            shares.hand_over.extend(movable[more:])
        else:
            shares.claim.extend(claimable[:more])
            shares.claim.extend(key for key in claimable[more:] if key in overdue)
    return shares


def _groups(units: Iterable[Claimable]) -> list[list[Claimable]]:
    """What is shared as a whole: the partitions of a listener, so that each process has some of
    them; and, last, all single-partition listeners with the same processes, to even out the shares.
    Groups with the least choice come first."""
    by_name: dict[str, list[Claimable]] = {}
    for unit in sorted(units, key=lambda each: each.key):
        by_name.setdefault(unit.key[0], []).append(unit)
    found: dict[tuple[int, tuple[str, ...], bool, str], list[Claimable]] = {}
    for name, parts in by_name.items():
        consumers = tuple(sorted(parts[0].consumers))
        alone = len(parts) == 1
        order = len(consumers), consumers, alone, "" if alone else name
        found.setdefault(order, []).extend(parts)
    return [found[order] for order in sorted(found)]
