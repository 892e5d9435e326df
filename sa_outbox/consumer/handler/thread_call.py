"""The call of a sync handler, in the thread it runs in."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, TypeVar

import anyio

if TYPE_CHECKING:
    from collections.abc import Callable

    from anyio import CapacityLimiter

    from .session import HandlerSession

T = TypeVar("T")


class ThreadDoor:
    """Whether a thread is at work, and whether anybody still waits for it: it can't be stopped."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._is_inside = self._is_abandoned = False

    def enter(self) -> bool:
        """In the thread: False if nobody waits for it anymore."""
        with self._lock:
            self._is_inside = not self._is_abandoned
            return self._is_inside

    def leave(self) -> bool:
        """In the thread, at its end: whether it was abandoned."""
        with self._lock:
            self._is_inside = False
            return self._is_abandoned

    def abandon(self) -> bool:
        """Wait no longer; False if no thread is at work, or will be."""
        with self._lock:
            self._is_abandoned = True
            return self._is_inside

    def if_awaited(self, then: Callable[[], T]) -> T | None:
        """In the thread: do this, unless nobody waits for it anymore."""
        with self._lock:
            return None if self._is_abandoned else then()


async def in_thread(threads: CapacityLimiter, function: Callable[..., T], *arguments: Any) -> T:
    """Call that in a thread. Abandoned when it times out or is cancelled: a thread can't be
    stopped. What it does through its session is never committed."""
    return await anyio.to_thread.run_sync(
        function, *arguments, limiter=threads, abandon_on_cancel=True
    )


def call_in_thread(
    handler: Callable[..., Any], arguments: tuple[Any, ...]
) -> tuple[Any, BaseException | None]:
    """What the handler returned or raised. Not raised here: a GeneratorExit from a thread would
    close the coroutines that wait for it, instead of being caught by them."""
    session: HandlerSession | None = arguments[1] if len(arguments) > 1 else None
    if session is not None and not session.enter():
        return None, None
    try:
        value = handler(*arguments)
        if session is not None:
            session.handler_returned(value)
    except BaseException as error:  # noqa: BLE001 - GeneratorExit and the like are failures too
        return None, error
    else:
        return value, None
    finally:
        if session is not None:
            session.leave()
