"""Work that must not be cancelled midway."""

from __future__ import annotations

import asyncio
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
    task = asyncio.ensure_future(work)
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
