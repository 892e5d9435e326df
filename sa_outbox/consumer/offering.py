"""Offering what is new to those who have nothing to do, before the horizon is looked at."""

from __future__ import annotations

from typing import TYPE_CHECKING

import anyio

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from .cursor import Cursor
    from .looking import Looker
    from .queue import Queue

TURNS = 4
"""Turns of the event loop that pass until a handler has begun: before that, sending a statement
would keep it waiting."""


async def offer_the_first_few(
    looker: Looker, number: int, cursors: Collection[Cursor], queues: Iterable[Queue]
) -> None:
    """Those who had read everything at the look of that *number* begin at once."""
    waiting = [each for each in cursors if each.intake.has_read_all(number)]
    resting = {queue: at for queue in queues if (at := queue.rests_at(number)) is not None}
    stands = [*(each.progress.read_to for each in waiting), *resting.values()]
    if not stands:
        return
    rows = await looker.first_few(min(stands))
    for cursor in waiting:
        cursor.intake.offered = rows
        cursor.wake()
    for queue in resting if rows else ():
        queue.offer(rows)
    for _ in range(TURNS):
        await anyio.lowlevel.checkpoint()
