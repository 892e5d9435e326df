"""Lanes that hand out no more than a drain with a limit may begin. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterable

    from ..handler.delivery import InFlight
    from ..shared.tally import Tally
    from ..transaction.group import Joins
    from .limits import AnyLanes


class RationedLanes:
    """The lanes of one loop; *tally* is shared by all loops of the drain."""

    def __init__(self, lanes: AnyLanes, tally: Tally, listener: str) -> None:
        self._lanes = lanes
        self._tally = tally
        self._listener = listener
        self.is_one: bool = lanes.is_one
        self.free: Callable[[object], None] = lanes.free
        self.remove: Callable[[object], list[InFlight]] = lanes.remove

    @property
    def count(self) -> int:
        return self._lanes.count

    @property
    def ready(self) -> int:
        """None when nothing may begin: then what is finished is settled without delay."""
        left = self._left()
        return self._lanes.ready if left is None else min(left, self._lanes.ready)

    @property
    def ready_at(self) -> float | None:
        return self._lanes.ready_at

    def take(self) -> InFlight | None:
        return self._began(None if self._left() == 0 else self._lanes.take())

    def take_batch(self, most: int) -> list[InFlight]:
        left = self._left()
        items = [] if left == 0 else self._lanes.take_batch(min(most, left or most))
        self._tally.began(self._listener, items)
        return items

    def take_more(self, held: Iterable[object], joins: Joins) -> InFlight | None:
        return self._began(None if self._left() == 0 else self._lanes.take_more(held, joins))

    def has_more(self, held: Iterable[object], joins: Joins) -> bool:
        return self._left() != 0 and self._lanes.has_more(held, joins)

    def put_back(self, items: list[InFlight]) -> None:
        self._tally.put_back(self._listener, items)
        self._lanes.put_back(items)

    def untake(self, items: list[InFlight], held: Container[object]) -> None:
        self._tally.put_back(self._listener, items)
        self._lanes.untake(items, held)

    def _began(self, item: InFlight | None) -> InFlight | None:
        if item is not None:
            self._tally.began(self._listener, (item,))
        return item

    def _left(self) -> int | None:
        left = self._tally.left
        if left == 0:
            self._tally.refused()
        return left


def rationed(lanes: AnyLanes, tally: Tally | None, listener: str) -> AnyLanes | RationedLanes:
    """*lanes*, of which a drain with a limit may hand out only so much."""
    return lanes if tally is None else RationedLanes(lanes, tally, listener)
