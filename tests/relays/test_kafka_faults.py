"""A consumer, its relay to Kafka and brokers that fail: nothing is lost, and keys keep their order.

Against librdkafka's mock cluster. It does not know sequence numbers, so what aiokafka repeats is
there twice, where a real broker would know it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from datetime import timedelta
from functools import partial
from typing import Any

import anyio
import pytest
from sqlalchemy import URL, create_engine, text
from sqlalchemy.ext.asyncio import create_async_engine

from sa_outbox import Outbox
from sa_outbox.consumer import Consumer
from sa_outbox.errors import NotDrained
from sa_outbox.observe import AttemptFailed, DeadLettered, Observation, RelayAway
from sa_outbox.relay import Answer, Message
from sa_outbox.relay.kafka import Kafka
from sa_outbox.schema import migrate
from sa_outbox.settings import Names
from tests.support import comes_true, kafka
from tests.support.kafka import Cluster
from tests.support.recorder import Recorder
from tests.support.saboteur import Saboteur

from .faults import Pace

pytestmark = pytest.mark.anyio

EVENTS = int(os.environ.get("RELAY_EVENTS", "20000"))
KEYS = 50
PARTITIONS = 6
WRITE = """
    INSERT INTO outbox (event_id, event_type, key, payload)
    SELECT gen_random_uuid(), 'order.placed', 'key-' || n % :keys, jsonb_build_object('n', n)
    FROM generate_series(1, :events) n ORDER BY n
"""
PASSING = (kafka.TIMED_OUT, kafka.NOT_LEADER, kafka.FEW_REPLICAS_AFTER_APPEND, kafka.FEW_REPLICAS)


class Counted(Kafka):
    """Counts what it has confirmed, and does not run ahead of the story."""

    pace = Pace(EVENTS, 0)

    async def send(self, messages: Sequence[Message]) -> Sequence[Answer]:
        await self.pace.may_send()
        answers = await super().send(messages)
        self.pace.done += sum(each is None for each in answers)
        return answers


class Story:
    """What happens to the brokers, at equal parts of the way."""

    def __init__(self, cluster: Cluster, relay: Counted, recorder: Recorder) -> None:
        self._cluster = cluster
        self._relay = relay
        self._recorder = recorder
        self._chapters: list[Callable[[], Any]] = [
            partial(self._cluster.fail_next, kafka.PRODUCE, *PASSING * 3),
            self._lose_answers,
            partial(self._cluster.fail_next, kafka.PRODUCE, kafka.NETWORK, 0, kafka.NETWORK),
            self._one_down,
            partial(self._cluster.fail_next, kafka.PRODUCE, 0, kafka.OUT_OF_ORDER),
            self._new_leaders,
            self._all_down,
            partial(self._cluster.fail_next, kafka.METADATA, kafka.NETWORK, kafka.NETWORK),
            self._lose_answers,
            partial(self._cluster.fail_next, kafka.PRODUCE, kafka.OLD_EPOCH),
            self._all_down,
        ]
        relay.pace = Pace(EVENTS, len(self._chapters))

    async def run(self) -> None:
        pace = self._relay.pace
        for number, chapter in enumerate(self._chapters, 1):
            await pace.until(number)
            pace.go_on(number + 1)
            happening = chapter()
            if happening is not None:
                await happening

    async def _lose_answers(self) -> None:
        """What is sent is written, and the connection ends before anybody is told."""
        self._cluster.slow(200)
        come_to = self._relay.pace.done
        await comes_true(lambda: self._relay.pace.done > come_to, within=30)
        self._cluster.down()
        self._cluster.slow(0)
        self._cluster.up()

    async def _one_down(self) -> None:
        self._cluster.down(2)
        await self._relay_is_away()
        self._cluster.up(2)

    async def _all_down(self) -> None:
        self._cluster.down()
        await self._relay_is_away()
        self._cluster.up()

    async def _new_leaders(self) -> None:
        for partition in range(PARTITIONS):
            self._cluster.lead("orders", partition, 1 + (partition + 1) % 3)

    async def _relay_is_away(self) -> None:
        """Now and then a new producer gets no metadata while a broker is down, and half a minute
        goes by before the relay says that it is away."""
        before = len(self._recorder.of(RelayAway))
        await self._recorder.seen(RelayAway, times=before + 2, within=100)


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with kafka.cluster() as made:
        made.create("orders", PARTITIONS)
        yield made


@pytest.fixture
def migrated(new_database: Callable[[], URL]) -> URL:
    url = new_database()
    engine = create_engine(url.set(drivername="postgresql+psycopg"))
    with engine.begin() as connection:
        migrate(connection, Names())
        connection.execute(text(WRITE), {"keys": KEYS, "events": EVENTS})
    engine.dispose()
    return url


@pytest.fixture
def saboteurs(cluster: Cluster) -> Iterator[list[Saboteur]]:
    """In front of every broker, and what clients are told as its address."""
    with ExitStack() as all_of_them:
        made = []
        for broker, address in zip(cluster.brokers, cluster.addresses.split(","), strict=True):
            port = int(address.rpartition(":")[2])
            each = Saboteur(port, seed=broker, lives=(50_000, 500_000))
            all_of_them.enter_context(each).open()
            cluster.advertise(broker, "127.0.0.1", each.port)
            made.append(each)
        yield made


@pytest.mark.long
@pytest.mark.timeout(320)
@pytest.mark.parametrize("concurrency", [1, 4])
async def test_whatever_brokers_do_all_arrives_in_the_order_of_its_key(
    cluster: Cluster, migrated: URL, concurrency: int
) -> None:
    relay = Counted(cluster.addresses, delivery_timeout=timedelta(seconds=1), max_batch_bytes=4096)
    recorder = Recorder()

    await forward(migrated, relay, recorder, Story(cluster, relay, recorder), concurrency)

    check(cluster, recorder)


@pytest.mark.long
async def test_connections_that_are_cut_lose_nothing(
    cluster: Cluster, migrated: URL, saboteurs: list[Saboteur]
) -> None:
    """In the middle of a request, or when it is done and the answer is on its way."""
    addresses = [f"127.0.0.1:{each.port}" for each in saboteurs]
    relay = Counted(addresses, delivery_timeout=timedelta(seconds=1))
    recorder = Recorder()

    await forward(migrated, relay, recorder)

    assert check(cluster, recorder) > 0, "answers were lost: some were sent twice"
    assert sum(each.cuts for each in saboteurs) > 3
    assert sum(each.lost_answers for each in saboteurs) > 3


async def forward(
    url: URL, relay: Kafka, recorder: Recorder, story: Story | None = None, concurrency: int = 1
) -> None:
    """All of it, to the end."""
    outbox = Outbox()
    outbox.relay("kafka", relay, on="order.*", to="orders", batch_size=200, concurrency=concurrency)

    def observe(observation: Observation) -> None:
        if isinstance(observation, (AttemptFailed, DeadLettered, RelayAway)):
            recorder(observation)

    engine = create_async_engine(url.set(drivername="postgresql+asyncpg"))
    consumer = Consumer(outbox, engine, observers=[observe])
    try:
        with anyio.fail_after(290):
            async with anyio.create_task_group() as tasks:
                if story is not None:
                    tasks.start_soon(story.run)
                await drained(consumer)
    finally:  # else another test would be blamed for the connections
        await engine.dispose()


async def drained(consumer: Consumer) -> None:
    """A relay that is away for long ends a drain: then there is another one."""
    while True:
        try:
            await consumer.drain()
            break
        except NotDrained as left:
            if not left.waiting:
                raise


def check(cluster: Cluster, recorder: Recorder) -> int:
    """None is lost, each key is in order by first occurrences; return how many came again."""
    assert recorder.of(DeadLettered) == []
    assert recorder.of(AttemptFailed) == []
    found = cluster.read("orders")
    seen: dict[bytes, tuple[bytes, int]] = {}
    order: dict[bytes, list[int]] = {}
    for each in found:
        event_id, number = dict(each.headers())["event_id"], int(each.value()[5:-1])
        if event_id not in seen:
            seen[event_id] = each.key(), number
            order.setdefault(each.key(), []).append(number)
        assert seen[event_id] == (each.key(), number), "what comes twice is the same event"
    assert sorted(number for _, number in seen.values()) == list(range(1, EVENTS + 1)), "none lost"
    assert len(order) == KEYS
    for key, numbers in order.items():
        assert numbers == sorted(numbers), key
    return len(found) - len(seen)
