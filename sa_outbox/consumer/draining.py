"""Waiting until everything that is committed now is handled."""

from __future__ import annotations

from typing import TYPE_CHECKING

import anyio

from .connections import is_database_error

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from .services import Services

ASK_EVERY = 0.2
"""Seconds between two questions about listeners that another process works for."""


async def until_drained(
    services: Services,
    next_progress: Callable[[], Awaitable[None]],
    *,
    stopped: Callable[[], bool],
    retries: bool,
) -> bool:
    """Return when each listener has settled what was visible at the beginning.

    False: the consumer was stopped before.

    Invariant: the look that is waited for began after the call, so whatever was committed before
    the call is below its ceiling and visible to every read that follows it.
    """
    horizon = services.shared.horizon
    # One look may be under way already, and have asked for its ceiling before the call.
    number = horizon.number + 2
    asked: list[int] = []
    while not stopped():
        reads = services.tenures.cursors or services.queues
        if reads and horizon.latest.number < number:
            services.ring("poll")
        elif await _is_drained(services, number, asked, retries=retries):
            return True
        with anyio.move_on_after(ASK_EVERY):
            await next_progress()
    return False


async def _is_drained(services: Services, number: int, asked: list[int], *, retries: bool) -> bool:
    """*asked* keeps the ceiling for listeners of others: asked for again and again, it would rise
    with the log, and never be reached."""
    cursors = services.tenures.cursors
    leasing = services.leasing
    if any(key not in cursors for key in leasing.held):
        return False  # claimed, and about to start
    if leasing.unclaimed or any(each.barrier is not None for each in leasing.held.values()):
        return False  # nobody's for the moment, or only a part of the log is read
    for cursor in tuple(cursors.values()):
        if not cursor.has_drained(number, retries=retries):
            return False
    if not all(queue.has_read(number) for queue in services.queues):
        return False
    withheld = services.shared.withheld
    names = (queue.listener.name for queue in services.queues)
    queues = [name for name in names if name not in withheld]
    if not retries and not queues:
        return True
    try:
        if not asked:
            asked.append(await services.ceiling())
        if queues and await services.busy(queues, asked[0], retries=retries):
            return False
        return not retries or not await services.behind(asked[0])
    except Exception as error:
        if not is_database_error(error):
            raise
        return False
