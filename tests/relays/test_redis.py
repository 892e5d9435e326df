"""RedisStreams against a real Redis."""

from __future__ import annotations

import signal
import sys
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import anyio
import pytest
import redis.asyncio
from sqlalchemy import URL

from sa_outbox import Event
from sa_outbox.errors import ConfigError, RelayUnavailable, Undeliverable
from sa_outbox.relay import Message, Plain
from sa_outbox.relay.conformance import Arrived, RelayConformance
from sa_outbox.relay.redis import RedisStreams
from tests.support import PATIENCE
from tests.support.brokers import RedisServer
from tests.support.saboteur import Saboteur

from .faults import Scenario

pytestmark = pytest.mark.anyio


@pytest.fixture
async def client(redis_url: str, name: str) -> AsyncIterator[Any]:
    """Whatever has the test's name is gone after it."""
    made: Any
    async with redis.asyncio.Redis.from_url(redis_url) as made:
        yield made
        if left := [each async for each in made.scan_iter(f"*{name}*", 10_000)]:
            await made.unlink(*left)


async def read(client: Any, stream: str) -> list[Arrived]:
    found, entries, last = [], [], "-"
    while page := await client.xrange(stream, min=last, count=2000):
        entries += page
        last = f"({page[-1][0].decode()}"
    for _, fields in entries:
        headers = {name.decode(): value for name, value in fields.items()}
        key = headers.get("key")
        found.append(
            Arrived(
                headers["event_id"].decode(),
                headers.pop("body"),
                None if key is None else key.decode(),
                {name: value.decode() for name, value in headers.items()},
            )
        )
    return found


def message(stream: str, number: int = 0, **changes: Any) -> Message:
    made = Plain().wrap(
        Event("order.placed", {"n": number}, key="a"), stream, epoch=1, prefix="ce_"
    )
    return replace(made, **changes)


class TestConformance(RelayConformance):
    time_limit = 5.0
    ill_formed = ("", "two words", "new\nline", "n" * 513, "\x00")
    secret = "swordfish"

    @pytest.fixture(autouse=True)
    async def _broker(self, redis_url: str, client: Any, name: str) -> None:
        self._url, self._client, self._name, self._count = redis_url, client, name, 0
        await client.set(f"{name}-text", "no stream", ex=300)

    def make_relay(self) -> RedisStreams:
        return RedisStreams(self._url)

    def make_relay_to(self, host: str, port: int) -> RedisStreams:
        url = f"redis://me:{self.secret}@{host}:{port}/0"
        return RedisStreams(url, timeout=timedelta(seconds=1))

    def make_undeliverable(self, message: Message) -> Message:
        return replace(message, destination=f"{self._name}-text")

    async def new_destination(self) -> str:
        self._count += 1
        return f"{self._name}-{self._count}"

    async def arrived(self, destination: str, count: int) -> Sequence[Arrived]:
        return await read(self._client, destination)


async def test_what_is_sent_again_adds_nothing(redis_url: str, client: Any, name: str) -> None:
    relay = RedisStreams(redis_url, deduplicate_for=timedelta(seconds=60))
    messages = [message(name, n) for n in range(3)]

    await relay.send(messages[:2])
    answers = await relay.send(messages)
    await relay.close()

    assert answers == [None] * 3
    assert [each.body for each in await read(client, name)] == [b'{"n":0}', b'{"n":1}', b'{"n":2}']
    (seen,) = [each async for each in client.scan_iter(f"*{messages[0].event.event_id}", 10_000)]
    assert 0 < await client.ttl(seen) <= 60


async def test_without_deduplication_it_is_there_twice(
    redis_url: str, client: Any, name: str
) -> None:
    relay = RedisStreams(redis_url, deduplicate_for=None)
    one = message(name)

    await relay.send([one])
    await relay.send([one])
    await relay.close()

    assert [each.event_id for each in await read(client, name)] == [str(one.event.event_id)] * 2


async def test_a_stream_is_kept_short(redis_url: str, client: Any, name: str) -> None:
    relay = RedisStreams(redis_url, max_length=100)

    await relay.send([message(name, n) for n in range(1000)])
    await relay.close()

    assert await client.xlen(name) < 400, "about a hundred: whole nodes are dropped"


async def test_only_what_goes_to_a_wrong_key_is_refused(
    redis_url: str, client: Any, name: str
) -> None:
    relay = RedisStreams(redis_url)
    await client.set(f"{name}-text", "no stream", ex=300)

    answers = await relay.send(
        [message(name), message(f"{name}-text"), message(name), message(f"{name}-text")]
    )
    await relay.close()

    assert [type(each) for each in answers] == [type(None), Undeliverable] * 2
    assert isinstance(answers[1], Undeliverable)
    assert answers[1].kind == "unknown-destination"
    assert len(await read(client, name)) == 2


async def test_what_fits_into_no_message_answers_for_itself(
    redis_url: str, client: Any, name: str
) -> None:
    relay = RedisStreams(redis_url, max_message_bytes=1000)
    bad = [
        message(name, body=b"x" * 1001),
        message(name, body="text"),
        message(name, headers={"note": 3}),
        message(name, headers={"note": "\ud800"}),
        message(name, headers={str(n): "" for n in range(3000)}),
        message(name, key=3),
    ]

    answers = await relay.send([message(name, 1), *bad, message(name, 2)])
    await relay.close()

    kinds = [each.kind if isinstance(each, Undeliverable) else each for each in answers]
    assert kinds == [None, *["serialization"] * len(bad), None]
    assert [each.body for each in await read(client, name)] == [b'{"n":1}', b'{"n":2}']


async def test_large_batches_go_in_parts(redis_url: str, client: Any, name: str) -> None:
    relay = RedisStreams(redis_url)
    body = b"x" * 900_000

    answers = await relay.send([message(name, n, body=body) for n in range(25)])
    await relay.close()

    assert answers == [None] * 25
    assert await client.xlen(name) == 25
    await client.delete(name)


async def test_a_header_by_the_name_of_a_field_has_another_name(
    redis_url: str, client: Any, name: str
) -> None:
    relay = RedisStreams(redis_url)

    await relay.send([message(name, headers={"body": "b", "key": "k", "event_id": "e"})])
    await relay.close()

    ((_, fields),) = await client.xrange(name)
    assert fields[b"body"] == b'{"n":0}'
    assert fields[b"key"] == b"a"
    assert (fields[b"header:body"], fields[b"header:key"], fields[b"header:event_id"]) == (
        b"b",
        b"k",
        b"e",
    )


class TestServer:
    """A Redis of the test's own, in the states that pass."""

    async def test_one_that_is_full_or_a_replica_is_away(self, tmp_path: Path, name: str) -> None:
        with RedisServer(tmp_path) as server:
            url = f"redis://127.0.0.1:{server.port}"
            relay = RedisStreams(url)
            client: Any
            async with redis.asyncio.Redis.from_url(url) as client:
                for setting, value, back in (
                    ("maxmemory", "1", "0"),
                    ("requirepass", "swordfish", ""),
                    ("min-replicas-to-write", "1", "0"),
                ):
                    await client.config_set(setting, value)
                    await relay.close()
                    (answer,) = await relay.send([message(name)])
                    assert isinstance(answer, RelayUnavailable), setting
                    if setting == "requirepass":
                        await client.execute_command("AUTH", "swordfish")
                    await client.config_set(setting, back)
                await client.replicaof("127.0.0.1", server.port)
                (answer,) = await relay.send([message(name)])
                assert isinstance(answer, RelayUnavailable)
                await client.replicaof("NO", "ONE")

                assert await relay.send([message(name), message(name)]) == [None, None]
                await client.script_flush()
                assert await relay.send([message(name)]) == [None], "a script that is forgotten"
            await relay.close()

    async def test_in_a_cluster_destinations_have_a_common_tag(
        self, tmp_path: Path, name: str
    ) -> None:
        with RedisServer(tmp_path, "--cluster-enabled", "yes") as server:
            url = f"redis://127.0.0.1:{server.port}"
            client: Any
            async with redis.asyncio.Redis.from_url(url) as client:
                await client.execute_command("CLUSTER", "ADDSLOTSRANGE", 0, 16383)
                relay = RedisStreams(url)
                streams = [name, f"{{{name}}}-2", f"more-{{{name}}}"]
                for stream in streams:
                    relay.check_destination(stream)
                with anyio.fail_after(PATIENCE):  # a cluster needs two seconds to find its state
                    while (answer := (await relay.send([message("x")]))[0]) is not None:
                        assert isinstance(answer, RelayUnavailable)
                        await anyio.sleep(0)

                assert await relay.send([message(each) for each in streams]) == [None] * 3
                await relay.close()
                assert len(await read(client, streams[2])) == 1

    @pytest.mark.long
    async def test_nothing_is_lost_or_out_of_order_whatever_fails(
        self, outbox_url: URL, tmp_path: Path, name: str, in_a_hurry: None
    ) -> None:
        with (
            RedisServer(tmp_path) as server,
            Saboteur(server.port, seed=1, lives=(100_000, 900_000)) as saboteur,
        ):
            saboteur.open()
            relay = RedisStreams(f"redis://127.0.0.1:{saboteur.port}")
            scenario = Scenario(outbox_url, relay, name)

            # The kill comes last: Redis 7.0 leaves half a transaction in its file if it is killed
            # while it writes, and carries it out when it is started the next time but one.
            await scenario.run(
                (server.stop, server.start),
                (server.stop, server.start),
                (lambda: server.stop(signal.SIGKILL), server.start),
            )

            async with redis.asyncio.Redis(port=server.port) as client:
                found = await read(client, name)
            assert scenario.check(found) == 0, "Redis leaves out what it has seen"
            assert saboteur.cuts > 0
            assert saboteur.lost_answers > 0

    @pytest.mark.long
    async def test_without_deduplication_a_receiver_can_leave_out_what_it_has_seen(
        self, outbox_url: URL, tmp_path: Path, name: str, in_a_hurry: None
    ) -> None:
        with (
            RedisServer(tmp_path) as server,
            Saboteur(server.port, seed=32, lives=(100_000, 900_000)) as saboteur,
        ):
            saboteur.open()
            relay = RedisStreams(f"redis://127.0.0.1:{saboteur.port}", deduplicate_for=None)
            scenario = Scenario(outbox_url, relay, name)

            await scenario.run()

            async with redis.asyncio.Redis(port=server.port) as client:
                found = await read(client, name)
            assert scenario.check(found) > 0, "answers were lost"


class TestMaking:
    """Without a server."""

    @pytest.mark.parametrize(
        ("url", "options"),
        [
            ("http://127.0.0.1", {}),
            ("redis://:pass/word@127.0.0.1:6379", {}),
            (None, {}),
            ("redis://127.0.0.1", {"max_length": 0}),
            ("redis://127.0.0.1", {"deduplicate_for": timedelta(0)}),
            ("redis://127.0.0.1", {"timeout": timedelta(0)}),
        ],
    )
    async def test_refused(self, url: Any, options: dict[str, Any]) -> None:
        with pytest.raises(ConfigError) as refused:
            RedisStreams(url, **options)
        assert "word" not in str(refused.value)
        assert refused.value.__cause__ is None

    async def test_without_its_client_it_says_what_to_install(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setitem(sys.modules, "redis.asyncio", None)

        with pytest.raises(ConfigError, match=r'pip install "sa_outbox\[redis\]"'):
            RedisStreams("redis://127.0.0.1")

    async def test_its_name_shows_no_password(self) -> None:
        assert repr(RedisStreams("redis://me:swordfish@h:1/2")) == "RedisStreams('h:1/2')"
