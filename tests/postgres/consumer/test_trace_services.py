"""What Sentry and Logfire get, through their own SDKs: spans as their views of queues need them,
and in Sentry an issue for each error.
"""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import URL, Engine

from sa_outbox.errors import ConfigError
from sa_outbox.monitoring import sentry
from sa_outbox.policy.error.tracebacks import fingerprint

pytestmark = pytest.mark.woken_by("poll")
SECONDS = 90
SECRET = "4111-1111-1111-1111"
CHARGED = fingerprint("ValueError", ("sentry_program.py", "charge"))
"""Of the error that ``billing`` fails with."""


class Collector(HTTPServer):
    """Takes what an exporter posts."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.bodies: list[bytes] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/v1/traces"


class _Handler(BaseHTTPRequestHandler):
    server: Collector

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self.headers.get("Content-Encoding") == "gzip":
            body = gzip.decompress(body)
        self.server.bodies.append(body)
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def collector() -> Iterator[Collector]:
    server = Collector()
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def run(sdk: str, url: URL, *arguments: str) -> list[dict[str, Any]]:
    """What the program with this SDK prints."""
    if find_spec(sdk) is None:
        pytest.skip(f"{sdk} is not installed")
    program = f"tests.postgres.consumer.{sdk.removesuffix('_sdk')}_program"
    plain = url.render_as_string(hide_password=False)
    done = subprocess.run(
        [sys.executable, "-m", program, plain, *arguments],
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
        cwd=Path(__file__).parents[3],
    )
    assert done.returncode == 0, done.stderr
    assert SECRET not in done.stdout
    found: list[dict[str, Any]] = json.loads(done.stdout.splitlines()[-1])
    return found


def sent(url: URL, *words: str, collector: str = "-") -> list[dict[str, Any]]:
    """The events that Sentry gets of a program with these words."""
    return [each for each in run("sentry_sdk", url, collector, *words) if "event_id" in each]


def of_listener(name: str, events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [each for each in events if each["tags"]["listener"] == name]


def spans_of(bodies: list[bytes]) -> list[dict[str, Any]]:
    """Those of OTLP's requests."""
    messages: Any = import_module("opentelemetry.proto.collector.trace.v1.trace_service_pb2")
    found = []
    for body in bodies:
        request = messages.ExportTraceServiceRequest.FromString(body)
        for resource in request.resource_spans:
            for scope in resource.scope_spans:
                for span in scope.spans:
                    values = {each.key: each.value for each in span.attributes}
                    attributes = {
                        name: getattr(value, value.WhichOneof("value"))
                        for name, value in values.items()
                    }
                    found.append(
                        {
                            "name": span.name,
                            "attributes": attributes,
                            "trace": span.trace_id.hex(),
                            "kind": {4: "PRODUCER", 5: "CONSUMER"}[span.kind],
                            "status": {0: "UNSET", 2: "ERROR"}[span.status.code],
                        }
                    )
    return found


def check(spans: list[dict[str, Any]]) -> None:
    """One publish and two attempts, as a view of queues looks for them."""
    (published,) = [each for each in spans if each["name"] == "outbox.add order.placed"]
    attempts = [each for each in spans if each["name"] == "outbox.handle order.placed"]
    first, second = sorted(attempts, key=lambda each: each["attributes"]["sa_outbox.attempt"])

    assert published["attributes"]["sentry.op"] == "queue.publish"
    assert published["kind"] == "PRODUCER"
    for retries, each in enumerate((first, second)):
        attributes = each["attributes"]
        assert each["kind"] == "CONSUMER"
        assert each["status"] == "ERROR"
        assert attributes["sentry.op"] == "queue.process"
        assert attributes["messaging.destination.name"] == "order.placed"
        assert attributes["messaging.consumer.group.name"] == "billing"
        assert attributes["messaging.message.retry.count"] == retries
        assert attributes["error.type"] == "ValueError"
        assert attributes["messaging.message.id"] == published["attributes"]["messaging.message.id"]
    assert first["attributes"]["messaging.message.receive.latency"] >= 0
    assert first["trace"] == published["trace"]
    assert second["trace"] != published["trace"]


def test_logfire_gets_the_spans(engine: Engine) -> None:
    check(run("logfire", engine.url))


def test_sentry_gets_the_spans_at_its_collector(engine: Engine, collector: Collector) -> None:
    assert sent(engine.url, "structlog", "traces", collector=collector.url) == []

    assert SECRET.encode() not in b"".join(collector.bodies)
    check(spans_of(collector.bodies))


def test_without_the_observer_sentry_has_an_issue_for_each_kind_of_line(engine: Engine) -> None:
    events = sent(engine.url)

    assert [each["logentry"]["message"] for each in events] == ["dead letter%s", "dead letter%s"]
    assert {each["extra"]["outbox"]["listener"] for each in events} == {"billing", "mailing"}


@pytest.mark.parametrize("program", ["logging", "structlog", "json-logging"])
def test_each_error_is_an_issue_with_its_frames_whatever_the_program_logs_with(
    engine: Engine, collector: Collector, program: str
) -> None:
    events = sent(engine.url, program, "traces", "observer", collector=collector.url)

    assert len(events) == 2
    (billed,), (mailed,) = of_listener("billing", events), of_listener("mailing", events)
    assert billed["fingerprint"] == [CHARGED]
    assert mailed["fingerprint"] != [CHARGED]
    assert {each["level"] for each in events} == {"error"}
    (error,) = billed["exception"]["values"]
    assert (error["type"], error.get("value")) == ("ValueError", None)
    frames = error["stacktrace"]["frames"]
    assert [each["function"] for each in frames][-1] == "charge"
    assert [each["context_line"] for each in frames][-1] == "raise ValueError(card)"
    assert not any("vars" in each for each in frames)
    tags = {"listener": "billing", "event_type": "order.placed", "attempt": "2"}
    assert billed["tags"] == {**tags, "reason": "attempts"}
    assert billed["contexts"]["outbox"]["position"] == 1


def test_failed_attempts_are_sent_if_one_wants_them_and_the_last_one_once(engine: Engine) -> None:
    events = sent(engine.url, "observer", "attempts")

    billed = of_listener("billing", events)
    assert [(each["level"], each["tags"]["attempt"]) for each in billed] == [
        ("warning", "1"),
        ("error", "2"),
    ]
    assert {each["fingerprint"][0] for each in billed} == {CHARGED}
    assert [each["level"] for each in of_listener("mailing", events)] == ["error"]


def test_without_the_sdk_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(name: str) -> object:
        raise ImportError(name)

    monkeypatch.setattr(sentry, "import_module", refuse)

    with pytest.raises(ConfigError, match=r"sa_outbox\[sentry\]"):
        sentry.Sentry()
