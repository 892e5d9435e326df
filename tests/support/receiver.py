"""A server that takes webhooks, and the commands that say where they go."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TypeAlias

import anyio
from click.testing import CliRunner, Result

from sa_outbox.cli import main
from sa_outbox.webhooks import verify

LOCAL = ["127.0.0.0/8"]
Command: TypeAlias = Callable[..., Awaitable[Result]]


class Receiver:
    """A server that takes webhooks, and answers with ``status``."""

    def __init__(self) -> None:
        self.status = 204
        self.got: list[tuple[dict[str, str], bytes]] = []
        self.port = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/hooks"

    def numbers(self, secret: str) -> list[int]:
        return [verify(body, headers, secret).json()["n"] for headers, body in self.got]

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")[1:-2]
                headers = {
                    name.lower(): value
                    for name, _, value in (each.partition(": ") for each in head)
                }
                body = await reader.readexactly(int(headers["content-length"]))
                self.got.append((headers, body))
                writer.write(f"HTTP/1.1 {self.status} x\r\ncontent-length: 0\r\n\r\n".encode())
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()


@asynccontextmanager
async def receiving() -> AsyncIterator[Receiver]:
    receiver = Receiver()
    server = await asyncio.start_server(receiver.answer, "127.0.0.1", 0)
    receiver.port = server.sockets[0].getsockname()[1]
    try:
        yield receiver
    finally:
        server.close()


async def endpoints_command(*arguments: str, stdin: str | None = None) -> Result:
    """``sa-outbox endpoints``, in a thread of its own: the loop goes on."""

    def invoke() -> Result:
        given = list(arguments)
        for each in arguments:
            if each.startswith("http://127.0.0.1:") and "refused" not in arguments:
                port = each.removeprefix("http://127.0.0.1:").partition("/")[0]
                given += ["--allow", *LOCAL, "--port", port]
        return CliRunner().invoke(main, ["endpoints", *given], input=stdin)

    return await anyio.to_thread.run_sync(invoke)


async def secret_of(result: Result) -> str:
    assert result.exit_code == 0, result.output
    return result.output.strip().splitlines()[-1]
