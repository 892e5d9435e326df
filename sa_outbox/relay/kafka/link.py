"""One producer, from its start to its end. It is not mended: after a failure there is another."""

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

    from .packing import Pack, Place

FAREWELL = 5.0
"""Seconds for the end of a producer whose broker does not answer."""
LET_IT_END = 1.0
NO_LIMIT = 2**31 - 1
"""How much goes into a record batch is decided by ``packing.py``."""

MOST_KNOWN = 65536
"""Keys whose partition is remembered, for each destination."""


class _NoAnswerError(TimeoutError):
    """aiokafka would go on for ever."""


class Link:
    """Answers for records batches as they come; ``over`` as soon as one has failed."""

    def __init__(self, options: dict[str, Any]) -> None:
        self.over = False
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
            # Cancelled in the middle of its first request it would leave a connection open.
            with anyio.move_on_after(LET_IT_END, shield=True):
                await asyncio.wait([starting])
            starting.cancel()
            await self.give_up()
            if isinstance(error, Exception):
                raise unavailable(error) from error
            raise

    async def partitions(self, destination: str, *, within: float) -> list[int]:
        """Raises ``UnknownTopicOrPartitionError`` if the brokers answer and do not know it."""
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
            raise unavailable(why) from why
        raise UnknownTopicOrPartitionError(f"no broker knows it, after {within:g} s") from why

    def places(self, destination: str, partitions: list[int]) -> Places:
        """Where its messages go, while it has these partitions."""
        known = self._places.get(destination)
        if known is None or known.partitions != partitions:
            known = self._places[destination] = Places(destination, partitions)
        return known

    def available(self, destination: str) -> list[int]:
        """Partitions that have a leader, as far as is known."""
        cluster = self._producer.client.cluster
        return sorted(cluster.available_partitions_for_topic(destination) or ())

    async def deliver(self, packs: Sequence[Pack], *, within: float) -> None:
        """Send them and wait: afterwards each is confirmed, or has its error, or the link was given
        up meanwhile. If one has failed, or it is cancelled, the link is over."""
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
        """Nothing that it still holds is sent, nothing of it is left. Whoever waits for it waits no
        longer."""
        is_first, self.over = not self.over, True
        for scope in self._under_way:
            scope.cancel()
        with anyio.move_on_after(FAREWELL, shield=True):
            if is_first:
                # Once: cancelled twice, aiokafka's sender would not wait for its requests.
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
        except Exception as error:  # noqa: BLE001 - of whatever kind, it is this record batch's
            pack.error = error
        else:
            pack.confirmed = True

    async def _is_heard(self) -> bool:
        with anyio.move_on_after(FAREWELL):
            return bool(await self._producer.client.force_metadata_update())
        return False

    async def _end(self) -> None:
        # stop() would wait until all is sent, for ever while nobody is there. There is no other way
        # to say so but by the parts it is made of.
        producer = self._producer
        producer._closed = True  # noqa: SLF001 - else it complains when it is forgotten
        client, sender = producer.client, producer._sender.sender_task  # noqa: SLF001 - see above
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
    """As Kafka's own clients choose it: other programs that send to this key find the same."""
    found: int = partitions[(murmur2(key) & 0x7FFFFFFF) % len(partitions)]
    return found


class Places:
    """Where messages of a destination go."""

    def __init__(self, destination: str, partitions: Sequence[int]) -> None:
        self.partitions = partitions
        self.for_no_key = partitions[0]
        self._all = {each: (destination, each) for each in partitions}
        # A key comes again and again, and its hash is made in Python.
        self._known: dict[str, tuple[bytes, Place]] = {}

    def of(self, key: str | None) -> tuple[bytes | None, Place]:
        """A message's key as it is sent, and its partition."""
        if key is None:
            return None, self._all[self.for_no_key]
        found = self._known.get(key)
        if found is None:
            data = key.encode()
            if len(self._known) >= MOST_KNOWN:
                self._known.clear()
            found = self._known[key] = data, self._all[partition_of(data, self.partitions)]
        return found
