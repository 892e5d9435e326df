"""The program: a server, a shop, a consumer and a display; then the summary."""

from __future__ import annotations

import os
import signal
import sys
from contextlib import contextmanager
from functools import partial
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, TypeAlias

import anyio
from sqlalchemy.ext.asyncio import create_async_engine

from ..consumer import Consumer, ConsumerSettings
from ..embedded import EmbeddedPostgres
from ..schema import migrate
from .counts import TITLES, Counts
from .listeners import outbox
from .shop import Base, Shop
from .summary import Summary, read_facts

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator

    from sqlalchemy.ext.asyncio import AsyncEngine

    from .counts import Snapshot

    Say: TypeAlias = Callable[[str], object]
    Show: TypeAlias = Callable[[Callable[[], Snapshot]], Coroutine[Any, Any, None]]

OPEN_SECONDS = 8.0
"""How long the shop is open when nobody can press Ctrl-C."""
DRAIN_SECONDS = 60.0
"""Seconds for the listeners to handle the rest; then the summary reports what they did not."""


def run(seconds: float | None, say: Say) -> bool:
    """Run the demo; return whether everything added up at the end. *say* gets lines for people to
    read.

    On a terminal it is shown live and runs until Ctrl-C, or for *seconds*. Elsewhere it prints a
    line per second and ends by itself.
    """
    show = _choose_display(say)
    if show is None:
        show, seconds = partial(_show_lines, say), seconds or OPEN_SECONDS
    with EmbeddedPostgres() as server:
        say(f"PostgreSQL {server.version} on port {server.port}, for the time of this demo.")
        summary = anyio.run(_run, server.url("asyncpg"), seconds, show)
    say(summary.text)
    return not summary.problems


def _choose_display(say: Say) -> Show | None:
    """The live display; None if this is not a terminal, or one that can't show it."""
    if not sys.stdout.isatty() or os.environ.get("TERM", "dumb") in ("dumb", "unknown"):
        return None
    if find_spec("rich") is None:
        say('To see it live, install rich: pip install "sa_outbox[embedded]"')
        return None
    from .display import show  # noqa: PLC0415 - loads rich, which may be missing

    return show


async def _run(url: str, seconds: float | None, show: Show) -> Summary:
    engine = create_async_engine(url)
    try:
        async with engine.begin() as connection:
            await connection.run_sync(migrate, outbox.settings.names)
            await connection.run_sync(Base.metadata.create_all)
        shop = Shop(outbox.async_sessionmaker(engine))
        counts = Counts(shop, outbox.listeners)
        with _one_error():
            async with anyio.create_task_group() as aside:
                aside.start_soon(_close_on_signal, shop)
                aside.start_soon(_watch, show, counts, shop)
                await _work(engine, shop, counts, seconds)
                aside.cancel_scope.cancel()
        return Summary(
            facts=await read_facts(engine),
            counted=counts.snapshot(),
            nameless_orders=shop.nameless_orders,
        )
    finally:
        await engine.dispose()


async def _work(engine: AsyncEngine, shop: Shop, counts: Counts, seconds: float | None) -> None:
    # The display shows what happens: lines would be drawn over it.
    settings = ConsumerSettings(log_level="off")
    consumer = Consumer(outbox, engine, settings=settings, observers=[counts.observe])
    async with anyio.create_task_group() as tasks:
        await tasks.start(consumer.run)
        await shop.open(seconds)
        with anyio.move_on_after(DRAIN_SECONDS):
            await consumer.drain()
        consumer.stop("the demo is over")


async def _close_on_signal(shop: Shop) -> None:
    """The first signal closes the shop; a second one ends the program immediately."""
    with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as received:
        async for _ in received:
            shop.close()
            return


async def _watch(show: Show, counts: Counts, shop: Shop) -> None:
    await show(counts.snapshot)
    shop.close()  # nobody can watch anymore, or press Ctrl-C


async def _show_lines(say: Say, snapshot: Callable[[], Snapshot]) -> None:
    say("The shop is open; one order in four is rolled back. Three listeners read along.\n")
    say(TITLES)
    while True:
        await anyio.sleep(1)
        say(snapshot().line)


@contextmanager
def _one_error() -> Iterator[None]:
    """A task group wraps what its tasks raise; the command line wants the error itself."""
    try:
        yield
    except BaseExceptionGroup as group:
        error: BaseException = group
        while isinstance(error, BaseExceptionGroup):
            error = error.exceptions[0]
        raise error from error.__cause__
