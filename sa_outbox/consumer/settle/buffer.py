"""What is finished and not written yet, and writing it under one lock.

Invariant: whoever writes the listener's row holds ``lock`` from the moment it computes the new
state until that is committed, so each saved state follows from the one before.
"""

from __future__ import annotations

import json
from itertools import chain
from time import monotonic
from typing import TYPE_CHECKING, Any

import anyio

from sa_outbox.errors import LeaseLost
from sa_outbox.event.row import ID
from sa_outbox.observe import AlertsSwallowed
from sa_outbox.policy.backoff import Backoff
from sa_outbox.policy.delivery import IllegalMove

from ..connection.errors import is_refusal, is_transient, is_unreachable
from ..fault.refusals import PARTS, condemn, is_unattempted
from .alerts import alerts
from .audit import records
from .crash_notes import CrashNotes
from .execution import run_each
from .writes import Write, insert_record, plan

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ..connection.statements import Settling
    from ..handler.delivery import InFlight
    from ..lease.lease import Lease
    from ..position.progress import Progress, Saved
    from ..shared.context import ConsumerContext

SKIP_SAVE_SECONDS = 3.0
"""Seconds after which a cursor that only passed events of other types is saved: so often at most,
however many come by."""
FIRST_PAUSE_SECONDS, MAX_PAUSE_SECONDS = 0.05, 2.0
"""Seconds between two tries to write, while the database is away."""
MAX_WAIT_SECONDS = 0.1
"""Seconds that a finished event waits to be settled while slow ones of other keys run."""


class SettlementBuffer:
    def __init__(
        self,
        context: ConsumerContext,
        lease: Lease,
        progress: Progress,
        statements: Settling,
        *,
        follow: Callable[[InFlight], list[InFlight]],
        unfollow: Callable[[list[InFlight]], None],
        after: Callable[[Sequence[InFlight]], None],
    ) -> None:
        self.lock: anyio.Lock = anyio.Lock(fast_acquire=True)
        self.notes: CrashNotes = CrashNotes(
            context.connections, statements.suspects, lease, progress, self.lock, {*lease.suspects}
        )
        self.finished: list[InFlight] = []
        self._held = lease.retry_position
        """With order="total": the event whose errors are in the listener's row."""
        self.latest_at: float = 0.0
        """When what is finished is settled at the latest."""
        self.save_at: float | None = None
        """When a cursor that only passed events of other types is saved; None: it has not."""
        self._context = context
        self._statements = statements
        self._lease = lease
        self._progress = progress
        self._follow = follow
        self._unfollow = unfollow
        self._after = after
        self._swallowed = 0  # alerts, in the last try: the answer to its COMMIT may be lost

    def add(self, items: Sequence[InFlight]) -> None:
        if not self.finished:
            self.latest_at = monotonic() + MAX_WAIT_SECONDS
        self.finished.extend(items)

    async def settle(self) -> None:
        """Write what became of all that is finished, in one transaction."""
        async with self.lock:
            items, self.finished = self.finished, []
            if not items:
                return
            settled = await self._write_all(items)
        self._after(settled)

    async def _write_all(self, items: list[InFlight]) -> list[InFlight]:
        """Write the outcomes of *items*, in one transaction; and of what follows behind them.

        If the database refuses that, or a move is illegal, it is because of one of them: each half
        is written for itself, the last is made a dead letter. Returns all that were written.
        """
        followed = {item: self._follow(item) for item in items if item.outcome == "park"}
        written = [*items, *chain.from_iterable(followed.values())]
        try:
            await self._write(written)
        except Exception as error:
            if not (is_refusal(error) or isinstance(error, IllegalMove)):
                raise
            for those in followed.values():
                self._unfollow(those)
            if len(items) == 1:
                await self._give_up(items[0], error)
                return items
            middle = len(items) // 2
            first = await self._write_all(items[:middle])
            return first + await self._write_all(items[middle:])
        return written

    async def _give_up(self, item: InFlight, error: Exception) -> None:
        """The outcome of *item* can't be written: bury it, at last with as little as possible. If
        even that is refused, the event is not to blame."""
        if item.outcome == "hold":  # all of it is in the listener's row, and its lane has it again
            raise error
        item.aside = item.aside or item.outcome in ("behind", "withdraw") or is_unattempted(item)
        condemn(item, error, self._context.redact, ())
        try:
            await self._write([item])
        except Exception as again:
            if not is_refusal(again):
                raise
            condemn(item, again, self._context.redact, PARTS)
            await self._write([item], barely=True)

    async def write_off(self) -> None:
        """Write that nothing of it is left to be handled."""
        async with self.lock:
            await self._write([])

    async def save_in_time(self) -> None:
        """``save`` some time after there is something to save: not for each event that comes by."""
        if not self._only_passed():
            self.save_at = None
        elif self.save_at is None:
            self.save_at = monotonic() + SKIP_SAVE_SECONDS
        elif monotonic() >= self.save_at:
            await self.save()

    async def save(self) -> None:
        """Move the cursor over events of other types, and forget holes that are final."""
        async with self.lock:
            self.save_at = None
            if self._only_passed():
                await self._write([])

    def _only_passed(self) -> bool:
        old, new = self._progress.saved, self._progress.after(())
        return (new.position, new.gaps) != (old.position, old.gaps)

    def leaves(self, items: Sequence[InFlight]) -> list[int]:
        """The positions that *items* leave. A delivery with a row has left the cursor before, but
        a range holds it until now."""
        unsettled = self._progress.unsettled
        return [
            item.row[ID]
            for item in items
            if item.outcome != "hold" and (not item.state or item.row[ID] in unsettled)
        ]

    def plan(self, items: Sequence[InFlight], new: Saved, *, counted: bool = True) -> list[Write]:
        """The statements that settle *items*. Not *counted*: their last attempt is not among
        their attempts yet."""
        writes = self._plan_barely(items, new)
        audit = self._context.audit
        noted = self.notes.noted
        if audit != "off" and (recorded := records(items, audit, noted, counted=counted)):
            insert_record(writes, self._statements, self._lease.listener, recorded)
        if self.notes.noted and (absolved := self.notes.absolved(items)):
            term = {**self._lease.term, "positions": absolved}
            writes.insert(-1, Write(self._statements.suspects.absolve, term))
        dead = [item for item in items if item.outcome == "dead"]
        if dead and (raised := alerts(self._lease.listener, dead, self._context.alert_depth)):
            statements = self._context.statements
            document = {"document": json.dumps(raised)}
            added = Write(statements.insert_events, document, alerts=len(raised))
            writes[:0] = [added, Write(statements.notify, {})]  # heard when this is committed
        return writes

    def _plan_barely(self, items: Sequence[InFlight], new: Saved) -> list[Write]:
        old, holding = self._progress.saved, self._is_holding(items)
        return plan(self._statements, self._lease, items, old=old, new=new, holding=holding)

    def plan_in_session(self, items: Sequence[InFlight], new: Saved) -> list[Write]:
        """Which statements settle *items* in a handler's transaction, before the attempt is
        counted. From the first lock on it may not idle for longer than a lease: the statement that
        moves the cursor sets that limit itself, and if others come before it, one more statement
        does."""
        writes = self.plan(items, new, counted=False)
        if len(writes) > 1:
            duration = self._lease.term["duration"]
            writes.insert(0, Write(self._statements.bound, {"duration": duration}))
        return writes

    def _is_holding(self, items: Sequence[InFlight]) -> bool:
        """Whether the errors in the listener's row are of an event that is not among *items*, and
        must be kept: also while its next attempt runs."""
        held, progress = self._held, self._progress
        if held is None or any(item.position == held for item in items):
            return False
        return held in progress.unsettled or held > progress.read_to or held in progress.holes

    async def _write(self, items: list[InFlight], *, barely: bool = False) -> None:
        """*barely*: without audit and alerts."""
        gone = self.leaves(items)
        new = self._progress.after(gone)
        writes = self._plan_barely(items, new) if barely else self.plan(items, new)
        await self._run_in_time(writes, new)
        self._progress.settle(gone, new)
        for item in items:
            if item.outcome == "hold":
                self._held = item.position
        self.save_at = None

    async def _run_in_time(self, writes: list[Write], new: Saved) -> None:
        """Run *writes* in one transaction, for as long as it takes and the lease is ours.

        Shielded: the handlers' effects exist already; cancelled here, they would come twice.
        Raises :class:`LeaseLost`.
        """
        with anyio.CancelScope(shield=True):
            backoff: Backoff | None = None
            self._swallowed = 0
            while True:
                began = monotonic()
                try:
                    await self.sure()
                    if not await self._run(writes):
                        continue
                except Exception as error:
                    # A deadlock, with one who cancels several: all of it is to be done again.
                    if not is_transient(error):
                        if not is_unreachable(error):
                            raise
                        self._context.connections.drop_idle()
                    if self._lease.has_ended():
                        raise _away_too_long() from error
                    backoff = backoff or Backoff(FIRST_PAUSE_SECONDS, MAX_PAUSE_SECONDS)
                    await anyio.sleep(backoff.next())
                    # The answer to the COMMIT may be what was lost.
                    if await self.became(new):
                        break
                else:
                    break
            self._lease.renewed(began)
        if self._swallowed:
            self._context.observers.emit(AlertsSwallowed(self._swallowed))

    async def sure(self) -> None:
        """Wait until it is known that the database still has what was read and saved: else events
        would be settled whose ids are other events' now. Raises :class:`LeaseLost`."""
        if not self._context.continuity.is_sure or self._lease.is_outdated:
            await self._context.continuity.sure(self._lease)

    async def became(self, new: Saved) -> bool:
        """Whether the listener's row holds *new*; waits for a transaction that is writing it."""
        backoff = Backoff(FIRST_PAUSE_SECONDS, MAX_PAUSE_SECONDS)
        while True:
            try:
                row = await self.stand()
            except Exception as error:
                if not is_unreachable(error):
                    raise
                if self._lease.has_ended():
                    raise _away_too_long() from error
                self._context.connections.drop_idle()
                await anyio.sleep(backoff.next())
            else:
                return bool(row["revision"] == new.revision)

    async def stand(self) -> Any:
        """The listener's row: position, gaps, revision, retries. Raises :class:`LeaseLost`."""
        whose = {name: self._lease.term[name] for name in ("name", "part", "token", "owner")}
        rows = await self._context.connections.rows(self._statements.stand, **whose)
        if not rows:
            raise self._lease.lost()
        return rows[0]

    async def _run(self, writes: list[Write]) -> bool:
        """False if nothing was written: the connection is one of another era."""
        async with self._context.connections.connection() as connection:
            if not self._context.continuity.is_sure:
                return False
            if len(writes) == 1:  # by far the most: one statement, no transaction around it
                await run_each(self._context, self._lease, connection, writes)
                return True
            async with connection.transaction():
                self._swallowed = await run_each(self._context, self._lease, connection, writes)
            return True


def _away_too_long() -> LeaseLost:
    return LeaseLost("the database was away for longer than the lease: another may hold it now")
