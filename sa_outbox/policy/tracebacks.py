"""Where an error was raised, as text for a log: bounded, and masked like what is stored of it.

Files, lines and source code, and the classes of the error and its causes. Not their texts: those
quote data, and are in the database.
"""

from __future__ import annotations

import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Final

from .failure import MAX_MESSAGE, clean

if TYPE_CHECKING:
    from collections.abc import Callable

MAX_FRAMES: Final = 30
"""Frames that are shown of each error: the last ones."""
MAX_ERRORS: Final = 10
"""Errors that are shown: causes, and members of groups."""
_OURS: Final = str(Path(__file__).parent.parent / "consumer")
"""Frames of the consumer's own: each traceback would begin with the same ones."""


def traceback_of(error: BaseException, redact: Callable[[str], str] | None = None) -> str:
    """Of the error and what led to it, earliest first. What exceeds the limit is cut off at the
    beginning. Never raises."""
    parts: list[str] = []
    room = MAX_MESSAGE
    for each in reversed(_chain(error)):
        part = clean(_described(each), redact)
        if len(part) > room and parts:
            break
        parts.append(part)
        room -= len(part)
    return "\n\n".join(reversed(parts))


def _described(error: BaseException) -> str:
    try:
        frames = traceback.extract_tb(error.__traceback__)
        shown = [each for each in frames if not each.filename.startswith(_OURS)][-MAX_FRAMES:]
        lines = traceback.format_list(shown)
    except Exception as broken:  # noqa: BLE001 - source files may be anything
        lines = [f"(no frames: {type(broken).__name__})\n"]
    cls = type(error)
    return "".join([*lines, f"{cls.__module__}.{cls.__qualname__}"])


def _chain(error: BaseException) -> list[BaseException]:
    """The error, its causes, and the members of groups, earliest first."""
    found: list[BaseException] = []
    waiting: list[BaseException | None] = [error]
    while waiting and len(found) < MAX_ERRORS:
        each = waiting.pop()
        if each is None or any(each is one for one in found):
            continue
        found.append(each)
        waiting.append(each.__cause__ or (None if each.__suppress_context__ else each.__context__))
        if isinstance(each, BaseExceptionGroup):
            waiting.extend(each.exceptions)
    return found[::-1]
