"""Brokers of FastStream as relays: real Redis, NATS and RabbitMQ, and Kafka's mock cluster."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import replace
from datetime import timedelta
from importlib import import_module
from typing import Any

import aio_pika
import aiokafka
import anyio
import nats
import pytest
import redis.asyncio
from faststream.kafka import KafkaBroker
from faststream.nats import NatsBroker
from faststream.rabbit import Channel, ExchangeType, RabbitBroker, RabbitExchange
from faststream.redis import RedisBroker, RedisMessage, StreamSub
from faststream.redis.parser import BinaryMessageFormatV1
from sqlalchemy import URL, make_url

from sa_outbox import Event
from sa_outbox.errors import ConfigError, RelayUnavailable, Undeliverable
from sa_outbox.relay import Message, Plain
from sa_outbox.relay.conformance import Arrived, RelayConformance
from sa_outbox.relay.faststream import FastStream
from sa_outbox.relay.faststream_kinds import _AWAY, _NEVER, Kind, judge
from tests.support import PATIENCE, kafka
from tests.support.brokers import skip_without
from tests.support.kafka import Cluster
from tests.support.saboteur import Saboteur

from .faults import Scenario

pytestmark = pytest.mark.anyio
SHORT = timedelta(seconds=2)


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with kafka.cluster() as made:
        yield made


@pytest.fixture(scope="session")
def rabbit_url() -> str:
    url = os.environ.get("RELAY_RABBITMQ_URL", "amqp://guest:guest@127.0.0.1:5672/")
    skip_without(url, "RabbitMQ")
    return url


@pytest.fixture
async def redis_client(redis_url: str) -> AsyncIterator[Any]:
    async with redis.asyncio.Redis.from_url(redis_url) as made:
        yield made


@pytest.fixture
async def nats_client(nats_url: str) -> AsyncIterator[Any]:
    client = await nats.connect(nats_url, allow_reconnect=False)
    yield client
    await client.close()


@pytest.fixture
async def channel(rabbit_url: str) -> AsyncIterator[Any]:
    connection = await aio_pika.connect(rabbit_url)
    yield await connection.channel()
    await connection.close()


def message(destination: str, number: int = 0, **changes: Any) -> Message:
    event: Event[Any] = Event("order.placed", {"n": number}, key=f"k{number}")
    return replace(Plain().wrap(event, destination, epoch=1, prefix="ce_"), **changes)


def arrived(body: bytes, headers: dict[str, str]) -> Arrived:
    return Arrived(headers["event_id"], body, headers.get("key"), headers)


class TestKafka(RelayConformance):
    time_limit = 10.0
    ill_formed = ("", ".", "..", "two words", "a" * 250, "ü")
    secret = "swordfish"

    @pytest.fixture(autouse=True)
    def _cluster(self, cluster: Cluster) -> None:
        self._brokers, self._count = cluster, 0

    def make_relay(self) -> FastStream:
        broker = KafkaBroker(
            self._brokers.addresses.split(","), acks="all", enable_idempotence=True
        )
        return FastStream(broker, timeout=SHORT)

    def make_relay_to(self, host: str, port: int) -> FastStream:
        broker = KafkaBroker(f"{host}:{port}", acks="all", request_timeout_ms=500)
        return FastStream(broker, timeout=SHORT)

    @pytest.fixture(autouse=True)
    def _dropped_producers(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """FastStream forgets a producer that could not start, without closing it: whenever it is
        found, in whatever test, it does not complain."""

        class Forgotten(aiokafka.AIOKafkaProducer):  # type: ignore[misc]  # it has no types
            def __del__(self) -> None:
                pass

        monkeypatch.setattr(aiokafka, "AIOKafkaProducer", Forgotten)

    def make_undeliverable(self, message: Message) -> Message:
        return replace(message, body=b"x" * 2_000_000)

    async def new_destination(self) -> str:
        self._count += 1
        return self._brokers.create(f"d{self._count}")

    async def arrived(self, destination: str, count: int) -> Sequence[Arrived]:
        return [
            arrived(each.value(), {name: value.decode() for name, value in each.headers()})
            for each in self._brokers.read(destination)
        ]


class TestRabbit(RelayConformance):
    time_limit = 10.0
    ill_formed = ("", "new\nline", "a" * 256, "ü" * 128)
    secret = "swordfish"

    @pytest.fixture(autouse=True)
    async def _broker(self, rabbit_url: str, channel: Any, name: str) -> AsyncIterator[None]:
        self._url, self._channel, self._name = rabbit_url, channel, name
        self._queues: list[Any] = []
        yield
        for each in self._queues:
            await each.delete(if_unused=False, if_empty=False)

    def make_relay(self) -> FastStream:
        return FastStream(RabbitBroker(self._url), timeout=SHORT)

    def make_relay_to(self, host: str, port: int) -> FastStream:
        broker = RabbitBroker(f"amqp://me:{self.secret}@{host}:{port}/", timeout=1)
        return FastStream(broker, timeout=SHORT)

    def make_undeliverable(self, message: Message) -> Message:
        return replace(message, destination=f"{self._name}-nobody")

    async def new_destination(self) -> str:
        made = await self._channel.declare_queue(f"{self._name}-{len(self._queues)}")
        self._queues.append(made)
        return str(made.name)

    async def arrived(self, destination: str, count: int) -> Sequence[Arrived]:
        (queue,) = [each for each in self._queues if each.name == destination]
        found = []
        while (each := await queue.get(no_ack=True, fail=False)) is not None:
            found.append(arrived(each.body, each.headers))
        return found


class TestNats(RelayConformance):
    time_limit = 10.0
    ill_formed = ("", "two words", "a..b", ".a", "a.", "a.*", "a.>", "$JS.API.INFO", "a\nb")
    secret = "swordfish"

    @pytest.fixture(autouse=True)
    async def _broker(self, nats_url: str, nats_client: Any, name: str) -> AsyncIterator[None]:
        self._url, self._name, self._count = nats_url, name, 0
        self._streams = nats_client.jetstream()
        await self._streams.add_stream(name=name, subjects=[f"{name}.*"], storage="memory")
        yield
        await self._streams.delete_stream(name)

    def make_relay(self) -> FastStream:
        return FastStream(NatsBroker(self._url), stream=self._name, timeout=SHORT)

    def make_relay_to(self, host: str, port: int) -> FastStream:
        broker = NatsBroker(f"nats://me:{self.secret}@{host}:{port}")
        return FastStream(broker, stream=self._name, timeout=SHORT)

    def make_undeliverable(self, message: Message) -> Message:
        return replace(message, body=b"x" * 2_000_000)

    async def new_destination(self) -> str:
        self._count += 1
        return f"{self._name}.{self._count}"

    async def arrived(self, destination: str, count: int) -> Sequence[Arrived]:
        state = (await self._streams.stream_info(self._name, subjects_filter=destination)).state
        messages = await self._streams.subscribe(destination, ordered_consumer=True)
        found = []
        for _ in range((state.subjects or {}).get(destination, 0)):
            each = await messages.next_msg(timeout=PATIENCE)
            found.append(arrived(each.data, each.headers))
        await messages.unsubscribe()
        return found


class TestRedis(RelayConformance):
    time_limit = 10.0
    ill_formed = ("", "two words", "new\nline", "a" * 513)
    secret = "swordfish"

    @pytest.fixture(autouse=True)
    async def _broker(self, redis_url: str, redis_client: Any, name: str) -> AsyncIterator[None]:
        self._url, self._client, self._name, self._count = redis_url, redis_client, name, 0
        await redis_client.set(f"{name}-text", "no stream", ex=300)
        yield
        await redis_client.delete(*[each async for each in redis_client.scan_iter(f"*{name}*")])

    def make_relay(self) -> FastStream:
        return FastStream(RedisBroker(self._url), timeout=SHORT)

    def make_relay_to(self, host: str, port: int) -> FastStream:
        return FastStream(RedisBroker(f"redis://me:{self.secret}@{host}:{port}/0"), timeout=SHORT)

    def make_undeliverable(self, message: Message) -> Message:
        return replace(message, destination=f"{self._name}-text")

    async def new_destination(self) -> str:
        self._count += 1
        return f"{self._name}-{self._count}"

    async def arrived(self, destination: str, count: int) -> Sequence[Arrived]:
        entries = await self._client.xrange(destination)
        return [arrived(*BinaryMessageFormatV1.parse(each[b"__data__"])) for _, each in entries]


class TestMaking:
    @pytest.mark.parametrize(
        ("broker", "options", "says"),
        [
            (KafkaBroker(), {}, 'acks="all"'),
            (KafkaBroker(acks=1), {}, 'acks="all"'),
            (NatsBroker(), {}, "confirms nothing without JetStream"),
            (RedisBroker(), {"redis": "channel"}, "nobody says so"),
            (RedisBroker(), {"stream": "SHOP"}, "stream= is for a nats broker"),
            (NatsBroker(), {"stream": "SHOP", "exchange": "x"}, "exchange= is for a rabbit"),
            (RabbitBroker(), {"at_once": 0}, "at_once"),
            (RabbitBroker(), {"timeout": 3}, "timedelta"),
            (object(), {}, "KafkaBroker, RabbitBroker, NatsBroker or RedisBroker"),
            (None, {}, r'pip install "sa_outbox\[faststream\]"'),
        ],
    )
    async def test_what_confirms_nothing_or_is_wrong_is_refused(
        self, broker: Any, options: dict[str, Any], says: str
    ) -> None:
        with pytest.raises(ConfigError, match=says):
            FastStream(broker, **options)

    @pytest.mark.parametrize("options", [{"acks": "all"}, {"enable_idempotence": True}])
    async def test_kafka_that_keeps_what_it_confirms_is_taken(
        self, options: dict[str, Any]
    ) -> None:
        assert FastStream(KafkaBroker(**options)).attribute_prefix == "ce_"

    async def test_the_names_of_errors_are_those_of_the_clients(self) -> None:
        places = (
            *("aiokafka.errors", "aiormq.exceptions", "nats.errors", "nats.js.errors"),
            *("redis.exceptions", "faststream.exceptions"),
        )
        known = {name for place in places for name in dir(import_module(place))}

        assert known >= _AWAY
        assert known >= _NEVER.keys()

    @pytest.mark.parametrize(
        ("kind", "error"),
        [
            ("redis", redis.exceptions.TimeoutError()),  # of a connection, not of Python's kind
            ("redis", redis.exceptions.ConnectionError()),
            ("nats", nats.errors.TimeoutError()),
            ("rabbit", TimeoutError()),
            ("kafka", ConnectionRefusedError()),
        ],
    )
    async def test_a_broker_that_is_not_reached_in_time_is_away(
        self, kind: Kind, error: Exception
    ) -> None:
        assert isinstance(judge(kind, error), RelayUnavailable)


class TestRabbitMQ:
    async def test_a_channel_that_confirms_nothing_is_noticed(
        self, rabbit_url: str, channel: Any, name: str
    ) -> None:
        queue = await channel.declare_queue(name)
        broker = RabbitBroker(rabbit_url, default_channel=Channel(publisher_confirms=False))
        relay = FastStream(broker)

        (answer,) = await relay.send([message(name)])
        await relay.close()
        await queue.delete(if_empty=False)

        assert isinstance(answer, RelayUnavailable)
        assert "publisher_confirms" in str(answer)

    async def test_an_exchange_takes_a_routing_key(
        self, rabbit_url: str, channel: Any, name: str
    ) -> None:
        exchange = await channel.declare_exchange(name, "topic", auto_delete=True)
        queue = await channel.declare_queue(exclusive=True)
        await queue.bind(exchange, "order.#")
        where = RabbitExchange(name, type=ExchangeType.TOPIC, auto_delete=True)
        relay = FastStream(RabbitBroker(rabbit_url), exchange=where)

        one = message("order.placed")
        answers = await relay.send([one, message("invoice.sent")])
        await relay.close()

        assert answers[0] is None
        assert isinstance(answers[1], Undeliverable)
        found = await queue.get(no_ack=True)
        assert found.message_id == str(one.event.event_id)
        assert found.content_type == "application/json"
        assert found.delivery_mode == aio_pika.DeliveryMode.PERSISTENT


class TestBrokerOfTheProgram:
    async def test_a_subscriber_of_faststream_gets_it(self, redis_url: str, name: str) -> None:
        broker = RedisBroker(redis_url)
        relay = FastStream(broker)
        came = anyio.Event()
        got: list[Any] = []

        @broker.subscriber(stream=StreamSub(name, last_id="0"))
        async def take(body: dict[str, int], message: RedisMessage) -> None:
            got.append((body, message.headers["note"], message.correlation_id))
            came.set()

        one = message(name, 7)
        one = replace(one, headers={**one.headers, "note": "żółć", "correlation_id": "c-1"})
        assert await relay.send([one]) == [None]
        await broker.start()
        with anyio.fail_after(PATIENCE):
            await came.wait()
        await relay.close()
        assert await broker.ping(timeout=5), "it is the program's since it was started"
        assert await relay.send([one]) == [None]
        await broker.stop()

        assert got[0] == ({"n": 7}, "żółć", "c-1")

    async def test_a_connection_of_the_program_stays(
        self, redis_url: str, redis_client: Any, name: str
    ) -> None:
        async with RedisBroker(redis_url) as broker:
            relay = FastStream(broker, redis="list")
            await relay.send([message(name)])
            await relay.close()
            await broker.publish("still there", list=name)

        assert await redis_client.llen(name) == 2
        await redis_client.delete(name)

    async def test_what_was_sent_again_is_there_once_in_jetstream(
        self, nats_url: str, nats_client: Any, name: str
    ) -> None:
        streams = nats_client.jetstream()
        await streams.add_stream(name=name, subjects=[name], storage="memory")
        relay = FastStream(NatsBroker(nats_url), stream=name)
        one = message(name)

        assert [*await relay.send([one]), *await relay.send([one])] == [None, None]
        await relay.close()
        count = (await streams.stream_info(name)).state.messages
        await streams.delete_stream(name)

        assert count == 1

    async def test_events_come_through_a_consumer(
        self, outbox_url: URL, redis_url: str, redis_client: Any, name: str
    ) -> None:
        scenario = Scenario(outbox_url, FastStream(RedisBroker(redis_url)), name, events=500)

        await scenario.run()

        entries = await redis_client.xrange(name)
        await redis_client.delete(name)
        found = [arrived(*BinaryMessageFormatV1.parse(each[b"__data__"])) for _, each in entries]
        assert scenario.check(found) == 0


@pytest.mark.long
async def test_nothing_is_lost_or_out_of_order_whatever_fails(
    outbox_url: URL, redis_url: str, redis_client: Any, name: str, in_a_hurry: None
) -> None:
    address = make_url(redis_url)
    port, host = address.port or 6379, address.host or "127.0.0.1"
    with Saboteur(port, host=host, seed=4, lives=(2_000, 20_000)) as saboteur:
        saboteur.open()
        url = address.set(port=saboteur.port).render_as_string(hide_password=False)
        relay = FastStream(RedisBroker(url), timeout=SHORT)
        scenario = Scenario(outbox_url, relay, name, events=4000)

        await scenario.run((saboteur.shut, saboteur.open), (saboteur.shut, saboteur.open))

    entries = await redis_client.xrange(name)
    await redis_client.delete(name)
    found = [arrived(*BinaryMessageFormatV1.parse(each[b"__data__"])) for _, each in entries]
    assert scenario.check(found) > 0, "answers were lost"
    assert saboteur.cuts > 0
    assert saboteur.lost_answers > 0
