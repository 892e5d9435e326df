"""What runs beside the listeners: the looks, the leases, the verification, LISTEN."""

from __future__ import annotations

from random import uniform
from time import monotonic
from typing import TYPE_CHECKING, Literal

import anyio

from sa_outbox.observe import DatabaseAway, DatabaseBack, LeasesKept, Woken

from .connections import is_database_error
from .gate import Bell
from .offering import offer_the_first_few

if TYPE_CHECKING:
    from anyio.abc import TaskGroup

    from .leasing import Leasing
    from .looking import Looker
    from .queue import Queue
    from .retention import Retention
    from .shared import Shared
    from .tenure import Tenures
    from .ticking import Ticking
    from .verifying import Verifying
    from .wakeup import Wakeup

SOONEST, LATEST = 0.002, 0.25
"""Seconds between two looks while order="total" stands at a hole: a rollback notifies nobody."""
WITH_HOLES = 1.0
"""The same while others have holes open: to forget those that were rolled back."""
AT_A_BARRIER = 0.1
"""Seconds between two surveys while a cursor is on its way to a barrier, or waits at it."""
FIRST_PAUSE, LONGEST_PAUSE = 0.1, 5.0

By = Literal["start", "notify", "poll", "reconnect", "open events"]


class Services:
    def __init__(
        self,
        shared: Shared,
        leasing: Leasing,
        looker: Looker,
        verifying: Verifying,
    ) -> None:
        self.shared = shared
        self.leasing = leasing
        self.tenures: Tenures
        self.queues: list[Queue] = []
        self.wakeup: Wakeup | None = None
        self.ticking: Ticking | None = None
        self.retention: Retention | None = None
        self._looker = looker
        self.verifying = verifying
        self._look_bell = Bell()
        self._woken_by: By = "start"

    def ring(self, by: By) -> None:
        """Look again, soon."""
        self._woken_by = by
        self._look_bell.ring()

    def released(self) -> None:
        """Another process has given something back, or a person has changed something."""
        self.leasing.bell.ring()
        self._wake_queues()
        self.tenures.look_for_due()

    def look_for_requests(self) -> None:
        """Somebody has cancelled an event that was taken, perhaps by us."""
        for queue in self.queues:
            queue.look_for_requests()

    def reconnected(self, after_trouble: bool) -> None:  # noqa: FBT001 - a callback
        """The LISTEN connection is new: what was missed is looked for. *after_trouble*, the server
        may be another one than at the start."""
        if after_trouble:
            self.verifying.bell.ring()
        self.leasing.bell.ring()
        self.ring("reconnect")

    def lost_notifications(self) -> None:
        """Nobody tells of events any more: from now on it is looked for them often."""
        self.leasing.bell.ring()
        self.ring("poll")

    def stop(self) -> None:
        """Begin nothing new."""
        self.leasing.is_closing = True
        self.tenures.stop()
        for queue in self.queues:
            queue.stints.stop()
            queue.bell.ring()

    def cancel(self) -> None:
        """Cancel what still runs; its leases are given back."""
        self.tenures.cancel()
        for queue in self.queues:
            queue.stints.cancel()

    @property
    def is_at_work(self) -> bool:
        return bool(self.tenures.cursors) or any(queue.held for queue in self.queues)

    async def start(self, tasks: TaskGroup) -> None:
        """Claim what is free, then start everything in *tasks*."""
        await self.leasing.announce()
        await self.leasing.tell_others()  # those who came first have something for us
        await self._claim(tasks)
        tasks.start_soon(self._look_again_and_again)
        tasks.start_soon(self._keep_leases, tasks)
        tasks.start_soon(self.verifying.run)
        for queue in self.queues:
            tasks.start_soon(queue.run, tasks)
        if self.queues:
            self.ring("start")  # a cursor does so when it is claimed
        if self.wakeup is not None:
            tasks.start_soon(self.wakeup.run)
        if self.retention is not None:
            tasks.start_soon(self.retention.run)
        if self.ticking is not None:
            await tasks.start(self.ticking.run)

    async def ceiling(self) -> int:
        """The highest id that is visible now."""
        found: int = await self.shared.connections.value(self.shared.statements.ceiling)
        return found

    async def busy(self, names: list[str], ceiling: int, *, retries: bool) -> bool:
        """Whether something that was taken from one of these queues is not settled."""
        connections, statements = self.shared.connections, self.shared.statements
        owner = self.leasing.owner
        bounds = {"names": names, "ceiling": ceiling, "owner": owner, "retries": retries}
        return bool(await connections.rows(statements.ranges.busy, **bounds))

    async def behind(self, ceiling: int) -> bool:
        """Whether one of our listeners, as far as other processes hold it, has not settled what is
        visible up to *ceiling*."""
        rows = await self.shared.connections.rows(
            self.shared.statements.behind,
            names=[name for name in self.leasing.names if name not in self.shared.withheld],
            held=[name for name, _ in self.leasing.held],
            parts=[part for _, part in self.leasing.held],
            ceiling=ceiling,
            retries=True,
        )
        return bool(rows)

    # The looks

    async def _look_again_and_again(self) -> None:
        pause, backoff = SOONEST, FIRST_PAUSE
        away = False
        while True:
            rung = await self._look_bell.wait(self._until_next_look(pause))
            if not self.tenures.cursors and not self.queues:
                continue
            by = self._woken_by if rung else ("open events" if self._waiting() else "poll")
            try:
                if rung:
                    number = self.shared.horizon.latest.number
                    cursors = self.tenures.cursors.values()
                    await offer_the_first_few(self._looker, number, cursors, self.queues)
                look = await self._looker.look()
            except Exception as error:
                if not is_database_error(error):
                    raise
                away = True
                self.shared.tell(DatabaseAway("horizon", type(error).__name__, backoff))
                await anyio.sleep(backoff * uniform(0.5, 1.0))  # noqa: S311 - no secret
                backoff = min(2 * backoff, LONGEST_PAUSE)
                self.ring("reconnect")
                continue
            if away:
                away, backoff = False, FIRST_PAUSE
                self.shared.tell(DatabaseBack("horizon"))
                self.verifying.bell.ring()
            self.shared.tell(Woken(by))
            pause = SOONEST if rung or look.final >= look.ceiling else min(2 * pause, LATEST)
            for cursor in tuple(self.tenures.cursors.values()):
                cursor.wake()
            if by in ("poll", "reconnect"):
                self.look_for_requests()
            self._wake_queues()
            self.shared.progressed()

    def _wake_queues(self) -> None:
        for queue in self.queues:
            queue.wake()

    def _waiting(self) -> bool:
        return any(cursor.intake.waits_at_a_hole for cursor in self.tenures.cursors.values())

    def _until_next_look(self, pause: float) -> float:
        if self._waiting():
            return pause
        cursors, latest = self.tenures.cursors.values(), self.shared.horizon.latest
        interval = self._poll_interval()
        # A cursor finds out that there is a hole when it reads, which is after this.
        is_open = latest.final < latest.ceiling
        if is_open and any(cursor.intake.may_meet_a_hole(latest.number) for cursor in cursors):
            return min(LATEST, interval)
        if is_open or any(cursor.intake.is_open for cursor in cursors):
            return min(WITH_HOLES, interval)
        return interval * uniform(0.9, 1.0)  # noqa: S311 - processes should not poll in step

    def _poll_interval(self) -> float:
        settings = self.shared.settings
        if self.wakeup is not None and self.wakeup.is_listening:
            return settings.poll_interval.total_seconds()
        without = settings.poll_interval_without_notify
        return min(without, settings.poll_interval).total_seconds()

    # The leases

    async def _keep_leases(self, tasks: TaskGroup) -> None:
        every = self.shared.settings.lease_duration.total_seconds() / 3
        renew_at = monotonic() + every
        backoff = FIRST_PAUSE
        away = False
        while True:
            try:
                await self.leasing.bell.wait(min(self._until_next_claim(), renew_at - monotonic()))
                if monotonic() >= renew_at:
                    await self._renew()
                    renew_at = monotonic() + every
                await self._claim(tasks)
                if away:
                    away, backoff = False, FIRST_PAUSE
                    self.shared.tell(DatabaseBack("leases"))
            except Exception as error:
                if not is_database_error(error):
                    raise
                away = True
                self.shared.tell(DatabaseAway("leases", type(error).__name__, backoff))
                self.shared.connections.drop_idle()
                self._drop_expired()
                renew_at = 0.0  # and be counted again, before anything is claimed
                await anyio.sleep(backoff * uniform(0.5, 1.0))  # noqa: S311 - no secret
                backoff = min(2 * backoff, every / 2, LONGEST_PAUSE)

    async def _claim(self, tasks: TaskGroup) -> None:
        if not self.tenures.stopping:
            # Shielded: one that is claimed and not worked for would be nobody's until it expires.
            limit = self.shared.settings.probe_timeout.total_seconds()
            with anyio.fail_after(limit, shield=True):
                barriers = self._barriers()
                claimed = await self.leasing.claim()
                for lease in self.leasing.lost:
                    self.tenures.drop(lease)
                for lease in claimed:
                    tasks.start_soon(self.tenures.work, lease)
            self.tenures.hand_over(self.leasing.hand_over)
            if barriers != self._barriers():
                self.ring("poll")  # nobody tells of what is above one that was lifted

    def _barriers(self) -> dict[tuple[str, int], int]:
        held = self.leasing.held.items()
        return {key: lease.barrier for key, lease in held if lease.barrier is not None}

    def _until_next_claim(self) -> float:
        if self._barriers():
            return AT_A_BARRIER
        interval = self._poll_interval()
        soon = self.leasing.seconds_to_claim()
        return interval if soon is None else min(interval, soon)

    async def _renew(self) -> None:
        self._drop_expired()
        if not self.tenures.stopping:
            await self.leasing.announce()
        lost, paused = await self.leasing.renew()
        for lease in lost:
            self.tenures.drop(lease)
        for queue in self.queues:
            await queue.renew()
        self.tenures.hand_over(lease.key for lease in paused)
        ranges = sum(len(queue.held) for queue in self.queues)
        self.shared.tell(LeasesKept(tuple(name for name, _ in self.leasing.held), ranges))

    def _drop_expired(self) -> None:
        for lease in tuple(self.leasing.held.values()):
            if lease.has_ended():
                self.tenures.drop(lease)
        for queue in self.queues:
            queue.drop_expired()
