"""Waiting until everything that is committed now is handled, and what a drain answers then."""

from __future__ import annotations

from time import monotonic
from typing import TYPE_CHECKING, Any

import anyio

from sa_outbox.errors import ConfigError, NotDrained

from .connection.errors import is_database_error
from .shared.tally import Tally

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection

    from .lease.shares import Key
    from .loop.log_source import LogSource
    from .loop.loop import DeliveryLoop
    from .shared.tally import Drained
    from .supervisor import Supervisor

POLL_SECONDS = 0.2
"""Seconds between two questions about listeners that another process works for."""
OUTAGE_SECONDS, OUTAGE_WITH_RETRIES_SECONDS = 5.0, 30.0
"""Seconds that a relay may be away, and forward nothing, until it is left for the next time."""


def tally_for(limit: int | None, *, is_running: bool) -> Tally:
    """That of a drain with this *limit*, by a consumer that *is_running* already."""
    if limit is not None and (type(limit) is not int or limit < 1):
        raise ConfigError(f"drain(limit={limit!r}): it must be a number of at least 1")
    if limit is not None and is_running:
        raise ConfigError("drain(limit=...) is for a consumer that is not running")
    return Tally(limit)


def drained(tally: Tally, waiting: dict[str, str] | None, reason: str) -> Drained:
    """What a drain answers. *waiting*: what ``until_drained`` returned; None: it was stopped, for
    this *reason*. Raises :class:`NotDrained`."""
    if waiting is None:
        raise NotDrained(f"the consumer was stopped before it had drained: {reason}")
    if waiting:
        away = ", ".join(f"{name!r} ({why})" for name, why in waiting.items())
        raise NotDrained(
            f"the other side of a relay is away, and events wait for it: {away}. Everything "
            "else is handled",
            waiting=waiting,
        )
    return tally.result()


async def until_drained_by(
    services: Callable[[], Supervisor | None],
    is_over: Callable[[], bool],
    next_progress: Callable[[], Awaitable[None]],
    tally: Tally,
    *,
    retries: bool,
) -> dict[str, str] | None:
    """``until_drained`` by a consumer that may sleep or restart meanwhile: then there are no
    *services*. None: it *is_over* before."""
    while not is_over():
        now = services()
        if now is None:
            await next_progress()
            continue

        def has_ended(run: Supervisor = now) -> bool:
            return services() is not run

        with now.context.tallied(tally):
            waiting = await until_drained(
                now,
                next_progress,
                tally,
                stopped=has_ended,
                retries=retries,
                others=retries,
            )
        if waiting is not None:
            return waiting
    return None


async def until_drained(
    services: Supervisor,
    next_progress: Callable[[], Awaitable[None]],
    tally: Tally,
    *,
    stopped: Callable[[], bool],
    retries: bool,
    others: bool,
) -> dict[str, str] | None:
    """Return when each listener has settled what was visible at the beginning, but for relays
    whose other side is away: these are returned, each with what turned it away. With *retries*,
    what failed too; with *others*, what other processes hold too.

    None: the consumer was stopped before. With the limit of *tally*: earlier, when nothing more
    may begin and nothing is in flight.

    Invariant: the read of the horizon that is waited for began after the call, so whatever was
    committed before the call is below its ceiling and visible to every read that follows it.
    """
    context, workload = services.context, services.workload
    horizon = context.horizon
    # One read may be under way already, and have asked for its ceiling before the call.
    number = horizon.number + 2
    asked: list[int] = []
    patience = OUTAGE_WITH_RETRIES_SECONDS if retries else OUTAGE_SECONDS
    with context.outages.watch(patience) as outages:
        while not stopped():
            given_up = outages.given_up(monotonic())
            if tally.left == 0 and workload.is_idle:
                return given_up
            if tally.is_open_again():
                workload.wake()
            if not workload.is_empty and horizon.latest.number < number:
                context.bell.ring("poll")
            elif await _is_drained(
                services, number, asked, given_up, retries=retries, others=others
            ):
                return given_up
            else:
                outages.waits_up_to(horizon.latest.ceiling)
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
    others: bool,
) -> bool:
    """*asked* keeps the ceiling for listeners of others: asked for again and again, it would rise
    with the log, and never be reached."""
    context, leases = services.context, services.leases
    loops, all_queues = services.workload.holder.loops, services.workload.queues
    # What is claimed while the database is asked below has not been looked at here.
    held = tuple(leases.held)
    if any(key not in loops for key in held):
        return False  # claimed, and about to start
    if leases.unclaimed or any(each.barrier is not None for each in leases.held.values()):
        return False  # nobody's for the moment, or only a part of the log is read
    for (name, _), loop in tuple(loops.items()):
        if name not in given_up and not _has_drained(loop, number, retries=retries):
            return False
    waited_for = [each for each in all_queues if each.listener.name not in given_up]
    if not all(queue.has_read(number) for queue in waited_for):
        return False
    besides = {*context.withheld, *given_up}
    names = (queue.listener.name for queue in all_queues)
    queues = [name for name in names if name not in besides]
    if not others and not queues:
        return True
    try:
        if not asked:
            asked.append(await context.connections.value(context.statements.ceiling))
        bounds = {"ceiling": asked[0], "retries": retries}
        if queues and await _busy(services, queues, others=others, **bounds):
            return False
        return not others or not await _behind(services, held, besides, **bounds)
    except Exception as error:
        if not is_database_error(error):
            raise
        return False


async def _busy(services: Supervisor, names: list[str], **bounds: Any) -> bool:
    """Whether something that was taken from one of these queues is not settled."""
    connections, statements = services.context.connections, services.context.statements
    owner = services.leases.owner
    rows = await connections.rows(statements.ranges.busy, names=names, owner=owner, **bounds)
    return bool(rows)


async def _behind(
    services: Supervisor, held: Collection[Key], besides: Collection[str], **bounds: Any
) -> bool:
    """Whether one of our listeners, apart from what we *held*, has not settled what is visible up
    to the ceiling; *besides* some."""
    leases, context = services.leases, services.context
    rows = await context.connections.rows(
        context.statements.behind,
        names=[name for name in leases.names if name not in besides],
        held=[name for name, _ in held],
        parts=[part for _, part in held],
        **bounds,
    )
    return bool(rows)


def _has_drained(loop: DeliveryLoop[LogSource], number: int, *, retries: bool) -> bool:
    """Everything visible at snapshot *number* is settled, and *retries* too."""
    if not loop.source.has_taken_in(number) or not loop.is_idle:
        return False
    if loop.holds_one:
        return not retries
    return loop.has_settled_all and not loop.source.has_due(retries=retries)
