"""RabbitMQ against a real broker."""

from __future__ import annotations

import shutil
import signal
import sys
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import aio_pika
import aiormq
import anyio
import anyio.lowlevel
import pytest
from sqlalchemy import URL, make_url

from sa_outbox import Event
from sa_outbox.errors import ConfigError, RelayError, RelayUnavailable, Undeliverable
from sa_outbox.relay import Answer, Message, Plain
from sa_outbox.relay.conformance import Arrived, RelayConformance
from sa_outbox.relay.rabbitmq import RabbitMQ
from tests.support import PATIENCE
from tests.support.brokers import RabbitServer
from tests.support.proxy import Proxy
from tests.support.saboteur import Saboteur

from .faults import Scenario, forward

pytestmark = pytest.mark.anyio


@pytest.fixture
async def channel(rabbitmq_url: str) -> AsyncIterator[Any]:
    connection = await aio_pika.connect(rabbitmq_url)
    yield await connection.channel()
    await connection.close()


@pytest.fixture
async def queue(channel: Any, name: str) -> AsyncIterator[Any]:
    made = await channel.declare_queue(name, durable=True)
    yield made
    await made.delete(if_unused=False, if_empty=False)


async def read(channel: Any, name: str) -> list[Arrived]:
    """Take all that is in the queue, in its order."""
    queue = await channel.declare_queue(name, passive=True)
    count = queue.declaration_result.message_count
    found: list[Arrived] = []
    if not count:
        return found
    with anyio.fail_after(PATIENCE):
        async with queue.iterator(no_ack=True) as messages:
            async for each in messages:
                headers = {name: str(value) for name, value in each.headers.items()}
                found.append(Arrived(each.message_id, each.body, headers.get("key"), headers))
                if len(found) == count:
                    break
    return found


def message(destination: str, number: int = 0, **changes: Any) -> Message:
    at = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
    event = Event("order.placed", {"n": number}, key=f"k{number}", created_at=at)
    return replace(Plain().wrap(event, destination, epoch=1, prefix="x"), **changes)


def kinds(answers: Sequence[object]) -> list[object]:
    return [each.kind if isinstance(each, Undeliverable) else each for each in answers]


class TestConformance(RelayConformance):
    time_limit = 8.0
    ill_formed = ("", "a" * 256, "ü" * 128, "new\nline", "\ud800")
    secret = "swordfish"

    @pytest.fixture(autouse=True)
    async def _broker(self, rabbitmq_url: str, channel: Any, name: str) -> AsyncIterator[None]:
        self._url, self._channel, self._name = rabbitmq_url, channel, name
        self._queues: list[Any] = []
        yield
        for each in self._queues:
            await each.delete(if_unused=False, if_empty=False)

    def make_relay(self) -> RabbitMQ:
        return RabbitMQ(self._url)

    def make_relay_to(self, host: str, port: int) -> RabbitMQ:
        url = f"amqp://me:{self.secret}@{host}:{port}/"
        return RabbitMQ(url, timeout=timedelta(seconds=1))

    def make_undeliverable(self, message: Message) -> Message:
        return replace(message, destination=f"{self._name}-nobody")

    async def new_destination(self) -> str:
        made = f"{self._name}-{len(self._queues)}"
        self._queues.append(await self._channel.declare_queue(made))
        return made

    async def arrived(self, destination: str, count: int) -> Sequence[Arrived]:
        return await read(self._channel, destination)


async def test_properties_say_what_it_is(
    rabbitmq_url: str, channel: Any, name: str, queue: Any
) -> None:
    relay = RabbitMQ(rabbitmq_url)
    one = message(name)

    assert await relay.send([one]) == [None]
    await relay.close()

    found = await queue.get(no_ack=True)
    assert found.message_id == str(one.event.event_id)
    assert found.content_type == "application/json"
    assert found.delivery_mode == aio_pika.DeliveryMode.PERSISTENT
    assert found.timestamp == one.event.created_at
    assert found.type == "order.placed"
    assert found.headers["event_type"] == "order.placed"


async def test_what_no_queue_takes_is_unknown(rabbitmq_url: str, name: str, queue: Any) -> None:
    relay = RabbitMQ(rabbitmq_url)

    answers = await relay.send([message(name), message(f"{name}-none"), message(name, 1)])
    await relay.close()

    assert kinds(answers) == [None, "unknown-destination", None]


async def test_an_exchange_that_is_not_there_costs_the_others_nothing(
    rabbitmq_url: str, channel: Any, name: str, queue: Any
) -> None:
    exchange = await channel.declare_exchange(f"{name}-ex", "topic", auto_delete=True)
    await queue.bind(exchange, "orders.#")
    relay = RabbitMQ(rabbitmq_url, exchange=None)
    sent = [
        message(f"{name}-ex/orders.placed", 1),
        message(f"{name}-none/orders.placed", 2),
        message(f"/{name}", 3),
        message(f"{name}-ex/orders.paid", 4),
    ]

    for each in sent:
        relay.check_destination(each.destination)
    answers = await relay.send(sent)
    await exchange.delete()
    (away,) = await relay.send([sent[0]])
    (gone,) = await relay.send([sent[0]])
    answers_after = await relay.send([message(f"/{name}", 5)])
    await relay.close()

    assert kinds(answers) == [None, "unknown-destination", None, None]
    assert isinstance(away, RelayUnavailable), "whose fault it was is not known yet"
    assert kinds([gone]) == ["unknown-destination"]
    assert answers_after == [None]
    bodies = [each.body for each in await read(channel, name)]
    assert sorted(bodies) == [b'{"n":1}', b'{"n":3}', b'{"n":4}', b'{"n":5}']


async def test_what_a_queue_does_not_take_is_tried_again(
    rabbitmq_url: str, channel: Any, name: str
) -> None:
    full = {"x-max-length": 1, "x-overflow": "reject-publish"}
    queue = await channel.declare_queue(name, arguments=full)
    relay = RabbitMQ(rabbitmq_url)

    first = await relay.send([message(name)])
    (refused,) = await relay.send([message(name, 1)])
    await read(channel, name)
    again = await relay.send([message(name, 1)])
    await relay.close()
    await queue.delete(if_unused=False, if_empty=False)

    assert [*first, *again] == [None, None]
    assert type(refused) is RelayError


async def test_what_comes_after_one_that_was_not_taken_stays_behind_it(
    rabbitmq_url: str, channel: Any, name: str, queue: Any
) -> None:
    full = {"x-max-length": 1, "x-overflow": "reject-publish"}
    other = await channel.declare_queue(f"{name}-full", arguments=full)
    relay = RabbitMQ(rabbitmq_url)
    await relay.send([message(f"{name}-full")])

    answers = await forward(
        relay,
        [message(name, 1), message(f"{name}-full", 2), message(name, 2), message(name, 3)],
    )
    await relay.close()
    await other.delete(if_unused=False, if_empty=False)

    assert [each is None for each in answers] == [True, False, False, True]
    assert [each.body for each in await read(channel, name)] == [b'{"n":1}', b'{"n":3}']


async def test_what_fits_into_no_message_answers_for_itself(
    rabbitmq_url: str, channel: Any, name: str, queue: Any
) -> None:
    relay = RabbitMQ(rabbitmq_url, max_message_bytes=1000)
    bad = [
        message(name, body=b"x" * 1001),
        message(name, body="text"),
        message(name, headers={"note": "x" * 200_000}),
        message(name, headers={"n" * 256: "x"}),
        message(name, headers={"note": 3}),
        message(name, headers={"note": "\ud800"}),
        message(name, content_type="x" * 300),
    ]

    answers = await relay.send([message(name, 1), *bad, message(name, 2)])
    await relay.close()

    assert kinds(answers) == [None, *["serialization"] * len(bad), None]
    assert len(await read(channel, name)) == 2


@pytest.mark.long
async def test_what_the_broker_takes_is_learned_from_its_refusal(
    rabbitmq_url: str, channel: Any, name: str, queue: Any
) -> None:
    relay = RabbitMQ(
        rabbitmq_url, max_message_bytes=512 * 1024 * 1024, timeout=timedelta(seconds=30)
    )
    # A byte more than RabbitMQ takes by default, before version 4.
    sent = [message(name, 1), message(name, 2, body=bytes(128 * 1024 * 1024 + 1)), message(name, 3)]

    first = await relay.send(sent)
    again = await relay.send(sent)
    await relay.close()

    assert isinstance(first[1], RelayUnavailable), "the channel is closed, and nobody is to blame"
    assert kinds(again) == [None, "serialization", None]
    assert {each.body for each in await read(channel, name)} == {b'{"n":1}', b'{"n":3}'}


async def test_without_the_permission_it_waits(rabbitmq_url: str, channel: Any, name: str) -> None:
    exchange = await channel.declare_exchange(name, auto_delete=False, internal=True)
    relay = RabbitMQ(rabbitmq_url, exchange=name)

    (answer,) = await relay.send([message("orders")])
    await relay.close()
    await exchange.delete()

    assert isinstance(answer, RelayUnavailable)
    assert "ACCESS_REFUSED" in str(answer)


async def test_one_that_says_nothing_any_more_is_away(
    rabbitmq_url: str, channel: Any, name: str, queue: Any
) -> None:
    with Proxy(make_url(rabbitmq_url)) as proxy:
        proxy.open()
        url = str(make_url(rabbitmq_url).set(port=proxy.port).render_as_string(False))
        relay = RabbitMQ(url, timeout=timedelta(seconds=1))
        assert await relay.send([message(name, 1)]) == [None]
        proxy.best_effort()
        (away,) = await relay.send([message(name, 2)])
        proxy.pass_on()
        assert await relay.send([message(name, 3)]) == [None]
        proxy.shut()
        (refused,) = await relay.send([message(name, 4)])
        await relay.close()

    assert isinstance(away, RelayUnavailable)
    assert isinstance(away.__cause__, TimeoutError)
    assert isinstance(refused, RelayUnavailable)
    assert {each.body for each in await read(channel, name)} >= {b'{"n":1}', b'{"n":3}'}


@pytest.mark.parametrize("turns", [1, 3, 5])
async def test_a_connection_that_is_ended_in_good_order_keeps_nobody_waiting(
    rabbitmq_url: str, channel: Any, name: str, queue: Any, turns: int
) -> None:
    """The client's queue of frames is full then, and nobody empties it any more."""
    relay = RabbitMQ(rabbitmq_url, timeout=timedelta(seconds=10 * PATIENCE))
    assert await relay.send([message(name)]) == [None]
    below = relay._link._connection.transport.connection
    answers: list[Answer] = []

    async def send() -> None:
        answers.extend(await relay.send([message(name, number) for number in range(50)]))

    with anyio.fail_after(PATIENCE):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(send)
            for _ in range(turns):
                await anyio.lowlevel.checkpoint()
            await below.close(aiormq.exceptions.ConnectionClosed(320, "CONNECTION_FORCED"))
        again = await relay.send([message(name, 50)])
    await relay.close()

    assert len(answers) == 50
    assert any(answers)
    assert all(each is None or isinstance(each, RelayUnavailable) for each in answers)
    assert again == [None]


LEFT_BEHIND = """
import asyncio, gc, threading
from sa_outbox import Event
from sa_outbox.relay import Plain
from sa_outbox.relay.rabbitmq import RabbitMQ

async def main():
    gc.disable()
    relay = RabbitMQ("amqp://127.0.0.1:1/")
    message = Plain().wrap(Event("order.placed", {}), "orders", epoch=1, prefix="x")
    for _ in range(3):
        print(*[type(each).__name__ for each in await relay.send([message])])
    # A thread without a loop: a connection that has to be closed there can not, and warns.
    collector = threading.Thread(target=gc.collect)
    collector.start()
    collector.join()
    await relay.close()

asyncio.run(main())
"""


async def test_one_that_can_not_be_reached_leaves_nothing_to_the_garbage_collector() -> None:
    command = [sys.executable, "-W", "always::RuntimeWarning", "-c", LEFT_BEHIND]

    done = await anyio.run_process(command)

    assert done.stdout.split() == [b"RelayUnavailable"] * 3
    assert b"never awaited" not in done.stderr


@pytest.mark.long
async def test_after_the_broker_has_closed_the_connection_there_is_a_new_one(
    rabbitmq_url: str, channel: Any, name: str, queue: Any
) -> None:
    relay = RabbitMQ(f"{rabbitmq_url}?name={name}")
    assert await relay.send([message(name, 1)]) == [None]
    connections = await ctl("list_connections", "pid", "client_properties")
    (pid,) = [each[0] for each in connections if name in "".join(each[1:])]

    await ctl("close_connection", pid, "for a test")

    with anyio.fail_after(PATIENCE):
        while (answer := (await relay.send([message(name, 2)]))[0]) is not None:
            assert isinstance(answer, RelayUnavailable)
    await relay.close()
    bodies = [each.body for each in await read(channel, name)]
    assert list(dict.fromkeys(bodies)) == [b'{"n":1}', b'{"n":2}']


async def ctl(*words: str) -> list[list[str]]:
    """What the broker's operator sees and does."""
    if shutil.which("rabbitmqctl") is None:
        pytest.skip("no rabbitmqctl on the PATH")
    done = await anyio.run_process(["rabbitmqctl", "--quiet", *words], check=False)
    if done.returncode:
        pytest.skip(f"rabbitmqctl: {done.stderr.decode()[-300:]}")
    return [each.split("\t") for each in done.stdout.decode().splitlines()]


@pytest.mark.long
async def test_nothing_is_lost_or_out_of_order_whatever_fails(
    outbox_url: URL, rabbitmq_url: str, channel: Any, name: str, queue: Any, in_a_hurry: None
) -> None:
    address = make_url(rabbitmq_url)
    with Saboteur(
        address.port or 5672, host=address.host or "", seed=4, lives=(30_000, 300_000)
    ) as saboteur:
        saboteur.open()
        url = address.set(port=saboteur.port).render_as_string(hide_password=False)
        scenario = Scenario(outbox_url, RabbitMQ(url), name)

        await scenario.run(
            (saboteur.shut, saboteur.open),
            (saboteur.shut, saboteur.open),
            (saboteur.shut, saboteur.open),
        )

        assert scenario.check(await read(channel, name)) > 0, "answers were lost"
        assert saboteur.cuts > 0
        assert saboteur.lost_answers > 0


class TestServer:
    """A RabbitMQ of the test's own."""

    @pytest.mark.long
    @pytest.mark.timeout(240)  # three starts of RabbitMQ, of ten seconds and more on busy cores
    async def test_nothing_is_lost_or_out_of_order_when_it_is_stopped_or_killed(
        self, outbox_url: URL, tmp_path: Path, name: str, in_a_hurry: None
    ) -> None:
        with (
            RabbitServer(tmp_path) as server,
            Saboteur(server.port, seed=5, lives=(30_000, 300_000)) as saboteur,
        ):
            saboteur.open()
            url = f"amqp://guest:guest@127.0.0.1:{server.port}/"
            async with await aio_pika.connect(url) as connection:
                channel = await connection.channel()
                await channel.declare_queue(
                    name, durable=True, arguments={"x-queue-type": "quorum"}
                )
            relay = RabbitMQ(f"amqp://guest:guest@127.0.0.1:{saboteur.port}/")
            scenario = Scenario(outbox_url, relay, name)

            await scenario.run(
                (server.stop, server.start),
                (lambda: server.stop(signal.SIGKILL), server.start),
            )

            async with await aio_pika.connect(url) as connection:
                found = await read(await connection.channel(), name)
            assert scenario.check(found) > 0, "answers were lost"
            assert saboteur.cuts > 0
            assert saboteur.lost_answers > 0


class TestMaking:
    """Without a broker."""

    @pytest.mark.parametrize(
        ("url", "options"),
        [
            ("http://127.0.0.1", {}),
            ("amqp://:pass/word@127.0.0.1:5672", {}),
            (None, {}),
            ("amqp://127.0.0.1", {"exchange": "x" * 256}),
            ("amqp://127.0.0.1", {"timeout": timedelta(0)}),
        ],
    )
    async def test_refused(self, url: Any, options: dict[str, Any]) -> None:
        with pytest.raises(ConfigError) as refused:
            RabbitMQ(url, **options)
        assert "pass" not in str(refused.value)

    @pytest.mark.parametrize("destination", ["no-slash", "x" * 256 + "/a", "a/" + "x" * 256, "/"])
    async def test_with_an_exchange_in_each_destination(self, destination: str) -> None:
        relay = RabbitMQ("amqp://127.0.0.1", exchange=None)

        with pytest.raises(ConfigError):
            relay.check_destination(destination)
        relay.check_destination("a/b/c")

    async def test_without_its_client_it_says_what_to_install(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setitem(sys.modules, "aio_pika", None)

        with pytest.raises(ConfigError, match=r'pip install "sa_outbox\[rabbitmq\]"'):
            RabbitMQ("amqp://127.0.0.1")

    async def test_its_name_shows_no_password(self) -> None:
        assert repr(RabbitMQ("amqp://me:swordfish@h:1/shop")) == "RabbitMQ('h:1/shop')"
