"""The orders that a listener can keep: ``order="total"``, ``"key"`` and ``"none"``.

Code that depends on the order asks the mode a question, never its name. So a mode that combines
known answers is one entry in ``ORDER_MODES``; only an answer that no mode has given yet needs code
where it matters.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, TypeAlias, get_args

from ..errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterable

Order: TypeAlias = Literal["total", "key", "none"]
ORDERS: Final[tuple[Order, ...]] = get_args(Order)

Lane: TypeAlias = Callable[[str | None, int], object]
"""From an event's key, and a number of its own, to its lane."""


def one_lane(_key: str | None, _own: int) -> object:
    return "all"


def lane_of_its_key(key: str | None, own: int) -> object:
    return own if key is None else key


def lane_of_its_own(_key: str | None, own: int) -> object:
    return own


@dataclass(frozen=True, kw_only=True, slots=True)
class OrderMode:
    """What an order means, wherever it makes a difference."""

    name: Order
    lane: Lane
    """Events of one lane are attempted one after the other, in log order."""
    after_failure: Literal["hold", "park", "schedule"]
    """Until its next attempt, a failed event holds up its lane (which must be the only one: its
    errors are in the cursor's row); is parked, with later events of its key behind it; or waits by
    itself."""
    waits_at_holes: bool = False
    """While an event's transaction is open, later events wait for it, up to ``gap_wait``."""
    is_divisible: bool = False
    """It can have several partitions, each with a share of the keys."""
    is_queue: bool = False
    """Its consumers claim ranges of events and work side by side, instead of one holder for each
    cursor. So starts can be limited and deliveries cancelled: nothing waits for its turn."""

    @property
    def is_one_at_a_time(self) -> bool:
        return self.lane is one_lane

    @property
    def is_unordered(self) -> bool:
        """No event waits for another."""
        return self.lane is lane_of_its_own


ORDER_MODES: Final[dict[str, OrderMode]] = {
    each.name: each
    for each in (
        OrderMode(name="total", lane=one_lane, after_failure="hold", waits_at_holes=True),
        OrderMode(name="key", lane=lane_of_its_key, after_failure="park", is_divisible=True),
        OrderMode(name="none", lane=lane_of_its_own, after_failure="schedule", is_queue=True),
    )
}
DIVISIBLE: Final[list[Order]] = [each.name for each in ORDER_MODES.values() if each.is_divisible]
QUEUES: Final[list[Order]] = [each.name for each in ORDER_MODES.values() if each.is_queue]


def checked_order(what: str, order: object) -> OrderMode:
    """The mode of an *order* that somebody gave. Raises :class:`ConfigError`."""
    if not isinstance(order, str) or order not in ORDER_MODES:
        raise ConfigError(f"{what} must be {either()}, not {order!r}")
    return ORDER_MODES[order]


def either(orders: Iterable[Order] = ORDERS) -> str:
    """As an error message lists them: ``"total", "key" or "none"``."""
    *others, last = (f'"{each}"' for each in orders)
    return f"{', '.join(others)} or {last}" if others else last
