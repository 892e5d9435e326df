"""The webhook relay against real servers, most of which mean no good."""

from __future__ import annotations

import asyncio
import gc
import gzip
import io
import socket
import ssl
import tracemalloc
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import unquote
from uuid import uuid4

import anyio
import httpcore2
import pytest

from sa_outbox import Event
from sa_outbox.errors import ConfigError, RelayError, RelayUnavailable, Undeliverable
from sa_outbox.policy.failure import describe
from sa_outbox.policy.retry_after import retry_after
from sa_outbox.relay import Answer, CloudEvents, Message, Plain
from sa_outbox.relay.conformance import Arrived, RelayConformance
from sa_outbox.relay.http import Secret, Webhook, breaker, exchange, webhook
from sa_outbox.relay.http import dial as dialling
from sa_outbox.relay.http.answers import BadAnswer
from sa_outbox.relay.http.target import parse
from sa_outbox.webhooks import new_secret, verify
from tests.support.certificates import Authority
from tests.support.endpoint import OK, Endpoint, Received, answer, drips, floods, never

pytestmark = pytest.mark.anyio

SECRET = new_secret()
LOOPBACK = ("127.0.0.0/8",)
SHORT = timedelta(milliseconds=400)


def post(**options: Any) -> Webhook:
    given = {"secrets": SECRET, "allow": LOOPBACK, "allow_http": True, "ports": "any"}
    return Webhook(**{**given, **options})


def message(to: str, *, envelope: Any = None, **fields: Any) -> Message:
    event: Event[Any] = Event("order.placed", {"n": 1}, created_at=datetime.now(UTC), **fields)
    made: Message = (envelope or Plain()).wrap(event, to, epoch=1, prefix="ce-")
    return made


async def send(relay: Webhook, to: str, **fields: Any) -> Answer:
    return await deliver(relay, message(to, **fields))


async def deliver(relay: Webhook, given: Message) -> Answer:
    try:
        (found,) = await relay.send([given])
    finally:
        await relay.close()
    return found


def known(**names: list[str]) -> Any:
    """A resolver that knows these names."""

    async def resolve(host: str, port: int) -> list[str]:
        try:
            return names[host.replace(".", "_")]
        except KeyError:
            raise socket.gaierror(socket.EAI_NONAME, "unknown") from None

    return resolve


@contextmanager
def memory_stays_below(limit: int) -> Iterator[None]:
    tracemalloc.start()
    before, _ = tracemalloc.get_traced_memory()
    try:
        yield
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak - before < limit


class TestConformance(RelayConformance):
    """But for one thing: where nobody answers, an attempt is counted (docs/relay-webhooks.md)."""

    ill_formed = ("", "acme", "https://", "https://a b/", "https://10.0.0.1/", "ftp://acme.example")

    @pytest.fixture(autouse=True)
    async def _server(self) -> AsyncIterator[None]:
        async with Endpoint().running() as self._endpoint:
            yield

    def make_relay(self) -> Webhook:
        return post()

    async def new_destination(self) -> str:
        return self._endpoint.url(f"/{uuid4().hex}")

    def make_undeliverable(self, message: Message) -> Message:
        return replace(message, headers={"no name": "x"})

    async def test_where_nobody_listens_it_is_unavailable(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        await self._counts(port)

    async def test_where_nobody_answers_it_is_unavailable(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as silent:
            await self._counts(silent.getsockname()[1])

    async def _counts(self, port: int) -> None:
        relay = post(timeout=SHORT)
        answer = await send(relay, f"http://127.0.0.1:{port}/")
        await relay.close()
        assert isinstance(answer, RelayError)
        assert not isinstance(answer, (RelayUnavailable, Undeliverable))

    async def arrived(self, destination: str, count: int) -> Sequence[Arrived]:
        path = destination.removeprefix(self._endpoint.url(""))
        found = []
        for each in self._endpoint.received:
            headers = {
                name.replace("-", "_"): unquote(value) for name, value in each.headers.items()
            }
            if each.line.split()[1] == path:
                key = headers.get("key")
                found.append(Arrived(each.headers["webhook-id"], each.body, key, headers))
        return found


class TestRequest:
    async def test_an_event_is_one_signed_post(self) -> None:
        async with Endpoint().running() as endpoint:
            assert await send(post(bearer="t0ken"), endpoint.url("/hook?a=b"), key="k") is None

        (got,) = endpoint.received
        assert got.line == "POST /hook?a=b HTTP/1.1"
        assert got.body == b'{"n":1}'
        assert got.headers["host"] == f"127.0.0.1:{endpoint.port}"
        assert got.headers["content-type"] == "application/json"
        assert got.headers["accept-encoding"] == "identity"
        assert got.headers["authorization"] == "Bearer t0ken"
        assert got.headers["event-type"] == "order.placed"
        assert got.headers["key"] == "k"
        assert got.headers["user-agent"].startswith("sa_outbox/")
        assert verify(got.body, got.headers, SECRET).message_id == got.headers["event-id"]

    async def test_a_cloud_event(self) -> None:
        async with Endpoint().running() as endpoint:
            await send(post(), endpoint.url(), envelope=CloudEvents("/shop"), key="Zoë K")

        (got,) = endpoint.received
        assert got.headers["ce-id"] == got.headers["webhook-id"]
        assert got.headers["ce-subject"] == "Zo%C3%AB%20K"

    async def test_two_secrets_make_two_signatures(self) -> None:
        other = new_secret()
        async with Endpoint().running() as endpoint:
            await send(post(secrets=[SECRET, other]), endpoint.url())

        (got,) = endpoint.received
        for secret in (SECRET, other):
            assert verify(got.body, got.headers, secret).body == got.body

    async def test_without_secrets_there_is_no_signature(self) -> None:
        async with Endpoint().running() as endpoint:
            await send(post(secrets=()), endpoint.url())

        assert "webhook-signature" not in endpoint.received[0].headers
        assert "webhook-id" in endpoint.received[0].headers

    async def test_connections_are_used_again(self) -> None:
        relay = post()
        async with Endpoint().running() as endpoint:
            for _ in range(20):
                assert await relay.send([message(endpoint.url())]) == [None]
            await relay.close()

        assert endpoint.connections == 1

    async def test_a_connection_that_was_closed_while_idle_costs_no_attempt(self) -> None:
        served: Counter[asyncio.StreamWriter] = Counter()

        async def behave(it: Endpoint, request: Received, writer: asyncio.StreamWriter) -> None:
            served[writer] += 1
            if served[writer] == 2:
                writer.close()
                await writer.wait_closed()
            writer.write(OK)

        relay = post()
        async with Endpoint(behave).running() as endpoint:
            for _ in range(5):
                assert await relay.send([message(endpoint.url())]) == [None]
            await relay.close()

        ids = [each.headers["webhook-id"] for each in endpoint.received]
        assert len(set(ids)) == 5
        assert len(ids) == 9, "each but the first was begun on the connection of the one before"

    async def test_secrets_come_from_the_environment(self, monkeypatch: pytest.MonkeyPatch) -> None:
        relay = post(secrets=Secret.env("A_SECRET"), bearer=Secret.env("A_TOKEN"))
        async with Endpoint().running() as endpoint:
            missing = await send(relay, endpoint.url())
            assert isinstance(missing, RelayUnavailable), "no event's fault"
            assert "A_SECRET" in str(missing) or "A_TOKEN" in str(missing)
            monkeypatch.setenv("A_SECRET", SECRET)
            monkeypatch.setenv("A_TOKEN", "t")
            assert await send(relay, endpoint.url()) is None

        (got,) = endpoint.received
        assert verify(got.body, got.headers, SECRET).body == got.body

    @pytest.mark.parametrize("header", ["x\r\ny", "a b", ""])
    async def test_a_header_without_a_name_goes_nowhere(self, header: str) -> None:
        async with Endpoint().running() as endpoint:
            bad = Message(Event("a", {}), endpoint.url(), b"", None, {header: "1"})
            found = await deliver(post(), bad)

        assert isinstance(found, Undeliverable)
        assert endpoint.received == []


class TestAnswers:
    @pytest.mark.parametrize("status", [200, 201, 202, 204, 206, 299])
    async def test_success(self, status: int) -> None:
        async with Endpoint(
            answers=[answer(status, b'{"error": "no"}' * (status != 204))]
        ).running() as it:
            assert await send(post(), it.url()) is None

    @pytest.mark.parametrize("status", [400, 401, 403, 404, 405, 409, 413, 415, 422, 451, 499])
    async def test_the_end(self, status: int) -> None:
        async with Endpoint(answers=[answer(status, b"no such hook")] * 2).running() as endpoint:
            found = await send(post(), endpoint.url())
            again = await send(post(retry_4xx=True), endpoint.url())

        assert isinstance(found, Undeliverable)
        assert str(found) == f"HTTP {status}: no such hook"
        assert isinstance(again, RelayError)
        assert not isinstance(again, (Undeliverable, RelayUnavailable))

    @pytest.mark.parametrize(
        "status", [300, 301, 302, 303, 304, 307, 308, 408, 425, 429, 500, 501, 502, 503, 504, 599]
    )
    async def test_again(self, status: int) -> None:
        async with Endpoint(answers=[answer(status)]).running() as endpoint:
            found = await send(post(), endpoint.url())

        assert isinstance(found, RelayError)
        assert not isinstance(found, (Undeliverable, RelayUnavailable))
        assert retry_after(found, now=datetime.now(UTC)) is None

    @pytest.mark.parametrize("status", [429, 503])
    @pytest.mark.parametrize(
        ("asked", "waits"),
        [("7", 7), ("0", 0), ("99999999", 86400), ("nonsense", None), ("-5", None)],
    )
    async def test_retry_after_is_honoured_and_capped(
        self, status: int, asked: str, waits: int | None
    ) -> None:
        async with Endpoint(answers=[answer(status, retry_after=asked)]).running() as endpoint:
            found = await send(post(), endpoint.url())

        assert isinstance(found, RelayError)
        expected = None if waits is None else timedelta(seconds=waits)
        assert retry_after(found, now=datetime.now(UTC)) == expected

    async def test_while_one_is_asked_to_wait_all_wait(self) -> None:
        relay = post()
        async with Endpoint(answers=[answer(429, retry_after="60")]).running() as endpoint:
            await relay.send([message(endpoint.url())])
            (found,) = await relay.send([message(endpoint.url())])
            (other,) = await relay.send([message(endpoint.url("/other"))])
            await relay.close()

        assert isinstance(found, RelayUnavailable)
        assert other is None
        assert len(endpoint.received) == 2

    async def test_an_endpoint_that_is_gone_gets_nothing_more(self) -> None:
        relay = post()
        async with Endpoint(answers=[answer(410)]).running() as endpoint:
            found = [(await relay.send([message(endpoint.url())]))[0] for _ in range(3)]
            await relay.close()

        assert all(isinstance(each, Undeliverable) for each in found)
        assert len(endpoint.received) == 1

    async def test_one_that_is_gone_is_sent_to_again_if_that_was_chosen(self) -> None:
        relay = post(retry_410=True)
        async with Endpoint(answers=[answer(410), answer(410), OK]).running() as endpoint:
            found = [(await relay.send([message(endpoint.url())]))[0] for _ in range(3)]
            assert not relay.is_gone(endpoint.url())
            await relay.close()

        assert [type(each) for each in found] == [BadAnswer, BadAnswer, type(None)]
        assert len(endpoint.received) == 3

    @pytest.mark.parametrize("to", ["http://127.0.0.1:{}/trap", "file:///etc/passwd", "//x", ""])
    async def test_a_redirect_is_not_followed(self, to: str) -> None:
        async with Endpoint().running() as trap, Endpoint().running() as endpoint:
            endpoint.answers = [answer(302, location=to.format(trap.port))]
            found = await send(post(), endpoint.url())

        assert isinstance(found, RelayError)
        assert trap.connections == 0

    async def test_what_a_stranger_says_is_escaped_and_cut(self) -> None:
        body = b"\xff\x00<script>\x1b[2J\r\n" + b"x" * 10_000
        async with Endpoint(answers=[answer(500, body)]).running() as endpoint:
            found = await send(post(), endpoint.url())

        assert str(found).startswith("HTTP 500: \\xff\\x00<script>\\x1b[2J\\r\\nxxx")
        assert str(found).isprintable()
        assert len(str(found)) < 600

    @pytest.mark.parametrize(
        "said",
        [
            b"",
            b"\r\n\r\n",
            b"SSH-2.0-OpenSSH_9.9\r\n",
            b"HTTP/1.1 abc\r\n\r\n",
            b"HTTP/1.1 200 OK\r\ncontent-length: -1\r\n\r\n",
            b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\n",
            b"HTTP/1.1 99999 OK\r\n\r\n",
            b"\x16\x03\x01" * 50,
        ],
    )
    async def test_what_is_no_answer_is_a_failure(self, said: bytes) -> None:
        async def behave(it: Endpoint, request: Received, writer: asyncio.StreamWriter) -> None:
            writer.write(said)
            writer.close()
            await writer.wait_closed()

        async with Endpoint(behave).running() as endpoint:
            found = await send(post(timeout=SHORT), endpoint.url())

        assert isinstance(found, RelayError)
        assert not isinstance(found, (Undeliverable, RelayUnavailable))

    async def test_a_body_that_breaks_off_does_not_change_the_status(self) -> None:
        async def behave(it: Endpoint, request: Received, writer: asyncio.StreamWriter) -> None:
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nhalf")
            writer.close()
            await writer.wait_closed()

        async with Endpoint(behave).running() as endpoint:
            assert await send(post(), endpoint.url()) is None


CHUNK = b"10000\r\n" + b"x" * 0x10000 + b"\r\n"
ENDLESS = b"HTTP/1.1 %d X\r\ntransfer-encoding: chunked\r\n\r\n"


def bomb() -> bytes:
    """Some kB that are 50 MB."""
    packed = io.BytesIO()
    with gzip.GzipFile(fileobj=packed, mode="wb", compresslevel=6) as file:
        for _ in range(50):
            file.write(bytes(1_000_000))
    return packed.getvalue()


class TestHostileServers:
    @pytest.fixture(autouse=True)
    def _in_a_hurry(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(exchange, "BODY_SECONDS", 0.2)

    @pytest.mark.parametrize("status", [200, 500])
    async def test_a_body_without_an_end(self, status: int) -> None:
        endpoint = Endpoint(floods(ENDLESS % status, CHUNK))
        async with endpoint.running():
            with memory_stays_below(4_000_000), anyio.fail_after(10):
                found = await send(post(), endpoint.url())

        assert (found is None) == (status == 200)
        assert endpoint.sent < 50_000_000, "what the kernel buffers, and no more"

    @pytest.mark.parametrize("status", [200, 500])
    async def test_a_gzip_bomb(self, status: int) -> None:
        packed = answer(status, bomb(), content_encoding="gzip")
        async with Endpoint(answers=[packed]).running() as endpoint:
            with memory_stays_below(4_000_000):
                found = await send(post(), endpoint.url())

        assert (found is None) == (status == 200)

    @pytest.mark.parametrize(
        "behave",
        [
            pytest.param(never, id="nothing"),
            pytest.param(drips(b"", b"H"), id="status"),
            pytest.param(drips(b"HTTP/1.1 200 OK\r\nx: ", b"y"), id="header"),
            pytest.param(drips(b"HTTP/1.1 200 OK\r\n", b"x: y\r\n"), id="headers"),
            pytest.param(drips(b"", b"HTTP/1.1 100 Continue\r\n\r\n"), id="continue"),
        ],
    )
    async def test_one_that_never_comes_to_the_point(self, behave: Any) -> None:
        endpoint = Endpoint(behave)
        async with endpoint.running():
            with memory_stays_below(4_000_000), anyio.fail_after(10):
                found = await send(post(timeout=SHORT), endpoint.url())

        assert isinstance(found, RelayError)
        assert not isinstance(found, (Undeliverable, RelayUnavailable))
        assert str(found) == "no answer within 0.4 s"

    @pytest.mark.parametrize("status", [200, 500])
    async def test_a_body_that_drips(self, status: int) -> None:
        endpoint = Endpoint(drips(ENDLESS % status, b"1\r\nx\r\n"))
        async with endpoint.running():
            with anyio.fail_after(10):
                found = await send(post(), endpoint.url())

        assert (found is None) == (status == 200)

    @pytest.mark.parametrize(
        ("first", "header"),
        [
            pytest.param(b"HTTP/1.1 200 OK\r\n", b"x: y\r\n" * 500, id="many"),
            pytest.param(b"HTTP/1.1 200 OK\r\n", b"x" * 5000, id="one"),
            pytest.param(b"HTTP/1.1 200 OK\r\n", b"x" * 5000 + b": y\r\n", id="long"),
            pytest.param(b"", b"HTTP/1.1 100 Continue\r\n\r\n" * 100, id="interim answers"),
        ],
    )
    async def test_a_flood_of_headers(self, first: bytes, header: bytes) -> None:
        endpoint = Endpoint(floods(first, header))
        async with endpoint.running():
            with memory_stays_below(4_000_000), anyio.fail_after(10):
                found = await send(post(), endpoint.url())

        assert isinstance(found, RelayError)
        assert "RemoteProtocolError" in str(found) or "more than 262,144 bytes" in str(found)

    async def test_after_no_answer_the_same_message_comes_again(self) -> None:
        given: list[Received] = []

        async def behave(it: Endpoint, request: Received, writer: asyncio.StreamWriter) -> None:
            given.append(request)
            if len(given) == 1:
                await never(it, request, writer)
            writer.write(OK)

        relay = post(timeout=SHORT)
        async with Endpoint(behave).running() as endpoint:
            one = message(endpoint.url())
            (found,) = await relay.send([one])
            assert isinstance(found, RelayError)
            assert await relay.send([one]) == [None]
            await relay.close()

        first, second = given
        assert first.headers["webhook-id"] == second.headers["webhook-id"]
        assert first.body == second.body
        assert verify(second.body, second.headers, SECRET).body == second.body

    async def test_one_that_is_down_is_not_asked_for_every_event(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        now = [1000.0]
        monkeypatch.setattr(webhook, "monotonic", lambda: now[0])
        endpoint = Endpoint()
        async with endpoint.running():
            pass
        probe_interval = timedelta(seconds=90)
        relay = post(probe_interval=probe_interval)  # nobody listens there any more
        found = [(await relay.send([message(endpoint.url())]))[0] for _ in range(20)]

        counted = [each for each in found if not isinstance(each, RelayUnavailable)]
        assert len(counted) == breaker.FAILURES
        now[0] += 89
        (resting,) = await relay.send([message(endpoint.url())])
        assert isinstance(resting, RelayUnavailable)
        now[0] += 1
        found = [(await relay.send([message(endpoint.url())]))[0] for _ in range(20)]
        assert [isinstance(each, RelayUnavailable) for each in found] == [False] + [True] * 19

        old = message(endpoint.url(), event_id=None)
        now[0] += breaker.LONG_DOWN_SECONDS
        await relay.send([message(endpoint.url())])
        (young,) = await relay.send([old])
        patient = post(give_up_after=timedelta(microseconds=1))
        patient._breakers = relay._breakers
        (given_up,) = await patient.send([old])
        assert isinstance(young, RelayUnavailable)
        assert isinstance(given_up, Undeliverable)


# One of each kind of address and of each way to write one: tests/unit/test_webhook_addresses.py has
# the whole lists. Names are here alone: only a connection resolves them.
HOSTILE = [
    "http://127.0.0.1:{port}/",
    "http://127.1:{port}/",
    "http://0x7f000001:{port}/",
    "http://2130706433:{port}/",
    "http://0.0.0.0:{port}/",
    "http://[::1]:{port}/",
    "http://[::ffff:127.0.0.1]:{port}/",
    "http://[64:ff9b::127.0.0.1]:{port}/",
    "http://[fe80::1%25lo]:{port}/",
    "http://169.254.169.254:{port}/latest/meta-data/",
    "http://10.0.0.1:{port}/",
    "http://loopback.example:{port}/",
    "http://mapped.example:{port}/",
    "http://metadata.example:{port}/",
    "http://mixed.example:{port}/",
    "http://zoned.example:{port}/",
    "http://unknown.example:{port}/",
    "http://empty.example:{port}/",
    "http://public.example@127.0.0.1:{port}/",
    "http://127.0.0.1\\@public.example:{port}/",
    "http://127.0.0.1:{port}\r\nx:/",
    "https://127.0.0.1:{port}/",
    "gopher://127.0.0.1:{port}/_x",
    "unix:///var/run/docker.sock",
]


class TestHostileAddresses:
    RESOLVER = staticmethod(
        known(
            loopback_example=["127.0.0.1"],
            mapped_example=["::ffff:127.0.0.1"],
            metadata_example=["169.254.169.254"],
            mixed_example=["8.8.8.8", "127.0.0.1"],
            zoned_example=["fe80::1%lo"],
            empty_example=[],
        )
    )

    async def test_nothing_is_reached(self) -> None:
        dialled: list[str] = []

        async def dial(host: str, port: int, **rest: Any) -> Any:
            dialled.append(host)
            raise httpcore2.ConnectError("no")

        guarded = dialling.Guarded((), self.RESOLVER)
        guarded._dial = dial
        async with Endpoint().running() as trap:
            for url in HOSTILE:
                to = url.format(port=trap.port)
                relay = post(allow=(), resolve=self.RESOLVER, timeout=SHORT)
                try:
                    relay.check_destination(to)
                except ConfigError:
                    continue
                found = await send(relay, to)
                assert isinstance(found, RelayError), url
                assert not isinstance(found, RelayUnavailable), url
                host = parse(to, allow_http=True, ports="any").host
                with pytest.raises((dialling.Denied, httpcore2.ConnectError)):
                    await guarded.connect_tcp(host, trap.port)
                assert (trap.connections, dialled) == (0, []), url

            # And the trap is one: with leave to go there it is reached.
            assert await send(post(), trap.url()) is None
            assert trap.connections == 1

    async def test_a_name_that_changes_its_address_is_resolved_once(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        asked: list[str] = []
        dialled: list[str] = []

        async def resolve(host: str, port: int) -> list[str]:
            asked.append(host)
            return ["93.184.216.34"] if len(asked) == 1 else ["127.0.0.1"]

        async def dial(self: object, host: str, port: int, **rest: Any) -> Any:
            dialled.append(host)
            raise httpcore2.ConnectError("no network in a test")

        monkeypatch.setattr(httpcore2.AnyIOBackend, "connect_tcp", dial)
        relay = post(allow=(), resolve=resolve)
        async with Endpoint().running() as trap:
            first = await send(relay, trap.url(host="rebind.example"))
            second = await send(relay, trap.url(host="rebind.example"))

        assert isinstance(first, RelayError)
        assert isinstance(second, Undeliverable)
        assert asked == ["rebind.example"] * 2, "once for each connection"
        assert dialled == ["93.184.216.34"]
        assert trap.connections == 0

    async def test_the_name_is_kept_though_an_address_is_dialled(self) -> None:
        relay = post(resolve=known(acme_example=["127.0.0.1"]))
        async with Endpoint().running() as endpoint:
            assert await send(relay, endpoint.url(host="acme.example")) is None

        assert endpoint.received[0].headers["host"] == f"acme.example:{endpoint.port}"

    async def test_the_next_address_is_tried(self) -> None:
        relay = post(resolve=known(acme_example=["127.0.0.2", "127.0.0.1"]))
        async with Endpoint().running() as endpoint:
            assert await send(relay, endpoint.url(host="acme.example")) is None

    async def test_the_machines_own_resolver(self) -> None:
        found = await dialling.Resolver()("127.0.0.1", 80)

        assert found == ["127.0.0.1"]

    async def test_the_environment_names_no_proxy(self, monkeypatch: pytest.MonkeyPatch) -> None:
        async with Endpoint().running() as trap, Endpoint().running() as endpoint:
            for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy", "HTTPS_PROXY"):
                monkeypatch.setenv(name, trap.url(""))
            assert await send(post(), endpoint.url()) is None

        assert trap.connections == 0


class TestTls:
    @pytest.fixture
    def authority(self, tmp_path: Path) -> Authority:
        return Authority(tmp_path)

    def relay(self, authority: Authority, **options: Any) -> Webhook:
        context = options.pop("ssl_context", authority.trust())
        resolve = known(acme_example=["127.0.0.1"])
        return post(ssl_context=context, resolve=resolve, allow_http=False, **options)

    async def test_a_certificate_of_a_trusted_authority(self, authority: Authority) -> None:
        async with Endpoint().running(authority.server("acme.example")) as endpoint:
            to = endpoint.url(scheme="https", host="acme.example")
            assert await send(self.relay(authority), to) is None

    @pytest.mark.parametrize(
        "options",
        [
            pytest.param({"host": "acme.example", "days": -1}, id="expired"),
            pytest.param({"host": "other.example"}, id="of another host"),
            pytest.param({"host": "acme.example", "self_signed": True}, id="self-signed"),
        ],
    )
    async def test_one_that_is_not(self, authority: Authority, options: dict[str, Any]) -> None:
        async with Endpoint().running(authority.server(**options)) as endpoint:
            to = endpoint.url(scheme="https", host="acme.example")
            found = await send(self.relay(authority), to)

        assert isinstance(found, RelayError)
        assert "certificate verify failed" in str(found).lower()
        assert endpoint.received == []

    async def test_an_authority_that_nobody_named(self, authority: Authority) -> None:
        async with Endpoint().running(authority.server("acme.example")) as endpoint:
            to = endpoint.url(scheme="https", host="acme.example")
            found = await send(self.relay(authority, ssl_context=None), to)

        assert "certificate verify failed" in str(found).lower()
        assert endpoint.received == []

    async def test_a_server_without_tls(self, authority: Authority) -> None:
        async with Endpoint().running() as endpoint:
            to = endpoint.url(scheme="https", host="acme.example")
            found = await send(self.relay(authority, timeout=SHORT), to)

        assert isinstance(found, RelayError)
        assert endpoint.received == []

    async def test_a_handshake_without_an_end(self, authority: Authority) -> None:
        with socket.create_server(("127.0.0.1", 0)) as server, anyio.fail_after(10):
            relay = self.relay(authority, timeout=SHORT)
            found = await send(relay, f"https://acme.example:{server.getsockname()[1]}/")

        assert "no answer within 0.4 s" in str(found)
        gc.collect()  # a socket that was left open would be told as a warning

    def test_a_context_that_verifies_nothing_is_refused(self) -> None:
        context = ssl.create_default_context()
        context.check_hostname = False
        with pytest.raises(ConfigError, match="does not verify"):
            Webhook(secrets=SECRET, ssl_context=context)
        context.verify_mode = ssl.CERT_NONE
        with pytest.raises(ConfigError, match="does not verify"):
            Webhook(secrets=SECRET, ssl_context=context)


class TestDeclaring:
    @pytest.mark.parametrize(
        "options",
        [
            {"secrets": "short"},
            {"secrets": [7]},
            {"timeout": 5},
            {"timeout": timedelta(0)},
            {"give_up_after": None},
            {"allow": "10.0.0.0/8"},
            {"allow": ["10.0.0.1/8"]},
            {"ports": ()},
            {"ports": 443},
            {"ports": "443"},
            {"ports": [0]},
            {"ports": [65536]},
            {"ports": ["443"]},
            {"bearer": ""},
            {"bearer": "hush\n"},
            {"bearer": "hu sh"},
            {"bearer": "hüsh"},
        ],
    )
    def test_wrong_options(self, options: dict[str, Any]) -> None:
        with pytest.raises(ConfigError) as told:
            post(**options)
        assert "hush" not in str(told.value)

    @pytest.mark.parametrize("name", ["", "a=b", None])
    def test_wrong_names_of_secrets(self, name: Any) -> None:
        with pytest.raises(ConfigError):
            Secret.env(name)

    def test_a_private_address_is_refused_at_once(self) -> None:
        relay = Webhook(secrets=SECRET)

        with pytest.raises(ConfigError, match="not a public address"):
            relay.check_destination("https://10.0.0.1/")
        with pytest.raises(ConfigError, match="allow_http"):
            relay.check_destination("http://acme.example/")
        relay.check_destination("https://acme.example/")

    @pytest.mark.parametrize("port", [22, 25, 80, 8443])
    def test_a_port_is_refused_unless_it_is_permitted(self, port: int) -> None:
        with pytest.raises(ConfigError, match="ports="):
            Webhook(secrets=SECRET, ports=[443]).check_destination(f"https://acme.example:{port}/")
        for ports in ([port], (443, port), "any"):
            relay = Webhook(secrets=SECRET, ports=ports)
            relay.check_destination(f"https://acme.example:{port}/")

    def test_by_itself_a_webhook_goes_to_the_ports_of_http(self) -> None:
        relay = Webhook(secrets=SECRET, allow_http=True)
        for good in ("https://acme.example/", "https://acme.example:443/", "http://acme.example/"):
            relay.check_destination(good)
        for bad in ("https://acme.example:6379/", "http://acme.example:8080/"):
            with pytest.raises(ConfigError, match="ports="):
                relay.check_destination(bad)


class TestTokens:
    async def test_one_that_can_not_be_sent_is_in_no_error(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("A_TOKEN", "0hu\nsh0")
        relay = post(bearer=Secret.env("A_TOKEN"))
        async with Endpoint().running() as endpoint:
            found = await send(relay, endpoint.url())

        assert isinstance(found, RelayUnavailable)  # this machine's fault, and not the event's
        kept = describe(found, attempt=1)
        for part in ("0hu", "sh0"):
            assert part not in "".join((kept.message, *kept.causes))

    async def test_what_the_client_says_of_a_header_is_not_kept(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(webhook, "check_bearer", lambda token: token)
        async with Endpoint().running() as endpoint:
            found = await send(post(bearer="hush\n"), endpoint.url())

        assert isinstance(found, Undeliverable)
        kept = describe(found, attempt=1)
        assert "hush" not in "".join((kept.message, *kept.causes))


class TestHttpInside:
    """``allow_http="inside"``, as endpoints of the database have it."""

    NAMES = staticmethod(known(inside_example=["127.0.0.1"], outside_example=["8.8.8.8"]))

    async def test_an_address_that_is_allowed_is_reached_without_tls(self) -> None:
        async with Endpoint().running() as endpoint:
            for host in ("127.0.0.1", "inside.example"):
                relay = post(allow_http="inside", resolve=self.NAMES)
                assert await send(relay, endpoint.url(host=host)) is None
        assert len(endpoint.received) == 2

    async def test_no_other_is(self) -> None:
        relay = post(allow_http="inside", resolve=self.NAMES)
        with pytest.raises(ConfigError, match="by https, not by http"):
            relay.check_destination("http://8.8.8.8/")
        relay.check_destination("https://8.8.8.8/")
        relay.check_destination("http://outside.example/")  # its address is not known yet

        found = await send(relay, "http://outside.example/")

        assert isinstance(found, Undeliverable)
        assert "by https alone" in str(found)
