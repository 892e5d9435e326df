"""A program whose spans go to Logfire's own SDK: ``python -m
tests.postgres.consumer.logfire_program URL``. In a process of its own, because the SDK sets things
for the whole process. Prints a JSON list: the spans that it exports.
"""

from __future__ import annotations

import json
import sys
from datetime import timedelta
from typing import Any

import anyio
import logfire
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from sqlalchemy import make_url
from sqlalchemy.ext.asyncio import create_async_engine

from sa_outbox import Event, Outbox, RetryPolicy
from sa_outbox.consumer import Consumer
from sa_outbox.monitoring import traces

SECRET = "4111-1111-1111-1111"


def spans_of(exporter: InMemorySpanExporter) -> list[dict[str, Any]]:
    return [
        {
            "name": each.name,
            "attributes": dict(each.attributes or {}),
            "trace": each.context.trace_id,
            "kind": each.kind.name,
            "status": each.status.status_code.name,
        }
        for each in exporter.get_finished_spans()
    ]


async def deliver(url: str) -> None:
    outbox = Outbox(notify="off")
    quick = RetryPolicy(attempts=2, base=timedelta(milliseconds=1), jitter=False)

    @outbox.listener("billing", on="order.placed", retry=quick)
    async def bill(event: Event[Any]) -> None:
        raise ValueError(event.payload["card"])

    engine = create_async_engine(make_url(url).set(drivername="postgresql+asyncpg"))
    async with outbox.async_sessionmaker(engine).begin() as session:
        session.add_event("order.placed", {"card": SECRET}, key=SECRET)
    await Consumer(outbox, engine).drain()
    await engine.dispose()


if __name__ == "__main__":
    exporter = InMemorySpanExporter()
    logfire.configure(
        send_to_logfire=False,
        console=False,
        additional_span_processors=[SimpleSpanProcessor(exporter)],
    )
    traces.instrument()
    anyio.run(deliver, sys.argv[1])
    sys.stdout.write(json.dumps(spans_of(exporter)) + "\n")
