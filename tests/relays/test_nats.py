"""JetStream against a real NATS server."""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import nats
import pytest
from nats.js import api
from nats.js.errors import NotFoundError
from sqlalchemy import URL

from sa_outbox import Event
from sa_outbox.errors import ConfigError, RelayError, RelayUnavailable, Undeliverable
from sa_outbox.relay import Message, Plain
from sa_outbox.relay.conformance import Arrived, RelayConformance
from sa_outbox.relay.nats import JetStream
from tests.support import PATIENCE
from tests.support.brokers import NatsServer
from tests.support.saboteur import Saboteur

from .faults import Scenario, forward

pytestmark = pytest.mark.anyio
SHORT = timedelta(seconds=1)


@asynccontextmanager
async def connected(url: str) -> AsyncIterator[Any]:
    client = await nats.connect(url, allow_reconnect=False)
    try:
        yield client
    finally:
        await client.close()


@pytest.fixture
async def client(nats_url: str) -> AsyncIterator[Any]:
    async with connected(nats_url) as made:
        yield made


@pytest.fixture
async def stream(client: Any, name: str) -> AsyncIterator[str]:
    """A stream that takes one subject of the same name."""
    await client.jetstream().add_stream(name=name, subjects=[name], storage="memory")
    yield name
    with suppress(NotFoundError):
        await client.jetstream().delete_stream(name)


async def read(client: Any, stream: str) -> list[Arrived]:
    """All that is in it, in its order."""
    jetstream = client.jetstream()
    count = (await jetstream.stream_info(stream)).state.messages
    if not count:
        return []
    messages = await jetstream.subscribe(
        f"{stream}", stream=stream, ordered_consumer=True, pending_msgs_limit=count + 1
    )
    found = []
    for _ in range(count):
        each = await messages.next_msg(timeout=PATIENCE)
        headers = each.headers
        found.append(Arrived(headers["Nats-Msg-Id"], each.data, headers.get("key"), headers))
    await messages.unsubscribe()
    return found


def message(subject: str, number: int = 0, **changes: Any) -> Message:
    event = Event("order.placed", {"n": number}, key=f"k{number}")
    return replace(Plain().wrap(event, subject, epoch=1, prefix="ce-"), **changes)


def kinds(answers: Sequence[object]) -> list[object]:
    return [each.kind if isinstance(each, Undeliverable) else each for each in answers]


class TestConformance(RelayConformance):
    time_limit = 8.0
    ill_formed = (
        "",
        "two words",
        "a..b",
        ".a",
        "a.",
        "a.*",
        "a.>",
        "$JS.API.INFO",
        "a\nb",
        "a" * 1001,
    )
    secret = "swordfish"

    @pytest.fixture(autouse=True)
    async def _broker(self, nats_url: str, client: Any, name: str) -> AsyncIterator[None]:
        self._url, self._client, self._name = nats_url, client, name
        self._streams: list[str] = []
        yield
        for each in self._streams:
            await client.jetstream().delete_stream(each)

    def make_relay(self) -> JetStream:
        return JetStream(self._url)

    def make_relay_to(self, host: str, port: int) -> JetStream:
        return JetStream(f"nats://me:{self.secret}@{host}:{port}", timeout=SHORT)

    def make_undeliverable(self, message: Message) -> Message:
        return replace(message, destination=f"{self._name}.nobody")

    async def new_destination(self) -> str:
        made = f"{self._name}-{len(self._streams)}"
        await self._client.jetstream().add_stream(name=made, subjects=[made], storage="memory")
        self._streams.append(made)
        return made

    async def arrived(self, destination: str, count: int) -> Sequence[Arrived]:
        return await read(self._client, destination)


async def test_what_is_sent_again_adds_nothing(nats_url: str, client: Any, stream: str) -> None:
    relay = JetStream(nats_url, stream=stream)
    messages = [message(stream, n) for n in range(3)]

    await relay.send(messages[:2])
    answers = await relay.send(messages)
    await relay.close()

    assert answers == [None] * 3
    assert [each.body for each in await read(client, stream)] == [
        b'{"n":0}',
        b'{"n":1}',
        b'{"n":2}',
    ]


async def test_a_subject_without_a_stream_is_unknown(nats_url: str, stream: str) -> None:
    relay = JetStream(nats_url)

    answers = await relay.send([message(stream), message(f"{stream}.none"), message(stream, 1)])
    await relay.close()

    assert kinds(answers) == [None, "unknown-destination", None]


async def test_another_stream_than_expected_is_unknown(nats_url: str, stream: str) -> None:
    relay = JetStream(nats_url, stream="another")

    answers = await relay.send([message(stream)])
    await relay.close()

    assert kinds(answers) == ["unknown-destination"]


async def test_what_fits_into_no_message_answers_for_itself(
    nats_url: str, client: Any, stream: str
) -> None:
    relay = JetStream(nats_url)
    bad = [
        message(stream, body=b"x" * (client.max_payload + 1)),
        # The server counts the headers too, and ends the connection of who does not.
        message(stream, body=b"x" * client.max_payload),
        message(stream, body="text"),
        message(stream, headers={"note": "two\nlines"}),
        message(stream, headers={"two words": "x"}),
        message(stream, headers={"note": 3}),
        message(stream, headers={"note": "\ud800"}),
    ]

    answers = await relay.send([message(stream, 1), *bad, message(stream, 2)])
    await relay.close()

    assert kinds(answers) == [None, *["serialization"] * len(bad), None]
    assert len(await read(client, stream)) == 2


async def test_a_stream_that_takes_no_such_size_answers_for_itself(
    nats_url: str, client: Any, name: str
) -> None:
    await client.jetstream().add_stream(
        name=name, subjects=[name], storage="memory", max_msg_size=1000
    )
    relay = JetStream(nats_url)

    answers = await relay.send([message(name, body=b"x" * 2000), message(name)])
    await relay.close()
    await client.jetstream().delete_stream(name)

    assert kinds(answers) == ["serialization", None]


async def test_a_full_stream_is_away_and_not_to_blame_on_anybody(
    nats_url: str, client: Any, name: str
) -> None:
    config = api.StreamConfig(
        name=name,
        subjects=[name],
        storage=api.StorageType.MEMORY,
        max_msgs=2,
        discard=api.DiscardPolicy.NEW,
    )
    await client.jetstream().add_stream(config)
    relay = JetStream(nats_url)

    answers = await relay.send([message(name, n) for n in range(3)])
    await client.jetstream().purge_stream(name)
    again = await relay.send([message(name, 3)])
    await relay.close()
    await client.jetstream().delete_stream(name)

    assert [type(each) for each in answers] == [type(None), type(None), RelayUnavailable]
    assert again == [None]


async def test_what_comes_after_one_that_was_not_taken_stays_behind_it(
    nats_url: str, client: Any, stream: str
) -> None:
    full = f"{stream}-full"
    config = api.StreamConfig(
        name=full,
        subjects=[full],
        storage=api.StorageType.MEMORY,
        max_msgs=1,
        discard=api.DiscardPolicy.NEW,
    )
    await client.jetstream().add_stream(config)
    relay = JetStream(nats_url)
    await relay.send([message(full)])

    answers = await forward(
        relay, [message(stream, 1), message(full, 2), message(stream, 2), message(stream, 3)]
    )
    await relay.close()
    await client.jetstream().delete_stream(full)

    assert [each is None for each in answers] == [True, False, False, True]
    assert [each.body for each in await read(client, stream)] == [b'{"n":1}', b'{"n":3}']


async def test_a_header_of_the_server_gives_no_instructions(
    nats_url: str, client: Any, stream: str
) -> None:
    relay = JetStream(nats_url)

    await relay.send([message(stream, 1)])
    answers = await relay.send([message(stream, 2, headers={"Nats-Rollup": "all"})])
    await relay.close()

    assert answers == [None]
    found = await read(client, stream)
    assert len(found) == 2, "the first was not rolled up"
    assert found[1].headers["x-Nats-Rollup"] == "all"


class TestServer:
    """A server of the test's own."""

    async def test_one_without_jetstream_is_refused(self, tmp_path: Path, name: str) -> None:
        with NatsServer(tmp_path, "-DV") as server:
            url = f"nats://127.0.0.1:{server.port}"
            async with connected(url) as client:
                heard = await client.subscribe(name)
                await client.flush()
                relay = JetStream(url)
                (answer,) = await relay.send([message(name)])
                await relay.close()

                assert isinstance(answer, RelayUnavailable)
                assert "no JetStream" in str(answer)
                assert isinstance(answer.__cause__, ConfigError)
                await client.flush()
                assert heard.pending_msgs == 0, "nothing was sent into the void"

    async def test_what_a_user_may_not_send_is_tried_again(self, tmp_path: Path, name: str) -> None:
        (tmp_path / "conf").write_text(
            "jetstream: {store_dir: " + json.dumps(str(tmp_path / "js")) + "}\n"
            'authorization: {users: [{user: "me", password: "pw",'
            ' permissions: {publish: {deny: ["secret.>"]}}}]}'
        )
        with NatsServer(tmp_path, "-c", str(tmp_path / "conf")) as server:
            url = f"nats://me:pw@127.0.0.1:{server.port}"
            async with connected(url) as client:
                await client.jetstream().add_stream(name="all", subjects=["secret.>", "open"])
            relay = JetStream(url)
            answers = await relay.send([message("open"), message("secret.x"), message("open", 1)])
            await relay.close()
            wrong = JetStream(f"nats://me:wrong@127.0.0.1:{server.port}")
            (refused,) = await wrong.send([message("open")])
            await wrong.close()

        assert [type(each) for each in answers] == [type(None), RelayError, type(None)]
        assert isinstance(refused, RelayUnavailable)

    async def test_it_connects_again_after_a_restart(self, tmp_path: Path, name: str) -> None:
        with NatsServer(tmp_path) as server:
            url = f"nats://127.0.0.1:{server.port}"
            async with connected(url) as client:
                await client.jetstream().add_stream(name=name, subjects=[name])
            relay = JetStream(url)
            assert await relay.send([message(name)]) == [None]
            server.stop()
            (away,) = await relay.send([message(name)])
            server.start()
            assert await relay.send([message(name, 1)]) == [None]
            await relay.close()

        assert isinstance(away, RelayUnavailable)
        assert away.__cause__ is not None

    @pytest.mark.long
    async def test_nothing_is_lost_or_out_of_order_whatever_fails(
        self, outbox_url: URL, tmp_path: Path, name: str, in_a_hurry: None
    ) -> None:
        with (
            NatsServer(tmp_path) as server,
            Saboteur(server.port, seed=3, lives=(30_000, 300_000)) as saboteur,
        ):
            saboteur.open()
            url = f"nats://127.0.0.1:{server.port}"
            async with connected(url) as client:
                await client.jetstream().add_stream(name=name, subjects=[name])
            relay = JetStream(f"nats://127.0.0.1:{saboteur.port}", stream=name)
            scenario = Scenario(outbox_url, relay, name)

            await scenario.run(
                (server.stop, server.start),
                (lambda: server.stop(signal.SIGKILL), server.start),
                (server.stop, server.start),
            )

            async with connected(url) as client:
                found = await read(client, name)
            assert scenario.check(found) == 0, "the stream leaves out what it has seen"
            assert saboteur.cuts > 0
            assert saboteur.lost_answers > 0


class TestMaking:
    """Without a server."""

    @pytest.mark.parametrize(
        ("servers", "options"),
        [
            ("http://127.0.0.1", {}),
            ("nats://:pass/word@127.0.0.1:4222", {}),
            ([], {}),
            (None, {}),
            ("nats://127.0.0.1", {"timeout": timedelta(0)}),
            ("nats://127.0.0.1", {"stream": "two words"}),
        ],
    )
    async def test_refused(self, servers: Any, options: dict[str, Any]) -> None:
        with pytest.raises(ConfigError) as refused:
            JetStream(servers, **options)
        assert "pass" not in str(refused.value)

    async def test_without_its_client_it_says_what_to_install(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setitem(sys.modules, "nats.aio.client", None)

        with pytest.raises(ConfigError, match=r'pip install "sa_outbox\[nats\]"'):
            JetStream("nats://127.0.0.1")

    async def test_its_name_shows_no_password(self) -> None:
        assert repr(JetStream("nats://me:swordfish@h:1")) == "JetStream('h:1')"
