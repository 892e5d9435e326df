"""A database with an empty outbox for each test, and the brokers of this machine."""

from __future__ import annotations

import os
from collections.abc import Callable
from uuid import uuid4

import pytest
from sqlalchemy import URL, create_engine

from sa_outbox.consumer.shared import relay_backoff
from sa_outbox.schema import migrate
from sa_outbox.settings import Names
from tests.support.brokers import skip_without


@pytest.fixture
def outbox_url(new_database: Callable[[], URL]) -> URL:
    """Of a database of its own: an outbox, and nothing in it."""
    url = new_database()
    engine = create_engine(url.set(drivername="postgresql+psycopg"))
    with engine.begin() as connection:
        migrate(connection, Names())
    engine.dispose()
    return url


@pytest.fixture
def in_a_hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    """The consumer waits for a broker that is away in hundredths of a second."""
    monkeypatch.setattr(relay_backoff, "FIRST_PAUSE_SECONDS", 0.01)
    monkeypatch.setattr(relay_backoff, "MAX_PAUSE_SECONDS", 0.1)


@pytest.fixture
def name() -> str:
    """For a stream, a queue, a subject: nobody else has it."""
    return f"test-{uuid4().hex}"


@pytest.fixture(scope="session")
def nats_url() -> str:
    url = os.environ.get("RELAY_NATS_URL", "nats://127.0.0.1:4222")
    skip_without(url, "NATS")
    return url


@pytest.fixture(scope="session")
def rabbitmq_url() -> str:
    url = os.environ.get("RELAY_RABBITMQ_URL", "amqp://guest:guest@127.0.0.1:5672/")
    skip_without(url, "RabbitMQ")
    return url


@pytest.fixture(scope="session")
def redis_url() -> str:
    url = os.environ.get("RELAY_REDIS_URL", "redis://127.0.0.1:6379/0")
    skip_without(url, "Redis")
    return url
