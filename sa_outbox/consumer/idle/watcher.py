"""Notices that there is nothing to do.

That is: everything that is committed is handled or waits for its time, also what other consumers
hold; no transaction that is open has written events; and that has not changed for ``idle_after``.
Others are waited for because whoever holds something may have died: then its lease expires, and it
is for us.
"""

from __future__ import annotations

from time import monotonic
from typing import TYPE_CHECKING

import anyio
from anyio import TASK_STATUS_IGNORED

from ..connection.errors import is_database_error
from ..drain import until_drained
from ..services.endpoints import EndpointWatcher
from ..shared.tally import Tally
from .outlook import committed_to, due

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator
    from datetime import timedelta

    from anyio.abc import TaskStatus

    from sa_outbox.outbox import Outbox

    from ..services.endpoints import Endpoints
    from ..supervisor import Service, Supervisor
    from .restarts import Restarts

LOOKS = 4
"""How often it looks within ``idle_after``."""


def restart_watchers(
    outbox: Outbox,
    restarts: Restarts,
    endpoints: Endpoints | None,
    idle_after: timedelta | None,
    services: Callable[[], Supervisor | None],
    next_progress: Callable[[], Awaitable[None]],
) -> Iterator[Service]:
    """What runs as long as a consumer does and decides that it is to restart."""
    if endpoints is not None:
        yield EndpointWatcher(endpoints, restarts.serve_again)
    if idle_after is not None:
        yield IdleWatcher(outbox, idle_after.total_seconds(), services, next_progress, restarts)


class IdleWatcher:
    """Runs until there has been nothing to do for long enough, and nobody has called ``wake``."""

    def __init__(
        self,
        outbox: Outbox,
        idle_seconds: float,
        services: Callable[[], Supervisor | None],
        next_progress: Callable[[], Awaitable[None]],
        restarts: Restarts,
    ) -> None:
        self._outbox = outbox
        self._idle_seconds = idle_seconds
        self._services = services
        self._next_progress = next_progress
        self._restarts = restarts

    async def run(self, *, task_status: TaskStatus[None] = TASK_STATUS_IGNORED) -> None:
        task_status.started()
        before, since = None, monotonic()
        while True:
            await anyio.sleep(self._idle_seconds / LOOKS)
            seen = await self._look()
            if seen is None or seen != before:
                before, since = seen, monotonic()
            elif monotonic() - since >= self._idle_seconds and await self._falls_asleep(*seen):
                return

    async def _look(self) -> tuple[int, int] | None:
        """How often somebody has called ``wake``, and the last event, if it and all before are
        handled; None: there is something to do. In this order: what is done for a call that comes
        after it was counted may not be seen."""
        services, wakes = self._services(), self._restarts.wakes
        if services is None:
            return None
        try:
            handled_to = await self._handled_to(services)
        except Exception as error:
            if not is_database_error(error):
                raise
            return None
        return None if handled_to is None else (wakes, handled_to)

    async def _falls_asleep(self, wakes: int, handled_to: int) -> bool:
        services = self._services()
        if services is None:
            return False
        try:
            next_due = await due(services, self._outbox.crons)
        except Exception as error:
            if not is_database_error(error):
                raise
            return False
        if not self._is_worth_it(next_due.own) or self._restarts.wakes != wakes:
            return False
        self._restarts.fall_asleep(handled_to, next_due)
        return True

    def _is_worth_it(self, seconds: float | None) -> bool:
        return seconds is None or seconds > self._idle_seconds

    async def _handled_to(self, services: Supervisor) -> int | None:
        """The last event, if it and all before are handled; None: there is something to do."""
        if services.context.tallies:
            return None  # somebody drains, and waits for retries
        with anyio.move_on_after(self._idle_seconds):
            waiting = await until_drained(
                services,
                self._next_progress,
                Tally(),
                stopped=lambda: False,
                retries=False,
                others=True,
            )
            if waiting or not services.workload.is_idle:
                return None
            return await committed_to(services)
        return None
