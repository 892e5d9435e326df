"""What does the webhook relay cost, against httpx2 alone?

A server in a process of its own that answers 204 to everything; the same bodies over 32
connections. By hand: 32 tasks that post with ``httpx2.AsyncClient``, unsigned, from a list in
memory, and forget. The relay: a consumer reads the log, keeps the order of each key, signs, checks
where it connects to, and settles. Goal: at least 0.7 of the speed of httpx2 alone.

``python -m benchmarks.bench_webhooks``
"""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import socket
import time
from contextlib import contextmanager
from datetime import timedelta
from itertools import count
from typing import TYPE_CHECKING

import httpx2
from sqlalchemy.ext.asyncio import create_async_engine

from sa_outbox import Outbox
from sa_outbox.relay.http import Webhook
from sa_outbox.schema import migrate
from sa_outbox.webhooks import new_secret

from .alone import main
from .drains import drained, fill
from .measure import Contestant, speeds, take_turns
from .shop import PAYLOAD

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sa_outbox.embedded import EmbeddedPostgres

    from .report import Report

EVENTS, AT_ONCE, ROUNDS = 4_000, 32, 9


class Server(asyncio.Protocol):
    """Requests with a content-length, one after the other."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport
        self._buffer = b""

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        while (end := self._buffer.find(b"\r\n\r\n")) >= 0:
            head = self._buffer[:end].lower()
            length = int(head.partition(b"content-length: ")[2].partition(b"\r\n")[0])
            if len(self._buffer) < end + 4 + length:
                return
            self._buffer = self._buffer[end + 4 + length :]
            assert isinstance(self._transport, asyncio.Transport)
            self._transport.write(self.answer(head))

    def answer(self, _head: bytes) -> bytes:
        return b"HTTP/1.1 204 No Content\r\n\r\n"


def serve(listening: socket.socket, kind: type[Server]) -> None:
    async def forever() -> None:
        server = await asyncio.get_running_loop().create_server(kind, sock=listening)
        await server.serve_forever()

    asyncio.run(forever())


@contextmanager
def server(kind: type[Server] = Server) -> Iterator[str]:
    with socket.create_server(("127.0.0.1", 0), backlog=512) as listening:
        process = multiprocessing.get_context("fork").Process(target=serve, args=(listening, kind))
        process.start()
        try:
            yield f"http://127.0.0.1:{listening.getsockname()[1]}/hook"
        finally:
            process.terminate()
            process.join()


async def by_hand(url: str) -> float:
    body = json.dumps(PAYLOAD).encode()
    numbers = count()
    limits = httpx2.Limits(max_connections=AT_ONCE)
    async with httpx2.AsyncClient(limits=limits, trust_env=False) as client:

        async def post() -> None:
            while (number := next(numbers)) < EVENTS:
                headers = {"content-type": "application/json", "webhook-id": str(number)}
                answer = await client.post(url, content=body, headers=headers)
                answer.raise_for_status()

        began = time.perf_counter()
        async with asyncio.TaskGroup() as tasks:
            for _ in range(AT_ONCE):
                tasks.create_task(post())
        return time.perf_counter() - began


async def run(postgres: EmbeddedPostgres, url: str, report: Report) -> None:
    engine = create_async_engine(postgres.url("asyncpg"))
    async with engine.begin() as connection:
        await connection.run_sync(migrate, Outbox().settings.names)
    await fill(engine, EVENTS)
    outbox = Outbox()
    relay = Webhook(
        secrets=new_secret(),
        allow=["127.0.0.0/8"],
        allow_http=True,
        ports="any",
        timeout=timedelta(seconds=15),
    )
    outbox.relay("hook", relay, on="order.placed", to=url, concurrency=AT_ONCE)
    contestants: dict[str, Contestant] = {
        "httpx2 alone": lambda: by_hand(url),
        "the webhook relay": lambda: drained(outbox, engine, "hook"),
    }
    title = f"{EVENTS:,} requests, {AT_ONCE} at once"
    report.add(speeds("webhooks", title, await take_turns(contestants, ROUNDS), EVENTS))
    await engine.dispose()


def begin() -> None:
    with server() as url:

        async def towards(postgres: EmbeddedPostgres, report: Report) -> None:
            await run(postgres, url, report)

        main("bench_webhooks", towards)


if __name__ == "__main__":
    begin()
