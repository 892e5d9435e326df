"""Claiming events of a queue: which ones are next, and the one transaction that makes them ours.

Invariant: an event of the log is in exactly one place: unclaimed (above the queue's cursor, or in
its gaps), in a range, in a delivery's row, or settled. Whoever moves it from the first to another
holds the lock of the queue's row. So a claim may choose ANY events that are visible and unclaimed;
what it leaves below the new cursor stays in the gaps, and so do the holes of the log.

A claim that was sent is waited for: no range may be leased to a process that does not know of it.
What a claim stands on is read before it, or remembered: ``remembered.py``.
"""

from __future__ import annotations

from time import monotonic
from typing import TYPE_CHECKING, Any

from sa_outbox.event.row import ID

from ..connection.connections import Steady
from ..connection.errors import Doubted
from ..lease.lease import ClaimShield, Lease, give_back
from ..loop.reader import Reader
from ..position.gaps import Gaps
from ..position.progress import Progress
from .durability import ClaimDurability
from .remembered import Remembered
from .selection import ClaimedRange, Idle, Selection, is_all_claimed
from .urgency import Chooser

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sa_outbox.declare.listener import Listener

    from ..connection.connections import Asked
    from ..shared.context import ConsumerContext
    from .selection import Again

CONTENDED_SECONDS = 1.0
"""Seconds for which events are claimed under the lock, after two processes wanted the same ones."""
LOWEST = -(2**15)


class RangeClaimer:
    """Claims for one queue, in one process."""

    def __init__(self, context: ConsumerContext, listener: Listener, owner: str) -> None:
        self._context = context
        self._listener = listener
        self._reader = Reader(listener, context.tables, refusals=context.refusals[listener.name])
        self._chooser = Chooser(context, listener, self._reader)
        self._duration = context.settings.lease_duration.total_seconds()
        self._claim = {"name": listener.name, "owner": owner, "duration": self._duration}
        self._known = Remembered()
        self._turn = 0
        self.is_paused: bool = False
        """When it was looked at last."""
        self._crowded_until = 0.0
        self._sets_aside = False
        """Some of the events that were read last are for later."""
        self._steady = self._new_steady()
        self.shield: ClaimShield = ClaimShield()
        self._durability = ClaimDurability(context.horizon)

    @property
    def pass_at(self) -> float:
        """When to call ``save_passed``."""
        return self._known.pass_at

    def has_read(self, number: int) -> bool:
        """Whether everything visible at snapshot *number* is claimed, by any process."""
        return self._known.read_snapshot >= number

    def rests_at(self, number: int) -> int | None:
        """The id above which an event can be offered, if nothing was left at snapshot *number* and
        that is the last one."""
        known = self._known
        rest = None if self.is_paused else known.rests_at
        return rest.read_to if rest is not None and 0 < number == known.read_snapshot else None

    async def offered(self, rows: Sequence[Any]) -> ClaimedRange | None:
        """Claim events of our types among *rows*: the first above ``rests_at``, without a snapshot.

        None if an id is missing among them, if one is for later, or if somebody has moved the
        queue since: then a snapshot and the read after it decide. If the queue's row has not
        changed, everything up to ``rests_at`` is claimed, or of another type.
        """
        now, self._known.rests_at = self._known.rests_at, None
        if now is None:
            return None
        context = self._context
        steady = self._new_steady()
        chosen, snapshot = self._reader.take(rows, now, len(rows)), context.horizon.latest
        selection = Selection(now, chosen, now.read_to, now.holes, snapshot)
        if selection.later or not selection.now:
            return None
        with self.shield.open():
            taken = await self._take(steady, selection)
        if taken is not None:
            self._known.pass_nothing()
            self._known.note(selection, taken)
            self._known.rest(selection, taken.moved_to)
        return taken

    async def save_passed(self) -> None:
        """Move the cursor over events of other types, and forget holes that are final; not if
        somebody has moved it since."""
        selection, self._known.state = self._known.passed, None
        if selection is None:
            return
        self._known.pass_nothing()
        pass_over = self._context.statements.ranges.pass_over
        moved = {"name": self._listener.name, **selection.moved}
        rows = await self._new_steady().rows(pass_over, **moved)
        if rows and self._known.rests_at is not None:
            self._known.rest(selection, rows[0]["revision"])

    def forget(self) -> None:
        """Something has changed: read the state before the next claim."""
        self._known.state = None

    def doubt(self) -> None:
        """Forget all that the next claim could stand on: the database may have lost it."""
        self._known = Remembered()
        self._chooser.forget()

    def _new_steady(self) -> Steady:
        return Steady(self._context.connections, self._context.continuity)

    async def next(self, held: list[int], size: int) -> ClaimedRange | Idle | Again:
        """Claim what is next, up to *size* events; *held* are our ranges."""
        while True:
            state, is_remembered = await self._look(held)
            is_withheld = self._listener.name in self._context.withheld
            self.is_paused = state is None or state["paused"] or is_withheld
            if state is None or self.is_paused:
                return Idle(self._context.settings.poll_interval.total_seconds())
            taken = await self._take_turn(state, held, size)
            if taken is not None:
                return taken
            if not is_remembered:
                return Idle.until_due(state)
            self._known.state = None  # its times are old

    async def _look(self, held: list[int]) -> tuple[dict[str, Any] | None, bool]:
        """Where the queue stands; None: somebody has deleted its row. And whether that is
        remembered: as it must be if nobody but us has claimed anything since. If somebody has, the
        next claim finds another revision, and claims nothing."""
        now = monotonic()
        if self._known.has_state(now):
            return self._known.state, True
        self._steady = self._new_steady()
        state = self._context.statements.ranges.state
        rows = await self._steady.rows(state, name=self._listener.name, held=held)
        if rows and rows[0]["token"] != self._known.token:
            # An operator has moved the queue: what was read may be unclaimed again.
            self._known = Remembered(rows[0]["token"])
        self._known.asked_at = now
        self._known.state = dict(rows[0]) if rows else None
        return self._known.state, False

    async def _take_turn(
        self, state: dict[str, Any], held: list[int], size: int
    ) -> ClaimedRange | Again | None:
        """Of four turns two go by priority, one to the delivery that has been due for longest, and
        one to the log, so that nothing waits forever."""
        taken: ClaimedRange | Again | None = None
        if state["free_in"] is not None and state["free_in"] <= 0:
            taken = await self._abandoned(held)
            if taken is not None:
                return taken
        is_due = state["due_in"] is not None and state["due_in"] <= 0
        self._turn += 1
        turn = self._turn % 4
        if is_due and turn == 3:
            taken = await self._due(size, least=LOWEST, by_age=True)
        elif is_due and turn != 0:
            taken = await self._due(size, least=0)
        if taken is None:
            taken = await self._new(state, size)
        if taken is None and is_due:
            taken = await self._due(size, least=LOWEST)
        return taken

    async def _abandoned(self, held: list[int]) -> ClaimedRange | None:
        """A range that another process has left. None of those *held* here: one whose lease has
        expired would be worked on twice, until the first loop notices."""
        began, self._known.state = monotonic(), None
        claim = self._context.statements.ranges.claim
        with self.shield.open():
            rows = await self._context.connections.rows(claim, **self._claim, held=held, limit=1)
        return self._leased(rows, began=began)

    async def _due(self, size: int, *, least: int, by_age: bool = False) -> ClaimedRange | None:
        """Deliveries that are due: retries, scheduled events, those of low priority."""
        began, self._known.state = monotonic(), None
        take_due = self._context.statements.ranges.take_due
        chosen = {**self._claim, "limit": size, "by_age": by_age, "least": least}
        with self.shield.open():
            rows = await self._reader.reads.carefully(
                self._context.connections, take_due, "due", **chosen
            )
        if not rows:
            return None
        lease = Lease(rows[0], duration=self._duration, began=began)
        return ClaimedRange(lease, [row for row in rows if row[ID] is not None])

    async def _new(self, state: Any, size: int) -> ClaimedRange | Again | None:
        """Events of the log; None if there are none. ``"again"``: another process was faster, or
        all of them are for later.

        Usually without a lock: the revision shows whether another process came in between, and then
        nothing is claimed. After that has happened, wait for the lock instead: a wasted read costs
        more than a wait.
        """
        latest, known = self._context.horizon.latest, self._known
        if latest.number <= known.read_snapshot:
            return None  # nobody has added anything
        is_ordinary = not (self._chooser.is_behind or self._sets_aside)
        if not self._steady.holds:
            raise Doubted  # *state* is older than that snapshot
        if is_ordinary and is_all_claimed(state, latest.ceiling):  # by us: it was offered
            known.read_snapshot = latest.number
            known.rests_at = Progress(state["position"], revision=state["revision"])
            return None
        connections = self._context.connections
        if monotonic() >= self._crowded_until and not self._sets_aside:
            selection = await self._chooser.choose(self._steady, state, size, aside=False)
            if not selection.later:
                with self.shield.open():
                    taken = await self._take(self._steady, selection)
                return self._took(selection, taken)
            self._sets_aside = True
        with self.shield.open(shield=False) as scope:
            async with connections.connection() as connection, connection.transaction():
                lock = self._context.statements.ranges.lock
                name, patience = self._listener.name, f"{self._duration * 1000:.0f}ms"
                rows = await connection.rows(lock, name=name, patience=patience)
                if not rows or rows[0]["paused"] or not self._steady.holds:
                    return None
                selection = await self._chooser.choose(
                    connection, rows[0], size, aside=self._sets_aside
                )
                self._sets_aside = bool(selection.later)
                scope.shield = True
                await self._chooser.set_aside(connection, selection)
                taken = await self._take(connection, selection)
        result = self._took(selection, taken)
        if not self._steady.holds:
            self.doubt()
        return result

    def _took(
        self, selection: Selection, taken: ClaimedRange | None
    ) -> ClaimedRange | Again | None:
        now, is_behind = monotonic(), self._chooser.is_behind
        self._known.claimed(selection, taken, now=now, is_behind=is_behind)
        if selection.now and taken is None:
            self._crowded_until = now + CONTENDED_SECONDS
            return "again"
        return "again" if taken is None and (selection.later or is_behind) else taken

    async def _take(self, asked: Asked, selection: Selection) -> ClaimedRange | None:
        statements, began = self._context.statements.ranges, monotonic()
        moved = {**self._claim, **selection.moved}
        if selection.now:
            ids = sorted([row[ID] for row in selection.now])
            durable = bool(selection.later) or self._durability.is_needed(ids[0], ids[-1])
            moved |= {"upper": ids[-1], "taken": Gaps.of(ids).dump(), "durable": durable}
            try:
                rows = await asked.rows(statements.take, **moved)
            except Doubted as doubted:
                await give_back(self._context.connections, statements.release, doubted.answer)
                raise
            return self._leased(rows, began=began, new=selection.now)
        if selection.is_passed_over:
            await asked.rows(statements.pass_over, **moved)
        return None

    def _leased(
        self, leases: Sequence[Any], *, began: float, new: Sequence[Any] | None = None
    ) -> ClaimedRange | None:
        if not leases:
            return None
        lease = Lease(leases[0], duration=self._duration, began=began)
        return ClaimedRange(lease, new, 0 if new is None else leases[0]["moved_to"])
