"""Waiting until everything that is committed now is handled."""

from __future__ import annotations

from time import monotonic
from typing import TYPE_CHECKING

import anyio

from .connection.errors import is_database_error

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection

    from .loop.log_source import LogSource
    from .loop.loop import DeliveryLoop
    from .supervisor import Supervisor

POLL_SECONDS = 0.2
"""Seconds between two questions about listeners that another process works for."""
OUTAGE_SECONDS, OUTAGE_WITH_RETRIES_SECONDS = 5.0, 30.0
"""Seconds that a relay may be away, and forward nothing, until it is left for the next time."""


async def until_drained(
    services: Supervisor,
    next_progress: Callable[[], Awaitable[None]],
    *,
    stopped: Callable[[], bool],
    retries: bool,
) -> dict[str, str] | None:
    """Return when each listener has settled what was visible at the beginning, but for relays
    whose other side is away: these are returned, each with what turned it away.

    None: the consumer was stopped before.

    Invariant: the look that is waited for began after the call, so whatever was committed before
    the call is below its ceiling and visible to every read that follows it.
    """
    horizon = services.shared.horizon
    # One look may be under way already, and have asked for its ceiling before the call.
    number = horizon.number + 2
    asked: list[int] = []
    patience = OUTAGE_WITH_RETRIES_SECONDS if retries else OUTAGE_SECONDS
    with services.shared.outages.watch(patience) as outages:
        while not stopped():
            reads = services.holder.loops or services.queues
            given_up = outages.given_up(monotonic())
            if reads and horizon.latest.number < number:
                services.ring("poll")
            elif await _is_drained(services, number, asked, given_up, retries=retries):
                return given_up
            else:
                outages.ceiling = min(outages.ceiling, horizon.latest.ceiling)
            with anyio.move_on_after(POLL_SECONDS):
                await next_progress()
    return None


async def _is_drained(
    services: Supervisor,
    number: int,
    asked: list[int],
    given_up: Collection[str],
    *,
    retries: bool,
) -> bool:
    """*asked* keeps the ceiling for listeners of others: asked for again and again, it would rise
    with the log, and never be reached."""
    loops = services.holder.loops
    leasing = services.leasing
    if any(key not in loops for key in leasing.held):
        return False  # claimed, and about to start
    if leasing.unclaimed or any(each.barrier is not None for each in leasing.held.values()):
        return False  # nobody's for the moment, or only a part of the log is read
    for (name, _), loop in tuple(loops.items()):
        if name not in given_up and not _has_drained(loop, number, retries=retries):
            return False
    waited_for = [each for each in services.queues if each.listener.name not in given_up]
    if not all(queue.has_read(number) for queue in waited_for):
        return False
    besides = {*services.shared.withheld, *given_up}
    names = (queue.listener.name for queue in services.queues)
    queues = [name for name in names if name not in besides]
    if not retries and not queues:
        return True
    try:
        if not asked:
            shared = services.shared
            asked.append(await shared.connections.value(shared.statements.ceiling))
        if queues and await _busy(services, queues, asked[0], retries=retries):
            return False
        return not retries or not await _behind(services, asked[0], besides)
    except Exception as error:
        if not is_database_error(error):
            raise
        return False


async def _busy(services: Supervisor, names: list[str], ceiling: int, *, retries: bool) -> bool:
    """Whether something that was taken from one of these queues is not settled."""
    connections, statements = services.shared.connections, services.shared.statements
    owner = services.leasing.owner
    bounds = {"names": names, "ceiling": ceiling, "owner": owner, "retries": retries}
    return bool(await connections.rows(statements.ranges.busy, **bounds))


async def _behind(services: Supervisor, ceiling: int, besides: Collection[str]) -> bool:
    """Whether one of our listeners, as far as other processes hold it, has not settled what is
    visible up to *ceiling*; *besides* some."""
    leasing, shared = services.leasing, services.shared
    rows = await shared.connections.rows(
        shared.statements.behind,
        names=[name for name in leasing.names if name not in besides],
        held=[name for name, _ in leasing.held],
        parts=[part for _, part in leasing.held],
        ceiling=ceiling,
        retries=True,
    )
    return bool(rows)


def _has_drained(loop: DeliveryLoop[LogSource], look: int, *, retries: bool) -> bool:
    """Everything visible at that look is settled; with *retries*, what waits for one too."""
    if not loop.source.has_taken_in(look) or not loop.is_idle:
        return False
    if loop.holds_one:
        return not retries
    return loop.has_settled_all and not loop.source.has_due(retries=retries)
