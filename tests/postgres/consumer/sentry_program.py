"""A program with Sentry's SDK, its default integrations and a handler that fails: ``python -m
tests.postgres.consumer.sentry_program URL COLLECTOR WORD...``. In a process of its own, because the
SDK changes ``logging`` and other libraries for the whole process.

The words: ``structlog`` for a program that has configured it, ``json-logging`` if that writes to
``logging``; ``traces`` for OpenTelemetry's spans, which go to COLLECTOR; ``observer`` for ours, and
``attempts`` for its option. Prints a JSON list of the events that the SDK sends.
"""

from __future__ import annotations

import json
import logging
import sys
from datetime import timedelta
from typing import Any

import anyio
import sentry_sdk
import structlog
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from sentry_sdk.envelope import Envelope
from sentry_sdk.integrations import Integration
from sentry_sdk.integrations.otlp import OTLPIntegration
from sentry_sdk.transport import Transport
from sqlalchemy import make_url
from sqlalchemy.ext.asyncio import create_async_engine

from sa_outbox import Event, Outbox, RetryPolicy
from sa_outbox.consumer import Consumer
from sa_outbox.monitoring import traces
from sa_outbox.monitoring.sentry import Sentry

SECRET = "4111-1111-1111-1111"


class Recording(Transport):
    """Sends nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.events: list[Any] = []

    def capture_envelope(self, envelope: Envelope) -> None:
        for item in envelope.items:
            self.events.append(item.payload.json)


def configure_structlog(words: set[str]) -> None:
    if "json-logging" in words:
        logging.basicConfig(stream=sys.stderr, level=logging.INFO)
        structlog.configure(
            processors=[structlog.stdlib.add_log_level, structlog.processors.JSONRenderer()],
            logger_factory=structlog.stdlib.LoggerFactory(),
        )
    elif "structlog" in words:
        structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))


def charge(card: str) -> None:
    raise ValueError(card)


async def deliver(url: str, words: set[str]) -> None:
    outbox = Outbox(notify="off")
    quick = RetryPolicy(attempts=2, base=timedelta(milliseconds=1), jitter=False)

    @outbox.listener("billing", on="order.placed", retry=quick)
    async def bill(event: Event[Any]) -> None:
        charge(event.payload["card"])

    @outbox.listener("mailing", on="order.sent", retry=RetryPolicy(attempts=1))
    async def mail(event: Event[Any]) -> None:
        raise KeyError(event.payload["card"])

    observers = [Sentry(attempts="attempts" in words)] if "observer" in words else []
    engine = create_async_engine(make_url(url).set(drivername="postgresql+asyncpg"))
    async with outbox.async_sessionmaker(engine).begin() as session:
        session.add_event("order.placed", {"card": SECRET}, key=SECRET)
        session.add_event("order.sent", {"card": SECRET}, key=SECRET)
    await Consumer(outbox, engine, observers=observers).drain()
    await engine.dispose()


def run(url: str, collector: str, words: set[str]) -> list[Any]:
    transport = Recording()
    integrations: list[Integration] = []
    if "traces" in words:
        integrations.append(OTLPIntegration(collector_url=collector))
        traces.instrument()
    configure_structlog(words)
    sentry_sdk.init(
        dsn="https://key@sentry.example/1", transport=transport, integrations=integrations
    )
    anyio.run(deliver, url, words)
    sentry_sdk.flush()
    provider = trace.get_tracer_provider()
    if isinstance(provider, TracerProvider):
        provider.shutdown()
    return transport.events


if __name__ == "__main__":
    url, collector, *words = sys.argv[1:]
    del sys.argv[1:]  # the SDK sends them
    sys.stdout.write(json.dumps(run(url, collector, {*words})) + "\n")
