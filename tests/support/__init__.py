"""What several tests need. One module per thing; here only how to wait."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import anyio

if TYPE_CHECKING:
    from collections.abc import Callable

PATIENCE = 20.0
"""Seconds that a busy machine may need for anything; less than a lease lasts by default, and than
a poll waits: what would come only with these is not taken for what was waited for."""


def eventually(condition: Callable[[], object], *, within: float = PATIENCE) -> None:
    """Return as soon as *condition* is true; fail if it is not *within* seconds."""
    deadline = time.monotonic() + within
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError(f"not true within {within} s: {condition}")
        time.sleep(0.02)


async def comes_true(condition: Callable[[], object], *, within: float = PATIENCE) -> None:
    """``eventually`` in an event loop, where other tasks continue meanwhile."""
    with anyio.move_on_after(within):
        while not condition():
            await anyio.sleep(0.01)
        return
    raise AssertionError(f"not true within {within} s: {condition}")
