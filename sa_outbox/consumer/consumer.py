"""The consumer as a program has it: it runs, or drains."""

from __future__ import annotations

from typing import TYPE_CHECKING

import anyio

from sa_outbox.errors import NotDrained

from .connection.engines import require_asyncio
from .drain import drained, tally_for, until_drained_by
from .runner import Runner
from .shared.stop_reason import StopReason
from .shared.task_errors import one_error

if TYPE_CHECKING:
    from .shared.tally import Drained, Tally
    from .supervisor import Supervisor


class Consumer(Runner):
    """Delivers the events of an outbox to its listeners, in this process.

    ::

        consumer = Consumer(outbox, "postgresql://...")
        await consumer.run()        # until it is stopped or cancelled
        await consumer.drain()      # or: until everything that is committed now is handled

    *database* is an address or an engine; handlers get sessions on it. Any number of processes may
    run for one database: each listener is worked for by one of them at a time. It logs through the
    program's structlog, or else its ``logging``, unless a ``sa_outbox.logs.Log`` is among its
    *observers* or ``log_level`` is ``"off"``.
    """

    async def drain(self, *, retries: bool = True, limit: int | None = None) -> Drained:
        """Return when every listener has handled all that was committed when this was called, and
        how much that was.

        Handled is: done, or a dead letter. Without *retries*, an event that failed and waits for
        its next attempt is left for the next time, and listeners that another process holds are
        left to it. Runs the consumer if it is not running, and stops it again. Raises
        :class:`NotDrained` when something else stops it before; and within 30 seconds for a relay
        whose other side is away and that forwards nothing meanwhile, without *retries* within 5.
        All else is handled then.

        With *limit*, no more than that many attempts are begun: one event for two listeners counts
        twice, and each retry counts. Then it returns; what is left stays for the next time. Not for
        a consumer that is running already: others rely on it.

        Invariant: a drain that ran the consumer and returns holds no lease. Every statement that
        takes one is answered before the end (``lease/lease.py``), what is held is given
        back, and at last whatever the database still has under our name.
        """
        require_asyncio()
        tally = tally_for(limit, is_running=self._running)
        if self._running:
            waiting = await self._until_drained(tally, retries=retries)
        else:
            waiting = await self._run_until_drained(tally, retries=retries)
        return drained(tally, waiting, self.reason)

    async def _run_until_drained(self, tally: Tally, *, retries: bool) -> dict[str, str] | None:
        self._only_drains, self._tally = True, tally
        waiting: dict[str, str] | None = None
        with one_error():
            async with anyio.create_task_group() as tasks:
                await tasks.start(self.run)
                waiting = await self._until_drained(tally, retries=retries)
                if waiting is not None and self._running:
                    self._stop_for(StopReason.DRAINED, "drained")
                # Else it is being stopped, and handlers finish: not to be cut off by an error.
        if waiting is not None and self._holds_leases:
            raise NotDrained(
                "everything is handled, but the database went away before the leases were "
                f"given back: they expire in {self.settings.lease_duration}"
            )
        return waiting

    async def _until_drained(self, tally: Tally, *, retries: bool) -> dict[str, str] | None:
        self.wake()
        progress = self._progressed.wait
        return await until_drained_by(
            self._at_work, self._is_over, progress, tally, retries=retries
        )

    def _at_work(self) -> Supervisor | None:
        """The services, unless they have not all started, or are being stopped."""
        return self._services if self._has_started and not self._stop.is_set() else None

    def _is_over(self) -> bool:
        return not self._running or (self._stop.is_set() and not self._restarts.is_due)
