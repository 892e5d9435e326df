"""Work that must not be cancelled midway."""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING, Any, TypeVar

import anyio

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

T = TypeVar("T")
ABANDONED_SECONDS = 1.0
"""Seconds that abandoned work has to finish."""


async def to_its_end(work: Coroutine[Any, Any, T], undo: Callable[[T], object] | None = None) -> T:
    """What *work* returns. If this is cancelled, *work* is not: it gets ``ABANDONED_SECONDS`` to
    finish, and its result is undone.

    When a connect is cancelled midway, asyncpg leaves behind an error that nobody retrieves, and
    the event loop reports it. An anyio shield does not protect against ``Task.cancel``.
    """
    task = _begun(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        with anyio.CancelScope(shield=True):
            await asyncio.wait([task], timeout=ABANDONED_SECONDS)
        if not task.done():
            task.cancel()
        elif not task.cancelled() and task.exception() is None and undo is not None:
            undo(task.result())
        raise


def _begun(work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
    """A task for *work*. Where Python can, it has run until *work* waited for something: a
    connection that lies in the pool costs no turn of the event loop."""
    if sys.version_info >= (3, 12):
        return asyncio.Task(work, loop=asyncio.get_running_loop(), eager_start=True)
    return asyncio.ensure_future(work)
