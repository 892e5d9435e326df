"""One producer, from start to end. It is never repaired: after a failure, a new one replaces it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import anyio
from aiokafka import AIOKafkaProducer
from aiokafka.errors import UnknownTopicOrPartitionError
from aiokafka.partitioner import murmur2

from .faults import unavailable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .packs import Pack, Place

CLOSE_SECONDS = 5.0
"""Seconds to close a producer whose broker does not answer."""
LET_IT_END_SECONDS = 1.0
NO_LIMIT = 2**31 - 1
"""``packs.py`` decides how much goes into a record batch."""

MAX_KNOWN = 65536
"""How many keys' partitions are remembered, per destination."""


class _NoAnswerError(TimeoutError):
    """Raised because aiokafka would wait forever."""


class Link:
    """Reports record batches as they are answered; ``over`` as soon as one has failed."""

    def __init__(self, options: dict[str, Any]) -> None:
        self.over: bool = False
        self._producer = AIOKafkaProducer(
            **options, enable_idempotence=True, acks="all", max_batch_size=NO_LIMIT
        )
        self._under_way: set[anyio.CancelScope] = set()
        self._places: dict[str, Places] = {}
        self._ended = anyio.Event()

    async def start(self, *, within: float) -> None:
        starting = asyncio.ensure_future(self._producer.start())
        try:
            with anyio.fail_after(within):
                await asyncio.shield(starting)
        except BaseException as error:
            # If cancelled during its first request, it would leave a connection open.
            with anyio.move_on_after(LET_IT_END_SECONDS, shield=True):
                await asyncio.wait([starting])
            starting.cancel()
            await self.give_up()
            if isinstance(error, Exception):
                raise unavailable(error) from error
            raise

    async def partitions(self, destination: str, *, within: float) -> list[int]:
        """Raises ``UnknownTopicOrPartitionError`` if the brokers answer and do not know it. If they
        do not answer in time, the link is over: nothing else replaces a producer whose task for
        metadata has ended."""
        late = anyio.move_on_after(within)
        self._under_way.add(late)
        why: Exception = TimeoutError()
        try:
            with late:
                return sorted(await self._producer.partitions_for(destination))
        except UnknownTopicOrPartitionError as error:
            why = error
        finally:
            self._under_way.discard(late)
        if self.over or not await self._is_heard():
            await self.give_up()
            raise unavailable(why) from why
        raise UnknownTopicOrPartitionError(f"no broker knows it, after {within:g} s") from why

    def places(self, destination: str, partitions: list[int]) -> Places:
        """Where its messages go, while it has these partitions."""
        known = self._places.get(destination)
        if known is None or known.partitions != partitions:
            known = self._places[destination] = Places(destination, partitions)
        return known

    def available(self, destination: str) -> list[int]:
        """Partitions known to have a leader."""
        cluster = self._producer.client.cluster
        return sorted(cluster.available_partitions_for_topic(destination) or ())

    async def deliver(self, packs: Sequence[Pack], *, within: float) -> None:
        """Send them and wait: afterwards each is confirmed, or has its error, or the link was given
        up meanwhile. If one failed, or this is cancelled, the link is over."""
        late = anyio.move_on_after(within)
        self._under_way.add(late)
        try:
            with late:
                async with anyio.create_task_group() as tasks:
                    for pack in packs:
                        tasks.start_soon(self._deliver, pack)
        finally:
            self._under_way.discard(late)
            open_ones = [pack for pack in packs if not pack.confirmed]
            for pack in open_ones:
                pack.error = pack.error or _NoAnswerError(f"not confirmed within {within:g} s")
            if open_ones:
                await self.give_up()

    async def give_up(self) -> None:
        """Drop everything it still holds without sending it. Whoever waits for it stops waiting."""
        is_first, self.over = not self.over, True
        for scope in self._under_way:
            scope.cancel()
        with anyio.move_on_after(CLOSE_SECONDS, shield=True):
            if is_first:
                # Only once: if cancelled twice, aiokafka's sender would not wait for its requests.
                try:
                    await self._end()
                finally:
                    self._ended.set()
            else:
                await self._ended.wait()

    async def _deliver(self, pack: Pack) -> None:
        destination, partition = pack.place
        try:
            batch = self._producer.create_batch()
            for each in pack.records:
                batch.append(key=each.key, value=each.value, timestamp=None, headers=each.headers)
            sent = await self._producer.send_batch(batch, destination, partition=partition)
            await sent
        except Exception as error:  # noqa: BLE001 - any error concerns this record batch
            pack.error = error
        else:
            pack.confirmed = True

    async def _is_heard(self) -> bool:
        with anyio.move_on_after(CLOSE_SECONDS):
            return bool(await self._producer.client.force_metadata_update())
        return False

    async def _end(self) -> None:
        # stop() would wait until everything is sent, forever while no broker is there. The only
        # other way is through its internal parts.
        producer = self._producer
        producer._closed = True  # noqa: SLF001 - otherwise it complains when it is collected
        client, sender = producer.client, producer._sender.sender_task  # noqa: SLF001 - not public
        if sender is not None:
            sender.cancel()
        client._maybe_wait_metadata = _nothing  # noqa: SLF001 - nobody will bring them
        client._get_conn = _nothing  # noqa: SLF001 - it is not ready, and never will be
        await client.close()
        if sender is not None:
            await asyncio.wait([sender])
            await client.close()  # a request was just connecting


async def _nothing(*_: object, **__: object) -> None:
    pass


def partition_of(key: bytes, partitions: Sequence[int]) -> int:
    """Chosen as Kafka's own clients do: other programs that send this key use the same
    partition."""
    found: int = partitions[(murmur2(key) & 0x7FFFFFFF) % len(partitions)]
    return found


class Places:
    """Where messages of a destination go."""

    def __init__(self, destination: str, partitions: Sequence[int]) -> None:
        self.partitions = partitions
        self.for_no_key: int = partitions[0]
        self._all = {each: (destination, each) for each in partitions}
        # A key recurs, and its hash is computed in Python.
        self._known: dict[str, tuple[bytes, Place]] = {}

    def of(self, key: str | None) -> tuple[bytes | None, Place]:
        """A message's key as it is sent, and its partition."""
        if key is None:
            return None, self._all[self.for_no_key]
        found = self._known.get(key)
        if found is None:
            data = key.encode()
            if len(self._known) >= MAX_KNOWN:
                self._known.clear()
            found = self._known[key] = data, self._all[partition_of(data, self.partitions)]
        return found
