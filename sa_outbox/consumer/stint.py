"""A range of a queue under its lease: a cursor whose events are all there from the beginning."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .cursor import Cursor
from .intake import Intake, RangeIntake
from .item import Item
from .lanes import LooseLanes
from .turnstile import LimitedLanes

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import anyio

    from sa_outbox.listener import Listener

    from .connections import Query
    from .lease import Lease
    from .shared import Shared
    from .statements import Settling
    from .turnstile import AnyLanes, Turnstile


class Stint(Cursor):
    """Works through one range.

    Invariant: the range's row says which of its events are not settled; each write under its lease
    takes away those that are, in one transaction with what became of them, and the last one
    deletes the row. Whoever takes the range over reads from it what is left.
    """

    def __init__(
        self,
        shared: Shared,
        listener: Listener,
        lease: Lease,
        rows: Sequence[Any] | None,
        *,
        read: Query,
        slots: anyio.Semaphore,
        turnstile: Turnstile | None,
        changed: Callable[[], None],
    ) -> None:
        self._turnstile = turnstile
        super().__init__(shared, listener, lease)
        self.slots = slots
        self._rows = rows
        self._items: list[Item] = []
        self._requested: set[int] = set()
        """Those that are to be cancelled, as far as it was heard before they were read."""
        self._read = read
        self._told = changed

    def _make_lanes(self) -> AnyLanes:
        return LooseLanes() if self._turnstile is None else LimitedLanes(self._turnstile)

    def wake(self) -> None:
        if isinstance(self.lanes, LimitedLanes):
            self.lanes.wake()
        super().wake()

    def _reading(self) -> tuple[Intake | RangeIntake, Settling]:
        return RangeIntake(), self.shared.statements.ranges

    async def run(self) -> None:
        rows = await self._read_again() if self._rows is None else self._rows
        self._rows = None
        self.progress.holds(row[0] for row in rows)
        if not rows:
            await self.settlement.write_off()
            self.lease.is_over = True
            return
        self._items = _items(rows)
        for item in self._items:
            self.lanes.put(item)
        asked = "cancel_requested" in rows[0].keys()  # noqa: SIM118 - no dict
        for row in rows if asked or self._requested else ():
            if (asked and row["cancel_requested"]) or row[0] in self._requested:
                self.request_cancel(row[0])
        self.caution.covers(len(rows))
        # After a crash each one is settled when it has ended: then few are suspects of the next.
        self._enough = 1 if self.lease.crashes else len(rows)
        self._wanted_hands = min(self.listener.concurrency, len(rows))
        await super().run()

    def request_cancel(self, position: int) -> None:
        """Somebody has cancelled that event: one that waits is taken out, one that runs is told."""
        if not self._items:
            self._requested.add(position)
            return
        if position not in self.progress.unsettled:
            return
        item = next(each for each in self._items if each.position == position)
        item.cancel_requested = True
        item.state = item.state or "scheduled"  # it has a row now
        if self.lanes.withdraw(item):
            item.fate, item.failure = "withdraw", None
            self.finish([item])
            return
        for call in self.calls:
            call.request_cancel(position)

    def settled(self, items: Sequence[Item]) -> None:
        super().settled(items)
        if any(item.fate != "done" for item in items):
            self._told()  # a delivery has a row now, and a time
        if not self.progress.unsettled:
            self.lease.is_over = True
            self.stop()

    @property
    def may_have_ended(self) -> bool:
        """Its row is deleted, or is just being deleted: that it is gone does not mean it is lost.
        A write that is under way finds out by itself if it is."""
        is_settled = bool(self._items) and not self.progress.unsettled
        return is_settled or self.settlement.lock.locked()

    async def _rest(self) -> None:
        """Nothing else comes; those in hand are waited for."""

    async def _read_again(self) -> list[Any]:
        """What is left of it, after another process or an outage."""
        gaps = self.lease.gaps
        return await self.shared.connections.rows(
            self._read,
            name=self.lease.listener,
            part=self.lease.part,
            lows=gaps.lows,
            highs=gaps.highs,
        )


def _items(rows: Sequence[Any]) -> list[Item]:
    if "state" not in rows[0].keys():  # noqa: SIM118 - no dict; new events of the log: most
        return [Item(row, row[0]) for row in rows]
    return [Item(row, row[0], attempts=row["attempts"], state=row["state"]) for row in rows]
