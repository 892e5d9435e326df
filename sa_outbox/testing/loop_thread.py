"""Call what needs an event loop of its own, for a test that has none, or is in one."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

T = TypeVar("T")


def in_thread(function: Callable[[], T]) -> T:
    """What *function* returns. It may run a loop: in a thread of its own there is none."""
    context = copy_context()
    with ThreadPoolExecutor(1, thread_name_prefix="sa_outbox-testing") as threads:
        return threads.submit(context.run, function).result()


def run_to_its_end(make: Callable[[], Coroutine[object, object, T]]) -> T:
    """What the coroutine returns."""
    return in_thread(lambda: asyncio.run(make()))
