"""An HTTP server that behaves as it is told: well, badly, slowly, or not at all."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import TypeAlias

import anyio

OK = b"HTTP/1.1 204 No Content\r\n\r\n"


@dataclass
class Received:
    line: str
    headers: dict[str, str]
    body: bytes


Behave: TypeAlias = Callable[["Endpoint", Received, asyncio.StreamWriter], Awaitable[None]]


@dataclass
class Endpoint:
    """Counts connections, keeps requests."""

    behave: Behave | None = None
    answers: list[bytes] = field(default_factory=list)
    """One after the other; then ``OK``."""
    connections: int = 0
    received: list[Received] = field(default_factory=list)
    sent: int = 0
    """Bytes of an answer without an end."""
    port: int = 0

    def url(self, path: str = "/hook", *, scheme: str = "http", host: str = "127.0.0.1") -> str:
        return f"{scheme}://{host}:{self.port}{path}"

    @asynccontextmanager
    async def running(self, context: ssl.SSLContext | None = None) -> AsyncIterator[Endpoint]:
        serving: set[asyncio.Task[None]] = set()

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            self.connections += 1
            try:
                with suppress(OSError, asyncio.IncompleteReadError):
                    while True:
                        await self._serve_one(reader, writer)
            finally:
                writer.transport.abort()

        def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = asyncio.create_task(serve(reader, writer))
            serving.add(task)
            task.add_done_callback(serving.discard)

        server = await asyncio.start_server(accept, "127.0.0.1", 0, ssl=context)
        self.port = server.sockets[0].getsockname()[1]
        try:
            yield self
        finally:
            server.close()
            ended = list(serving)
            for each in ended:
                each.cancel()
            await asyncio.gather(*ended, return_exceptions=True)
            await server.wait_closed()

    async def _serve_one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        line, *rest = head.strip().split("\r\n")
        headers = {
            name.lower(): value for name, _, value in (each.partition(": ") for each in rest)
        }
        body = await reader.readexactly(int(headers.get("content-length", "0")))
        request = Received(line, headers, body)
        self.received.append(request)
        if self.behave is not None:
            await self.behave(self, request, writer)
        else:
            writer.write(self.answers.pop(0) if self.answers else OK)
            await writer.drain()


def answer(status: int, body: bytes = b"", **headers: str) -> bytes:
    head = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in headers.items())
    length = f"content-length: {len(body)}\r\n"
    return f"HTTP/1.1 {status} Said\r\n{head}{length}\r\n".encode() + body


async def never(endpoint: Endpoint, request: Received, writer: asyncio.StreamWriter) -> None:
    """Accepted, and no word."""
    await anyio.sleep_forever()


def drips(before: bytes, again: bytes) -> Behave:
    """First *before*, then *again*, over and over, slowly."""

    async def behave(endpoint: Endpoint, request: Received, writer: asyncio.StreamWriter) -> None:
        writer.write(before)
        while True:
            writer.write(again)
            await writer.drain()
            await anyio.sleep(0.02)

    return behave


def floods(before: bytes, again: bytes) -> Behave:
    """First *before*, then *again*, over and over, as fast as it is taken."""

    async def behave(endpoint: Endpoint, request: Received, writer: asyncio.StreamWriter) -> None:
        writer.write(before)
        while True:
            writer.write(again)
            await writer.drain()
            endpoint.sent += len(again)

    return behave
