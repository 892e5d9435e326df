"""The call of a sync handler, in the thread it runs in."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from .session import HandlerSession


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
