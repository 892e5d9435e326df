"""What Sentry and Logfire get: through their own SDKs, and as their views of queues need it."""

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

from .trace_program import SECRET

pytestmark = pytest.mark.woken_by("poll")
SECONDS = 120


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


def run(sdk: str, url: URL, collector: str) -> dict[str, Any]:
    """Of the program that sends its spans by *sdk*."""
    if find_spec({"sentry": "sentry_sdk", "logfire": "logfire"}[sdk]) is None:
        pytest.skip(f"the SDK of {sdk} is not installed")
    plain = url.render_as_string(hide_password=False)
    done = subprocess.run(
        [sys.executable, "-m", "tests.postgres.consumer.trace_program", sdk, plain, collector],
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
        cwd=Path(__file__).parents[3],
    )
    assert done.returncode == 0, done.stderr
    assert SECRET not in done.stdout
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


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
    check(run("logfire", engine.url, "-")["spans"])


def test_sentry_gets_the_spans_at_its_collector(engine: Engine, collector: Collector) -> None:
    assert run("sentry", engine.url, collector.url) == {"sent_otherwise": 0}

    assert SECRET.encode() not in b"".join(collector.bodies)
    check(spans_of(collector.bodies))
