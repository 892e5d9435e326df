"""A handler's own context: what it binds for its log lines, or sets in any other context variable,
ends with its call. The next event, perhaps another tenant's, never sees it."""

from __future__ import annotations

from contextvars import copy_context
from types import coroutine
from typing import TYPE_CHECKING, Any, TypeVar, cast

if TYPE_CHECKING:
    from collections.abc import Coroutine, Generator
    from contextvars import Context

T = TypeVar("T")


@coroutine
def isolated(made: Coroutine[Any, Any, T]) -> Generator[Any, Any, T]:
    """Await *made* in a copy of the current context. As a task of its own would, but without one:
    whoever cancels the handler cancels the task that it is called in."""
    context = copy_context()
    try:
        waits_for = context.run(made.send, None)
    except StopIteration as end:
        return cast("T", end.value)
    while True:
        try:
            try:
                answer = yield waits_for
            except BaseException as error:  # noqa: BLE001 - a cancellation, for the handler
                waits_for = context.run(made.throw, error)
            else:
                waits_for = context.run(made.send, answer)
        except StopIteration as end:
            return cast("T", end.value)


def has_changed(since: Context) -> bool:
    """Whether something was set in the current context after it was copied. Values that were
    replaced are compared as their classes do it, and some refuse: an array of NumPy has no truth.
    """
    try:
        return copy_context() != since
    except Exception:  # noqa: BLE001 - of the program's own classes
        return True
