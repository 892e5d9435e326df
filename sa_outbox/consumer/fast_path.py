"""Offer new events to idle listeners before the horizon is read."""

from __future__ import annotations

from typing import TYPE_CHECKING

import anyio

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from .loop.log_source import LogSource
    from .loop.loop import DeliveryLoop
    from .queue.queue import Queue
    from .services.horizon_reader import HorizonReader

TURNS = 4
"""Turns of the event loop until a handler has started: sending a statement earlier would delay
it."""


async def deliver_ahead_of_horizon(
    reader: HorizonReader,
    number: int,
    loops: Collection[DeliveryLoop[LogSource]],
    queues: Iterable[Queue],
) -> None:
    """Those who had read everything up to snapshot *number* begin at once."""
    waiting = [each for each in loops if each.source.new.are_all_final(number)]
    resting = {queue: at for queue in queues if (at := queue.rests_at(number)) is not None}
    stands = [*(each.progress.read_to for each in waiting), *resting.values()]
    if not stands:
        return
    rows = await reader.first_few(min(stands))
    if not rows:
        return
    for loop in waiting:
        loop.source.new.offer(rows)
        loop.wake()
    for queue in resting:
        queue.offer(rows)
    for _ in range(TURNS):
        await anyio.lowlevel.checkpoint()
