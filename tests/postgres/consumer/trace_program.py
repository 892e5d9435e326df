"""A program whose spans go to Sentry's or Logfire's own SDK: ``python trace_program.py SDK URL
COLLECTOR``. In a process of its own, because both set things for the whole process.

Prints a JSON object: what Logfire's SDK exports. Sentry's SDK sends its spans to COLLECTOR over
HTTP, which is how they reach Sentry.
"""

from __future__ import annotations

import json
import sys
from datetime import timedelta
from importlib import import_module
from typing import Any

import anyio
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from sqlalchemy import make_url
from sqlalchemy.ext.asyncio import create_async_engine

from sa_outbox import Event, Outbox, RetryPolicy
from sa_outbox.consumer import Consumer
from sa_outbox.monitoring import traces

SECRET = "4111-1111-1111-1111"


def sentry(collector: str) -> Any:
    sdk: Any = import_module("sentry_sdk")
    otlp: Any = import_module("sentry_sdk.integrations.otlp")
    got: list[Any] = []
    sdk.init(
        dsn="https://key@sentry.example/1",
        transport=got.append,
        integrations=[otlp.OTLPIntegration(collector_url=collector)],
        default_integrations=False,
    )

    def end() -> dict[str, Any]:
        provider = trace.get_tracer_provider()
        assert isinstance(provider, TracerProvider)
        provider.shutdown()
        return {"sent_otherwise": len(got)}

    return end


def logfire(_collector: str) -> Any:
    sdk: Any = import_module("logfire")
    exporter = InMemorySpanExporter()
    sdk.configure(
        send_to_logfire=False,
        console=False,
        additional_span_processors=[SimpleSpanProcessor(exporter)],
    )
    return lambda: {
        "spans": [
            {
                "name": each.name,
                "attributes": dict(each.attributes or {}),
                "trace": each.context.trace_id,
                "kind": each.kind.name,
                "status": each.status.status_code.name,
            }
            for each in exporter.get_finished_spans()
        ]
    }


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
    name, url, collector = sys.argv[1:]
    end = {"sentry": sentry, "logfire": logfire}[name](collector)
    traces.instrument()
    anyio.run(deliver, url)
    sys.stdout.write(json.dumps(end()) + "\n")
