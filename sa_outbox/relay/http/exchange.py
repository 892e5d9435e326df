"""One request and its bounded response.

A stranger's response is bounded in memory by what is read of it, 64 kB, and in time by the caller.
"""

from __future__ import annotations

import ssl
from contextlib import suppress
from typing import TYPE_CHECKING

import anyio
import httpcore2

from .answers import Reply

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .connections import Connections

MAX_READ = 64 * 1024
"""Maximum bytes of a response body."""
BODY_SECONDS = 2.0
"""Seconds for the body. The status has arrived and decides: nothing in the body changes it."""
UNREACHED = (
    OSError,
    ssl.SSLError,
    httpcore2.NetworkError,
    httpcore2.TimeoutException,
    httpcore2.RemoteProtocolError,
)
"""Raised when there is no response."""
_BROKEN_OFF = (httpcore2.ReadError, httpcore2.WriteError, httpcore2.RemoteProtocolError)


async def exchange(connections: Connections, request: httpcore2.Request) -> Reply:
    """Use an idle connection if there is one, otherwise a new one.

    A server may close an idle connection just as it is reused. Nothing is wrong then, and the event
    need not wait for its next attempt: it is sent once more, over a new connection.
    """
    idle = await connections.take_idle(request.url)
    if idle is not None:
        with suppress(*_BROKEN_OFF):
            return await _exchange(connections, idle, request)
    return await _exchange(connections, connections.make(request.url), request)


async def _exchange(
    connections: Connections, connection: httpcore2.AsyncHTTPConnection, request: httpcore2.Request
) -> Reply:
    try:
        response = await connection.handle_async_request(request)
        try:
            body = await _beginning(response)
        finally:
            with anyio.CancelScope(shield=True):
                await response.aclose()
    finally:
        await connections.give_back(request.url, connection)
    return Reply(response.status, _lower(response.headers), body)


async def _beginning(response: httpcore2.Response) -> bytes:
    """As much of the body as arrives soon, up to a limit; a failure here is ignored."""
    body = bytearray()
    with suppress(*UNREACHED), anyio.move_on_after(BODY_SECONDS):
        async for part in response.aiter_stream():
            body += part
            if len(body) >= MAX_READ:
                break
    return bytes(body[:MAX_READ])


def _lower(headers: Sequence[tuple[bytes, bytes]]) -> dict[str, str]:
    return {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in headers}
