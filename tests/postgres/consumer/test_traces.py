"""Spans: from whoever adds an event to its handlers, and nothing of the data in them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from sa_outbox import Event, Outbox
from sa_outbox.errors import ConfigError
from sa_outbox.event import tracing
from sa_outbox.monitoring import traces

from .conftest import QUICK, Consuming, Database, Producer

pytestmark = pytest.mark.anyio

SECRET = "4111-1111-1111-1111"


class Spans:
    def __init__(self) -> None:
        self._exporter = InMemorySpanExporter()
        self.provider = TracerProvider()
        self.provider.add_span_processor(SimpleSpanProcessor(self._exporter))
        self.tracer = self.provider.get_tracer("shop")

    def named(self, name: str) -> list[ReadableSpan]:
        return [each for each in self._exporter.get_finished_spans() if each.name == name]

    @property
    def text(self) -> str:
        return "".join(each.to_json() for each in self._exporter.get_finished_spans())


@pytest.fixture
def outbox() -> Outbox:
    return Outbox(notify="off")  # how consumers are woken does not concern spans


@pytest.fixture
def spans() -> Iterator[Spans]:
    made = Spans()
    traces.instrument(made.provider)
    yield made
    traces.uninstrument()
    made.provider.shutdown()


def trace_of(span: ReadableSpan) -> int:
    assert span.context is not None
    found: int = span.context.trace_id
    return found


def links_of(span: ReadableSpan) -> list[int]:
    return [each.context.span_id for each in span.links]


def id_of(span: ReadableSpan) -> int:
    assert span.context is not None
    found: int = span.context.span_id
    return found


async def test_the_first_attempt_goes_on_in_the_trace_and_a_retry_begins_one_with_a_link(
    outbox: Outbox, producer: Producer, consuming: Consuming, spans: Spans
) -> None:
    attempts = []

    @outbox.listener("billing", on="order.placed", retry=QUICK)
    async def bill(event: Event[Any]) -> None:
        attempts.append(trace.get_current_span().get_span_context().span_id)
        with spans.tracer.start_as_current_span("inside"):
            if len(attempts) == 1:
                raise ValueError(f"card {SECRET}")

    with spans.tracer.start_as_current_span("request"):
        producer.add(1, key=SECRET, headers={"note": SECRET}, tenant=SECRET)
    async with consuming(outbox) as running:
        await running.done("billing")

    (request,), (added,) = spans.named("request"), spans.named("outbox.add order.placed")
    first, second = spans.named("outbox.handle order.placed")
    assert added.kind is SpanKind.PRODUCER
    assert added.parent is not None
    assert added.parent.span_id == id_of(request)
    assert first.kind is second.kind is SpanKind.CONSUMER
    assert first.parent is not None
    assert first.parent.span_id == id_of(added)
    assert trace_of(first) == trace_of(request)
    assert second.parent is None
    assert trace_of(second) != trace_of(request)
    assert links_of(first) == []
    assert links_of(second) == [id_of(added)]
    assert attempts == [id_of(first), id_of(second)], "the handler runs inside of its span"
    inside = [each.parent.span_id for each in spans.named("inside") if each.parent]
    assert inside == attempts

    assert first.status.status_code is StatusCode.ERROR
    assert first.status.description is None
    (raised,) = first.events
    fingerprint = (first.attributes or {})["sa_outbox.error.fingerprint"]
    shown = dict(raised.attributes or {})
    assert (raised.name, shown["exception.type"]) == ("exception", "ValueError")
    assert shown["sa_outbox.error.fingerprint"] == fingerprint
    assert ".bill\nValueError" in str(shown["exception.stacktrace"])
    assert "exception.message" not in shown
    assert second.status.status_code is StatusCode.UNSET
    told = dict(second.attributes or {})
    assert added.attributes is not None
    assert told == {
        "messaging.system": "sa_outbox",
        "messaging.operation.name": "outbox.handle",
        "messaging.operation.type": "process",
        "messaging.destination.name": "order.placed",
        "messaging.consumer.group.name": "billing",
        "messaging.message.id": added.attributes["messaging.message.id"],
        "sa_outbox.attempt": 2,
        "sentry.op": "queue.process",
        "messaging.message.retry.count": 1,
    }
    assert added.attributes["sentry.op"] == "queue.publish"
    waited = (first.attributes or {})["messaging.message.receive.latency"]
    assert isinstance(waited, float)
    assert 0 <= waited < 60_000
    assert (first.attributes or {})["error.type"] == "ValueError"
    ours = [*spans.named("outbox.add order.placed"), first, second]
    assert SECRET not in "".join(each.to_json() for each in ours)


async def test_a_batch_is_one_span_with_a_link_to_each_and_threads_are_inside_theirs(
    outbox: Outbox, producer: Producer, consuming: Consuming, spans: Spans
) -> None:
    seen = []

    @outbox.listener("batches", on="order.placed")
    async def batch(events: Sequence[Event[Any]]) -> None:
        seen.append(len(events))

    @outbox.listener("threads", on="order.placed", start="now")
    def thread(event: Event[Any]) -> None:
        seen.append(trace.get_current_span().get_span_context().span_id)

    producer.add(1, 2, 3)
    async with consuming(outbox) as running:
        await running.done("batches", 3)
        producer.add(4)
        await running.done("threads")
        await running.done("batches", 4)

    added = [id_of(each) for each in spans.named("outbox.add order.placed")]
    handled = {
        (each.attributes or {})["messaging.consumer.group.name"]: each
        for each in reversed(spans.named("outbox.handle order.placed"))
    }
    assert links_of(handled["batches"]) == added[:3]
    assert handled["batches"].parent is None
    assert (handled["batches"].attributes or {})["messaging.batch.message_count"] == 3
    assert (handled["batches"].attributes or {})["messaging.message.receive.latency"] is not None
    assert id_of(handled["threads"]) in seen
    assert handled["threads"].parent is not None
    assert handled["threads"].parent.span_id == added[3]


async def test_headers_of_others_are_kept_or_ignored_and_crons_declare_no_span(
    outbox: Outbox, producer: Producer, database: Database, spans: Spans
) -> None:
    outbox.cron("0 3 * * *", "maintenance.purge", time_zone="UTC")
    assert spans.named("outbox.add maintenance.purge") == []

    own = f"00-{1:032x}-{2:016x}-01"
    producer.add(1, headers={"traceparent": own})
    assert database.value("SELECT headers ->> 'traceparent' FROM outbox") == own

    for wrong in (5, "00-x", SECRET):
        event: Event[Any] = Event("order.placed", None, headers={"traceparent": wrong})
        made: Any = tracing.present
        with made.handling("billing", [event], attempt=2, batch=False):
            pass
        assert links_of(spans.named("outbox.handle order.placed")[-1]) == []
    assert SECRET not in spans.text


def test_without_the_library_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(name: str) -> object:
        raise ImportError(name)

    monkeypatch.setattr(traces, "import_module", refuse)

    with pytest.raises(ConfigError, match=r"sa_outbox\[otel\]"):
        traces.instrument()
    assert tracing.present is None


def test_without_a_provider_nothing_is_written_into_headers(
    outbox: Outbox, producer: Producer, database: Database
) -> None:
    traces.instrument()
    try:
        producer.add(1)
    finally:
        traces.uninstrument()

    assert database.value("SELECT headers::text FROM outbox") == "{}"
