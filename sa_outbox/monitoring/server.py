"""``/healthz``, ``/readyz`` and ``/metrics`` over HTTP, from a thread of its own.

The thread has an event loop of its own, so it can say that the consumer's does not turn. It answers
three paths, one request per connection, and trusts nobody: a request has few bytes and little time,
connections are few, and no answer holds more than these pages say.
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

log = logging.getLogger("sa_outbox.monitoring")

MOST_BYTES = 8_192
"""Of a request, with its headers."""
READING, WRITING = 5.0, 5.0
"""Seconds for a request to arrive, and for its answer to be taken."""
MOST_CONNECTIONS = 50
BEAT = 0.5
"""Seconds between two questions to the consumer's event loop."""
ENDS_WITHIN = 10.0
_JSON, _TEXT = "application/json", "text/plain; charset=utf-8"


class Monitor:
    """Serves the health of a consumer, and its metrics if it is given a *registry*.

    ::

        with Monitor(consumer, port=9100):
            await consumer.run()

    Entered in the event loop that runs the consumer. *port* 0: any that is free, see ``port``.
    Nothing is encrypted and nobody is asked for a password: *host* is the machine itself unless
    you say otherwise.
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
        self.port = port
        self.health = Health(consumer.settings)
        self._observers = consumer.observers
        self._registry = registry
        self._open = 0
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
        self._serving.wait(ENDS_WITHIN)
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
            self._thread.join(ENDS_WITHIN)

    def respond(self, head: bytes) -> tuple[HTTPStatus, str, bytes]:
        """The answer to a request, of which *head* is the line and the headers."""
        words = head.partition(b"\r\n")[0].split(b" ")
        if len(words) != 3 or not words[2].startswith(b"HTTP/1."):
            return _plain(HTTPStatus.BAD_REQUEST)
        if words[0] not in (b"GET", b"HEAD"):
            return _plain(HTTPStatus.METHOD_NOT_ALLOWED)
        match words[1].partition(b"?")[0]:
            case b"/healthz":
                return _told(self.health.alive())
            case b"/readyz":
                return _told(self.health.ready())
            case b"/metrics" if self._registry is not None:
                return HTTPStatus.OK, *prometheus.rendered(self._registry)
            case _:
                return _plain(HTTPStatus.NOT_FOUND)

    # In the thread

    def _run(self, listening: socket.socket) -> None:
        try:
            asyncio.run(self._serve(listening))
        except Exception:
            log.exception("the monitor has ended; the consumer goes on")
        finally:
            listening.close()
            self._serving.set()

    async def _serve(self, listening: socket.socket) -> None:
        self._loop, self._stopping = asyncio.get_running_loop(), asyncio.Event()
        server = await asyncio.start_server(self._answer, sock=listening, limit=MOST_BYTES)
        self._serving.set()
        try:
            while not self._stopping.is_set():
                self._ask()
                with suppress(TimeoutError):
                    async with asyncio.timeout(BEAT):
                        await self._stopping.wait()
        finally:
            server.close()

    def _ask(self) -> None:
        if self._watched is not None:
            with suppress(RuntimeError):  # it is closed: the consumer is not there any more
                self._watched.call_soon_threadsafe(self.health.turned)

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._open += 1
        try:
            if self._open <= MOST_CONNECTIONS:
                await self._converse(reader, writer)
        except (OSError, TimeoutError, asyncio.IncompleteReadError):
            pass  # gone, or too slow: the connection ends
        except Exception:
            log.exception("a request could not be answered")
        finally:
            self._open -= 1
            writer.transport.abort() if writer.transport.get_write_buffer_size() else writer.close()

    async def _converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = b""
        try:
            async with asyncio.timeout(READING):
                head = await reader.readuntil(b"\r\n\r\n")
        except TimeoutError:
            status, kind, body = _plain(HTTPStatus.REQUEST_TIMEOUT)
        except asyncio.LimitOverrunError:
            status, kind, body = _plain(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE)
        else:
            status, kind, body = self._safely(head)
        writer.write(_head(status, kind, len(body)) + (b"" if head[:5] == b"HEAD " else body))
        async with asyncio.timeout(WRITING):
            await writer.drain()
            writer.close()
            await writer.wait_closed()

    def _safely(self, head: bytes) -> tuple[HTTPStatus, str, bytes]:
        try:
            return self.respond(head)
        except Exception:
            # A registry that is shared shows collectors of others, which may raise.
            log.exception("a request could not be answered")
            return _plain(HTTPStatus.INTERNAL_SERVER_ERROR)


def _listen(host: str, port: int) -> socket.socket:
    try:
        kind = socket.AF_INET6 if ":" in host else socket.AF_INET
        return socket.create_server((host, port), family=kind, backlog=MOST_CONNECTIONS)
    except (OSError, OverflowError) as error:
        reason = getattr(error, "strerror", None) or error
        raise ConfigError(f"the monitor can't listen on {host}, port {port}: {reason}") from error


def _told(answer: Answer) -> tuple[HTTPStatus, str, bytes]:
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
