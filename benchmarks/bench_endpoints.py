"""Do fifty webhook endpoints notice that one hangs and one fails?

Fifty endpoints get the same events, each by a relay of its own; then fifty others beside one that
takes a request and never answers, and one that answers 500. They take turns. The ratio is how long
the fifty took without the two, against with them: 1 is that nobody notices.

``python -m benchmarks.bench_endpoints``
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

from sqlalchemy import text
from sqlalchemy.ext.asyncio import create_async_engine

from sa_outbox import Outbox
from sa_outbox.consumer import Consumer
from sa_outbox.observe import DeliverySettled
from sa_outbox.relay.http import Webhook
from sa_outbox.schema import migrate
from sa_outbox.webhooks import new_secret

from .alone import main
from .bench_webhooks import Server, server
from .drains import fill
from .measure import Contestant, speeds, take_turns

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncEngine

    from sa_outbox.embedded import EmbeddedPostgres

    from .report import Report

EVENTS, OTHERS, ROUNDS = 40, 50, 5


class Moody(Server):
    """To /hook/fails it answers 500, to /hook/hangs nothing."""

    def answer(self, head: bytes) -> bytes:
        if b"/fails" in head:
            return b"HTTP/1.1 500 No\r\ncontent-length: 0\r\n\r\n"
        return b"" if b"/hangs" in head else super().answer(head)


async def served(engine: AsyncEngine, url: str, bad: tuple[str, ...]) -> float:
    """Seconds until the fifty have everything."""
    outbox, finished, left = Outbox(), asyncio.Event(), OTHERS * EVENTS

    def count(seen: Any) -> None:
        nonlocal left
        if isinstance(seen, DeliverySettled) and seen.outcome == "done":
            left -= 1
            if not left:
                finished.set()

    secret = new_secret()
    for name in (*bad, *(f"e{number}" for number in range(OTHERS))):
        relay = Webhook(secrets=secret, allow=["127.0.0.0/8"], allow_http=True, ports="any")
        outbox.relay(name, relay, on="order.placed", to=f"{url}/{name}", concurrency=4)
    async with engine.begin() as connection:
        await connection.execute(text("DELETE FROM outbox_listeners"))
        await connection.execute(text("DELETE FROM outbox_deliveries"))
    consumer = Consumer(outbox, engine, observers=[count])
    began = time.perf_counter()
    running = asyncio.create_task(consumer.run())
    await finished.wait()
    seconds = time.perf_counter() - began
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    return seconds


async def run(postgres: EmbeddedPostgres, url: str, report: Report) -> None:
    engine = create_async_engine(postgres.url("asyncpg"), pool_size=20)
    async with engine.begin() as connection:
        await connection.run_sync(migrate, Outbox().settings.names)
    await fill(engine, EVENTS)
    contestants: dict[str, Contestant] = {
        "by themselves": lambda: served(engine, url, ()),
        "beside one that hangs, one that fails": lambda: served(engine, url, ("hangs", "fails")),
    }
    times = await take_turns(contestants, ROUNDS, warm=False)
    await engine.dispose()
    title = f"{OTHERS} endpoints, {EVENTS} events for each"
    report.add(speeds("endpoints", title, times, OTHERS * EVENTS))


def begin() -> None:
    with server(Moody) as url:

        async def towards(postgres: EmbeddedPostgres, report: Report) -> None:
            await run(postgres, url, report)

        main("bench_endpoints", towards)


if __name__ == "__main__":
    begin()
