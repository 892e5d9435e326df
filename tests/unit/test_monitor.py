"""The monitor answers over HTTP whatever is asked, and says so when the loop does not turn."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from datetime import timedelta
from http import HTTPStatus
from typing import Any

import anyio
import pytest
from prometheus_client import CollectorRegistry

from sa_outbox import Event, Outbox
from sa_outbox.consumer import Consumer, ConsumerSettings
from sa_outbox.errors import ConfigError
from sa_outbox.monitoring import Metrics, Monitor, prometheus, server
from sa_outbox.observe import ConsumerStarted, ConsumerStopping

pytestmark = pytest.mark.anyio

DSN = "postgresql://shop:very-secret@127.0.0.1:1/shop"


@pytest.fixture
def consumer() -> Consumer:
    """Not running; what it would tell is told by the test."""
    outbox = Outbox(notify="off")

    @outbox.listener("billing", on="order.placed")
    async def bill(event: Event[Any]) -> None: ...

    return Consumer(outbox, DSN, settings=ConsumerSettings(blocked_after=timedelta(hours=1)))


@pytest.fixture
async def monitor(consumer: Consumer) -> Any:
    metrics = Metrics(consumer.outbox)
    consumer.observers.add(metrics)
    with Monitor(consumer, registry=prometheus.register(metrics)) as made:
        yield made


def converse(monitor: Monitor, request: bytes) -> bytes:
    """Everything that is answered until the connection ends; empty if it was cut off."""
    with socket.create_connection((monitor.host, monitor.port), timeout=20) as connection:
        with suppress(ConnectionError):  # cut off while it was still sending
            connection.sendall(request)
        return receive(connection)


def receive(connection: socket.socket) -> bytes:
    found = b""
    try:
        while part := connection.recv(65_536):
            found += part
    except ConnectionError:
        pass
    return found


async def ask(monitor: Monitor, path: str, method: str = "GET") -> tuple[int, str]:
    request = f"{method} {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode()
    answer = await anyio.to_thread.run_sync(converse, monitor, request)
    head, _, body = answer.decode().partition("\r\n\r\n")
    assert f"Content-Length: {len(body.encode())}" in head or method == "HEAD"
    assert "Connection: close" in head
    return int(head.split(" ")[1]), body


def threads() -> list[threading.Thread]:
    return [each for each in threading.enumerate() if each.name == "sa_outbox monitor"]


class TestPaths:
    async def test_health_readiness_and_metrics(self, consumer: Consumer, monitor: Monitor) -> None:
        assert await ask(monitor, "/healthz") == (200, '{"status": "ok", "reasons": []}\n')
        status, body = await ask(monitor, "/readyz")
        assert (status, json.loads(body)["reasons"]) == (503, ["it has not started yet"])

        consumer.observers.emit(ConsumerStarted("host:1:a", ("billing",)))
        assert (await ask(monitor, "/readyz?verbose"))[0] == 200
        status, body = await ask(monitor, "/metrics")
        assert status == 200
        assert "sa_outbox_consumer_running 1.0" in body

        consumer.observers.emit(ConsumerStopping("SIGTERM", 25.0))
        assert (await ask(monitor, "/readyz"))[0] == 503
        assert (await ask(monitor, "/healthz"))[0] == 200

    async def test_no_answer_tells_more_than_its_page(self, monitor: Monitor) -> None:
        for path in ("/healthz", "/readyz", "/metrics", "/", "/../etc/passwd"):
            _, body = await ask(monitor, path)
            assert "secret" not in body

    @pytest.mark.parametrize(
        ("method", "path", "status"),
        [("POST", "/healthz", 405), ("GET", "/", 404), ("HEAD", "/healthz", 200)],
    )
    async def test_other_questions(
        self, monitor: Monitor, method: str, path: str, status: int
    ) -> None:
        found, body = await ask(monitor, path, method)

        assert found == status
        assert method != "HEAD" or body == ""

    async def test_without_a_registry_there_are_no_metrics(self, consumer: Consumer) -> None:
        with Monitor(consumer) as monitor:
            assert (await ask(monitor, "/metrics"))[0] == 404

    async def test_a_broken_collector_is_an_error_and_no_more(
        self, consumer: Consumer, caplog: pytest.LogCaptureFixture
    ) -> None:
        class Broken:
            def collect(self) -> Iterator[Any]:
                raise RuntimeError("very-secret")

        registry = CollectorRegistry(auto_describe=False)
        registry.register(Broken())
        with Monitor(consumer, registry=registry) as monitor:
            status, body = await ask(monitor, "/metrics")
            assert (status, body) == (500, "Internal Server Error\n")
            assert (await ask(monitor, "/healthz"))[0] == 200
        caplog.clear()


class TestHostileRequests:
    @pytest.mark.parametrize(
        ("request_", "status"),
        [
            (b"\r\n\r\n", b"400"),
            (b"\x16\x03\x01\x02\x00\x01\x00\r\n\r\n", b"400"),
            (b"GET /healthz\r\n\r\n", b"400"),
            (b"GET /healthz HTTP/2\r\n\r\n", b"400"),
            (b"GET /\xff\x00 HTTP/1.1\r\n\r\n", b"404"),
            (b"GET /healthz HTTP/1.1 x\r\n\r\n", b"400"),
        ],
    )
    async def test_garbage_is_refused(
        self, monitor: Monitor, request_: bytes, status: bytes
    ) -> None:
        answer = await anyio.to_thread.run_sync(converse, monitor, request_)

        assert answer.startswith(b"HTTP/1.1 " + status)

    async def test_a_huge_request_is_cut_off(self, monitor: Monitor) -> None:
        huge = b"GET /healthz HTTP/1.1\r\nX: " + b"x" * 1_000_000

        answer = await anyio.to_thread.run_sync(converse, monitor, huge)

        assert answer == b"" or answer.startswith(b"HTTP/1.1 431")
        assert (await ask(monitor, "/healthz"))[0] == 200

    async def test_a_slow_one_keeps_nobody_waiting_and_ends_when_its_time_is_over(
        self, monitor: Monitor, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with socket.create_connection((monitor.host, monitor.port), timeout=20) as slow:
            slow.sendall(b"GET /healthz HTT")
            assert (await ask(monitor, "/healthz"))[0] == 200

        monkeypatch.setattr(server, "READ_SECONDS", 0.2)
        answer = await anyio.to_thread.run_sync(converse, monitor, b"GET /healthz HTT")
        assert answer.startswith(b"HTTP/1.1 408")

    async def test_more_connections_than_there_may_be_are_ended(
        self, monitor: Monitor, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(server, "MAX_CONNECTIONS", 0)
        assert await anyio.to_thread.run_sync(converse, monitor, b"GET ") == b""

        monkeypatch.setattr(server, "MAX_CONNECTIONS", 1)
        assert (await ask(monitor, "/healthz"))[0] == 200

    async def test_connections_that_say_nothing_keep_no_probe_from_its_answer(
        self, monitor: Monitor
    ) -> None:
        """They come again as soon as they are ended, and are always more than there may be."""
        place = monitor.host, monitor.port
        with ExitStack() as silent:
            for _ in range(3):
                for _ in range(server.MAX_CONNECTIONS + 10):
                    silent.enter_context(socket.create_connection(place, timeout=20))
                for path in ("/healthz", "/metrics"):
                    assert (await ask(monitor, path))[0] == 200

        assert len(monitor._open) <= server.MAX_CONNECTIONS

    async def test_one_that_never_takes_its_answer_makes_room_too(
        self, monitor: Monitor, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(server, "MAX_CONNECTIONS", 2)
        monkeypatch.setattr(monitor, "respond", lambda _: (HTTPStatus.OK, "", b"x" * 50_000_000))
        place = monitor.host, monitor.port
        with ExitStack() as deaf:
            for _ in range(2):
                one = deaf.enter_context(socket.create_connection(place, timeout=20))
                one.sendall(b"GET /metrics HTTP/1.1\r\n\r\n")
                assert one.recv(1)
            monkeypatch.undo()
            assert (await ask(monitor, "/healthz"))[0] == 200


class TestLife:
    async def test_a_blocked_loop_is_told_while_it_is_blocked(self) -> None:
        outbox = Outbox(notify="off")

        @outbox.listener("billing", on="order.placed")
        async def bill(event: Event[Any]) -> None: ...

        settings = ConsumerSettings(blocked_after=timedelta(milliseconds=700))
        with Monitor(Consumer(outbox, DSN, settings=settings)) as monitor:
            answer = b""
            while b" 503 " not in answer:  # in this thread: the loop does not turn
                answer = converse(monitor, b"GET /healthz HTTP/1.1\r\n\r\n")
            assert b"the event loop has not turned" in answer

            while (await ask(monitor, "/healthz"))[0] != 200:
                pass

    async def test_a_port_that_is_taken_is_told_in_one_line(self, consumer: Consumer) -> None:
        with Monitor(consumer) as monitor, pytest.raises(ConfigError, match="can't listen on"):
            Monitor(consumer, port=monitor.port).__enter__()

    async def test_it_leaves_nothing_behind_and_can_come_again(self, consumer: Consumer) -> None:
        before = len(threads())
        monitor = Monitor(consumer)
        for _ in range(3):
            with monitor:
                assert len(threads()) == before + 1
                assert (await ask(monitor, "/healthz"))[0] == 200
        assert len(threads()) == before
        assert not consumer.observers

    async def test_whoever_is_connected_at_the_end_is_let_go(self, consumer: Consumer) -> None:
        with Monitor(consumer) as monitor:
            open_one = socket.create_connection((monitor.host, monitor.port), timeout=20)
            assert (await ask(monitor, "/healthz"))[0] == 200

        with open_one:
            assert await anyio.to_thread.run_sync(receive, open_one) == b""
