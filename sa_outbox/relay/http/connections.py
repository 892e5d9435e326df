"""Open idle connections, for the next message to the same host.

Not httpcore2's pool: for each request it examines every connection, which with 32 of them costs
more than the request. Here a message takes the most recently used one, and puts it back. The
listener's ``concurrency`` limits how many there are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import anyio
import httpcore2

if TYPE_CHECKING:
    import ssl

IDLE_SECONDS = 20.0
"""Seconds after which an idle connection is not reused: many servers close theirs after 60."""
MAX_IDLE = 100


class Connections:
    def __init__(
        self,
        ssl_context: ssl.SSLContext,
        secure: httpcore2.AsyncNetworkBackend,
        plain: httpcore2.AsyncNetworkBackend,
    ) -> None:
        """*secure* connects for https, *plain* for http."""
        self._ssl_context = ssl_context
        self._secure = secure
        self._plain = plain
        self._idle: dict[tuple[bytes, bytes, int], list[httpcore2.AsyncHTTPConnection]] = {}
        self._open = True

    async def take_idle(self, url: httpcore2.URL) -> httpcore2.AsyncHTTPConnection | None:
        """A used connection, exclusive until it is given back."""
        origin = url.origin
        idle = self._idle.get((origin.scheme, origin.host, origin.port), [])
        while idle:
            found = idle.pop()
            if found.is_available() and not found.has_expired():
                return found
            await found.aclose()
        return None

    def make(self, url: httpcore2.URL) -> httpcore2.AsyncHTTPConnection:
        """A new connection. Connects with its first request."""
        return httpcore2.AsyncHTTPConnection(
            url.origin,
            ssl_context=self._ssl_context,
            keepalive_expiry=IDLE_SECONDS,
            network_backend=self._secure if url.scheme == b"https" else self._plain,
        )

    async def give_back(
        self, url: httpcore2.URL, connection: httpcore2.AsyncHTTPConnection
    ) -> None:
        """Give it back in any case, even after an error. If it is not idle then, it is closed."""
        if not self._open or not connection.is_available():
            if not connection.is_closed():
                with anyio.CancelScope(shield=True):
                    await connection.aclose()
            return
        origin = url.origin
        idle = self._idle.setdefault((origin.scheme, origin.host, origin.port), [])
        idle.append(connection)
        # The last one is used first; so those idle longest are at the front.
        if len(idle) > MAX_IDLE or idle[0].has_expired():
            with anyio.CancelScope(shield=True):
                await idle.pop(0).aclose()

    async def close(self) -> None:
        self._open = False
        hosts, self._idle = self._idle, {}
        for idle in hosts.values():
            for each in idle:
                await each.aclose()
