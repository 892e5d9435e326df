"""Server-sent events: the parts of the overview that change, as they change.

Each message has the new content of elements on the page, by their id. A stream ends by itself after
some minutes; the browser reconnects and is authenticated again: access once granted does not last
forever.
"""

from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING, Final

import anyio
from starlette.exceptions import HTTPException
from starlette.responses import StreamingResponse

from .history import SAMPLE_SECONDS

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

_LOG: Final = logging.getLogger(__name__)
MAX_STREAMS: Final = 64
STREAM_SECONDS: Final = 300.0
_HEADERS: Final = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}


class Streams:
    """This process's open streams: counted, and ended together."""

    def __init__(self) -> None:
        self._open = 0
        self._ending: anyio.Event | None = None
        self._ended = False

    def end(self) -> None:
        """For a server that is stopping: it waits for its connections to close."""
        self._ended = True
        if self._ending is not None:
            self._ending.set()

    def response(self, parts: Callable[[], Awaitable[dict[str, str]]]) -> StreamingResponse:
        if self._open >= MAX_STREAMS:
            raise HTTPException(503, "too many people are watching; load the page again later")
        return StreamingResponse(
            self._messages(parts), media_type="text/event-stream", headers=_HEADERS
        )

    async def _messages(self, parts: Callable[[], Awaitable[dict[str, str]]]) -> AsyncIterator[str]:
        if self._ending is None:
            self._ending = anyio.Event()
        until = anyio.current_time() + STREAM_SECONDS
        self._open += 1
        try:
            yield f"retry: {int(SAMPLE_SECONDS * 1000)}\n\n"
            while not self._ended and anyio.current_time() < until:
                try:
                    line = message(await parts())
                except Exception:  # noqa: BLE001 - whatever it is, the browser reconnects
                    _LOG.warning("a stream ends: the overview can't be read", exc_info=True)
                    return
                yield line
                with anyio.move_on_after(SAMPLE_SECONDS):
                    await self._ending.wait()
        finally:
            self._open -= 1


def message(parts: dict[str, str]) -> str:
    """One line of JSON: its content can't be mistaken for several messages."""
    return f"event: parts\ndata: {json.dumps(parts)}\n\n"
