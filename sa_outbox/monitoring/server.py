"""``/healthz``, ``/readyz`` and ``/metrics`` over HTTP, from a thread of its own.

The thread has its own event loop, so it can report that the consumer's is stuck. It answers three
paths, one request per connection, and trusts nobody: a request is limited in bytes and time, and no
answer holds more than these pages. Connections are few. When there is no room for another one, the
one that has been silent longest is closed: a probe sends its request at once, and is answered
however many others hold connections and send nothing.
"""

from __future__ import annotations

import asyncio
import json
import logging
import socket
import threading
from contextlib import suppress
from http import HTTPStatus
from typing import TYPE_CHECKING

from sa_outbox.errors import ConfigError

from . import prometheus
from .health import Health

if TYPE_CHECKING:
    from types import TracebackType

    from prometheus_client import CollectorRegistry

    from sa_outbox.consumer import Consumer

    from .health import Answer

log: logging.Logger = logging.getLogger("sa_outbox.monitoring")

MAX_BYTES = 8_192
"""Maximum size of a request, including headers."""
READ_SECONDS, WRITE_SECONDS = 5.0, 5.0
"""Seconds for a request to arrive, and for its answer to be read."""
MAX_CONNECTIONS = 50
BEAT_SECONDS = 0.5
"""Seconds between two probes of the consumer's event loop."""
JOIN_SECONDS = 10.0
_JSON, _TEXT = "application/json", "text/plain; charset=utf-8"


class Monitor:
    """Serves the health of a consumer, and its metrics if it is given a *registry*.

    ::

        with Monitor(consumer, port=9100):
            await consumer.run()

    Entered in the event loop that runs the consumer. *port* 0: any that is free, see ``port``.
    There is no encryption and no password: by default *host* is the local machine only.
    """

    def __init__(
        self,
        consumer: Consumer,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        registry: CollectorRegistry | None = None,
    ) -> None:
        self.host = host
        self.port: int = port
        self.health: Health = Health(consumer.settings)
        self._observers = consumer.observers
        self._sleeps = consumer.settings.idle_after is not None
        self._wake = consumer.wake
        self._registry = registry
        self._open: dict[asyncio.StreamWriter, bool] = {}
        """Open connections, oldest first; whether each has sent a request."""
        self._watched: asyncio.AbstractEventLoop | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopping: asyncio.Event | None = None
        self._serving = threading.Event()
        self._thread: threading.Thread | None = None

    def __enter__(self) -> Monitor:
        """Raises :class:`ConfigError` when it can't listen there."""
        self._watched, self._loop = asyncio.get_running_loop(), None
        self._serving.clear()
        listening = _listen(self.host, self.port)
        self.port = listening.getsockname()[1]
        self.health.turned()
        self._observers.add(self.health)
        self._thread = threading.Thread(
            target=self._run, args=(listening,), name="sa_outbox monitor", daemon=True
        )
        self._thread.start()
        self._serving.wait(JOIN_SECONDS)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        where: TracebackType | None,
    ) -> None:
        self._observers.remove(self.health)
        if self._loop is not None and self._stopping is not None and self._thread is not None:
            with suppress(RuntimeError):  # it has ended
                self._loop.call_soon_threadsafe(self._stopping.set)
            self._thread.join(JOIN_SECONDS)

    def respond(self, head: bytes) -> tuple[HTTPStatus, str, bytes]:
        """The response to a request; *head* is its request line and headers."""
        words = head.partition(b"\r\n")[0].split(b" ")
        if len(words) != 3 or not words[2].startswith(b"HTTP/1."):
            return _plain(HTTPStatus.BAD_REQUEST)
        if words[0] == b"POST" and words[1] == b"/wake" and self._sleeps:
            self._wake()
            return _plain(HTTPStatus.ACCEPTED)
        if words[0] not in (b"GET", b"HEAD"):
            return _plain(HTTPStatus.METHOD_NOT_ALLOWED)
        match words[1].partition(b"?")[0]:
            case b"/healthz":
                return _respond(self.health.alive())
            case b"/readyz":
                return _respond(self.health.ready())
            case b"/metrics" if self._registry is not None:
                return HTTPStatus.OK, *prometheus.rendered(self._registry)
            case _:
                return _plain(HTTPStatus.NOT_FOUND)

    # In the thread

    def _run(self, listening: socket.socket) -> None:
        try:
            asyncio.run(self._serve(listening))
        except Exception:
            log.exception("the monitor has ended; the consumer continues")
        finally:
            listening.close()
            self._serving.set()

    async def _serve(self, listening: socket.socket) -> None:
        self._loop, self._stopping = asyncio.get_running_loop(), asyncio.Event()
        server = await asyncio.start_server(self._answer, sock=listening, limit=MAX_BYTES)
        self._serving.set()
        try:
            while not self._stopping.is_set():
                self._ask()
                with suppress(TimeoutError):
                    async with asyncio.timeout(BEAT_SECONDS):
                        await self._stopping.wait()
        finally:
            server.close()

    def _ask(self) -> None:
        if self._watched is not None:
            with suppress(RuntimeError):  # it is closed: the consumer is not there any more
                self._watched.call_soon_threadsafe(self.health.turned)

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._open[writer] = False
        self._make_room()
        try:
            await self._converse(reader, writer)
        except (OSError, TimeoutError, asyncio.IncompleteReadError):
            pass  # gone, or too slow: the connection ends
        except Exception:
            log.exception("a request could not be answered")
        finally:
            del self._open[writer]
            writer.transport.abort() if writer.transport.get_write_buffer_size() else writer.close()

    def _make_room(self) -> None:
        """Close the connection that has been silent longest, else the oldest; its task notices."""
        connections = {each: asked for each, asked in self._open.items() if not _is_cut(each)}
        silent = [each for each, asked in connections.items() if not asked]
        asked = [each for each, asked in connections.items() if asked]
        for each in (*silent, *asked)[: max(0, len(connections) - MAX_CONNECTIONS)]:
            each.transport.abort()

    async def _converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = b""
        try:
            async with asyncio.timeout(READ_SECONDS):
                head = await reader.readuntil(b"\r\n\r\n")
                self._open[writer] = True
        except TimeoutError:
            status, kind, body = _plain(HTTPStatus.REQUEST_TIMEOUT)
        except asyncio.LimitOverrunError:
            status, kind, body = _plain(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE)
        else:
            status, kind, body = self._safely(head)
        writer.write(_head(status, kind, len(body)) + (b"" if head[:5] == b"HEAD " else body))
        async with asyncio.timeout(WRITE_SECONDS):
            await writer.drain()
            writer.close()
            await writer.wait_closed()

    def _safely(self, head: bytes) -> tuple[HTTPStatus, str, bytes]:
        try:
            return self.respond(head)
        except Exception:
            # A shared registry has other collectors, which may raise.
            log.exception("a request could not be answered")
            return _plain(HTTPStatus.INTERNAL_SERVER_ERROR)


def _is_cut(connection: asyncio.StreamWriter) -> bool:
    return connection.transport.is_closing()


def _listen(host: str, port: int) -> socket.socket:
    try:
        kind = socket.AF_INET6 if ":" in host else socket.AF_INET
        return socket.create_server((host, port), family=kind, backlog=MAX_CONNECTIONS)
    except (OSError, OverflowError) as error:
        reason = getattr(error, "strerror", None) or error
        raise ConfigError(f"the monitor can't listen on {host}, port {port}: {reason}") from error


def _respond(answer: Answer) -> tuple[HTTPStatus, str, bytes]:
    status = HTTPStatus.OK if answer.is_good else HTTPStatus.SERVICE_UNAVAILABLE
    document = {"status": "ok" if answer.is_good else "not ok", "reasons": answer.reasons}
    return status, _JSON, json.dumps(document).encode() + b"\n"


def _plain(status: HTTPStatus) -> tuple[HTTPStatus, str, bytes]:
    return status, _TEXT, f"{status.phrase}\n".encode()


def _head(status: HTTPStatus, kind: str, length: int) -> bytes:
    lines = [
        f"HTTP/1.1 {status.value} {status.phrase}",
        f"Content-Type: {kind}",
        f"Content-Length: {length}",
        "Cache-Control: no-store",
        "X-Content-Type-Options: nosniff",
        *(["Allow: GET, HEAD"] if status == HTTPStatus.METHOD_NOT_ALLOWED else []),
        "Connection: close",
    ]
    return "\r\n".join([*lines, "", ""]).encode("ascii")
