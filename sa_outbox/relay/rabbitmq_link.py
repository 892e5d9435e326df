"""A connection to RabbitMQ, its channel, and messages that are confirmed together.

aio-pika leaves some loose ends. A failed connection closes itself when it is garbage collected, in
whatever thread that happens. And when a broker stops gracefully, callers waiting for a slot in the
client's queue of ten frames are not notified.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, TypeAlias

import anyio

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

Ready: TypeAlias = tuple[str, str, bytes, Any]
"""Exchange, routing key, body and properties."""
CLOSE_SECONDS = 1.0
AFTER_CLOSE_SECONDS = 0.1
"""Seconds until those notified by a closed channel have noticed."""


class Link:
    """*pika* and *rmq* are the client's modules, from an extra."""

    def __init__(self, pika: Any, rmq: Any, url: str, timeout: float) -> None:
        self._pika = pika
        self._rmq = rmq
        self._url = url
        self._timeout = timeout
        self._connection: Any = None
        self._channel: Any = None
        self._closing: Any = None
        """The channel's future: done when it is closed."""
        self._known: set[str] = {""}
        """Exchanges known to exist."""
        self._opening: anyio.Lock | None = None

    async def open(self) -> None:
        """Open what is not open, or no longer."""
        if self._opening is None:
            self._opening = anyio.Lock()
        async with self._opening:
            if self._connection is None or self._connection.is_closed:
                self._channel = None
                self._connection = await self._connected()
            if self._channel is None or self._channel.is_closed:
                channel = self._connection.channel(on_return_raises=True)
                await channel.initialize()
                # The lower-level one: its messages need not wait for each other to be written.
                self._channel = await channel.get_underlay_channel()
                # Once: aiormq creates another one for each caller, and keeps them all.
                self._closing = self._channel.closing

    async def _connected(self) -> Any:
        connection = self._pika.Connection(self._pika.connection.make_url(self._url))
        try:
            await connection.connect(timeout=self._timeout)
        except BaseException:
            with anyio.move_on_after(CLOSE_SECONDS, shield=True):
                await connection.close()
            raise
        return connection

    async def missing(self, exchanges: Iterable[str]) -> set[str]:
        """Those that do not exist; each is checked once, on a channel of its own."""
        gone = set()
        for exchange in exchanges:
            if exchange in self._known:
                continue
            channel = self._connection.channel()
            await channel.initialize()
            try:
                await channel.get_exchange(exchange)
                self._known.add(exchange)
                await channel.close()
            except self._rmq.exceptions.ChannelNotFoundEntity:
                gone.add(exchange)
        return gone

    def forget_exchanges(self) -> None:
        self._known = {""}

    async def publish(self, ready: Mapping[int, Ready]) -> dict[int, BaseException]:
        """Publish all of them on the open channel; return the errors of those that were not
        confirmed."""
        if not ready:
            return {}
        channel, closing = self._channel, self._closing
        if channel is None:  # dropped by another task since it was opened
            return dict.fromkeys(ready, ConnectionError("the connection was closed"))
        tasks = {
            place: asyncio.ensure_future(
                channel.basic_publish(
                    body,
                    exchange=exchange,
                    routing_key=key,
                    properties=properties,
                    mandatory=True,
                    wait=False,
                )
            )
            for place, (exchange, key, body, properties) in ready.items()
        }
        try:
            late = await _ended(closing, tasks.values(), self._timeout)
        except BaseException:
            # What was written may still arrive; what was not must not.
            with anyio.CancelScope(shield=True):
                await _cancel(tasks.values())
                await self.drop()
            raise
        why: Exception = TimeoutError(f"no confirmation within {self._timeout:g} s")
        if channel.is_closed:
            why = ConnectionError("the channel was closed")
        await _cancel(late)
        if late:
            await self.drop()
        found: dict[int, BaseException] = {}
        for place, task in tasks.items():
            if task in late:
                found[place] = why
            elif task.cancelled():
                found[place] = ConnectionError("the channel was closed")
            elif (error := task.exception()) is not None:
                found[place] = error
        return found

    async def drop(self) -> None:
        """Close the connection; the next message opens another."""
        connection, self._connection, self._channel = self._connection, None, None
        self.forget_exchanges()
        if connection is not None and not connection.is_closed:
            # Even if cancelled: otherwise its tasks would continue.
            with anyio.move_on_after(CLOSE_SECONDS, shield=True):
                await connection.close()


async def _ended(
    closing: asyncio.Future[Any], tasks: Iterable[asyncio.Future[Any]], timeout: float
) -> set[asyncio.Future[Any]]:
    """Wait for all; return those that did not end. Once the channel is closed, only for a moment: a
    caller waiting for a slot in the queue of frames, or for the lock of such a caller, would wait
    forever."""
    together = asyncio.ensure_future(asyncio.wait(tasks, timeout=timeout))
    try:
        await asyncio.wait([together, closing], return_when=asyncio.FIRST_COMPLETED)
        if not together.done():
            await asyncio.wait(tasks, timeout=min(timeout, AFTER_CLOSE_SECONDS))
    finally:
        together.cancel()
    return {each for each in tasks if not each.done()}


async def _cancel(tasks: Iterable[asyncio.Future[Any]]) -> None:
    pending = [each for each in tasks if not each.done()]
    for each in pending:
        each.cancel()
    if pending:
        await asyncio.wait(pending)
