"""Requests and a consumer in one application, as docs/fastapi.md shows it."""

from __future__ import annotations

import logging
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import anyio
import pytest
from fastapi import FastAPI
from httpx2 import ASGITransport, AsyncClient
from sqlalchemy.ext.asyncio import AsyncEngine

from sa_outbox import AsyncOutboxSession, Event, Outbox
from sa_outbox.consumer import Consumer, ConsumerSettings
from sa_outbox.contrib import asgi
from sa_outbox.contrib.asgi import consuming
from sa_outbox.contrib.fastapi import session_of
from tests.support import PATIENCE, comes_true

from .conftest import Database, Producer

pytestmark = [pytest.mark.anyio, pytest.mark.woken_by("notify")]

SECRET = "hunter2"
QUICK = ConsumerSettings(grace_period=timedelta(seconds=1))


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """A consumer that failed is started again after a moment."""
    monkeypatch.setattr(asgi, "FIRST_PAUSE_SECONDS", 0.01)


@pytest.fixture
def app(outbox: Outbox, async_engine: AsyncEngine) -> FastAPI:
    sessions = outbox.async_sessionmaker(async_engine)
    app = FastAPI()

    opened: Any = session_of(sessions)

    async def place(number: int, session: AsyncOutboxSession = opened) -> int:
        session.add_event("order.placed", {"n": number})
        return number

    app.post("/orders/{number}")(place)
    return app


def client(app: Any) -> AsyncClient:
    transport = ASGITransport(app, raise_app_exceptions=False)
    return AsyncClient(transport=transport, base_url="http://shop")


def handling(outbox: Outbox) -> list[int]:
    handled: list[int] = []

    @outbox.listener("billing", on="*")
    async def bill(event: Event) -> None:
        handled.append(event.payload["n"])

    return handled


async def test_the_consumer_beside_it_delivers_and_releases_its_leases(
    app: FastAPI, outbox: Outbox, async_engine: AsyncEngine, database: Database
) -> None:
    handled = handling(outbox)
    consumer = Consumer(outbox, async_engine)

    for number in (1, 2):  # the same one, in another lifespan
        async with consuming(consumer):
            async with client(app) as shop:
                await shop.post(f"/orders/{number}")
            await comes_true(lambda: len(handled) == number)  # noqa: B023 - called at once
        assert database.listener("billing").lease_expires_at is None

    assert handled == [1, 2]


async def test_a_consumer_that_fails_is_logged_and_started_again(
    outbox: Outbox,
    producer: Producer,
    async_engine: AsyncEngine,
    quick: None,
    caplog: pytest.LogCaptureFixture,
) -> None:
    handled = handling(outbox)
    starts: list[int] = []

    @outbox.lifespan
    async def flaky() -> AsyncIterator[None]:
        starts.append(1)
        if len(starts) == 1:
            raise ConnectionError(SECRET)
        yield

    producer.add(1)
    async with consuming(Consumer(outbox, async_engine)):
        await comes_true(lambda: handled == [1])

    (line,) = [each for each in caplog.records if each.levelno >= logging.ERROR]
    assert line.name == "sa_outbox.consumer"
    assert "consumer failed" in line.message
    assert "raised ConnectionError at the start" in line.message
    assert SECRET not in line.message


async def test_a_handler_that_exits_does_not_end_the_consumer_for_good(
    outbox: Outbox,
    producer: Producer,
    async_engine: AsyncEngine,
    quick: None,
    caplog: pytest.LogCaptureFixture,
) -> None:
    calls: list[int] = []

    @outbox.listener("billing", on="*")
    async def bill(event: Event) -> None:
        calls.append(1)
        if len(calls) == 1:
            sys.exit("enough")

    producer.add(1)
    async with consuming(Consumer(outbox, async_engine)):
        await comes_true(lambda: len(calls) == 2)

    assert any("consumer ended" in each.message for each in caplog.records)


async def test_the_application_ends_while_a_consumer_waits_for_its_next_start(
    outbox: Outbox, async_engine: AsyncEngine, caplog: pytest.LogCaptureFixture
) -> None:
    missing = Outbox(prefix="nowhere")
    handling(missing)

    with anyio.fail_after(PATIENCE):
        async with consuming(Consumer(missing, async_engine)):
            await comes_true(lambda: "consumer failed" in caplog.text)

    assert "sa-outbox migrate" in caplog.text


async def test_an_application_that_fails_to_start_takes_its_consumer_along(
    outbox: Outbox, async_engine: AsyncEngine, database: Database
) -> None:
    handling(outbox)

    @asynccontextmanager
    async def lifespan() -> AsyncIterator[None]:
        async with consuming(Consumer(outbox, async_engine, settings=QUICK)):
            await comes_true(lambda: database.rows("SELECT FROM outbox_listeners"))
            raise KeyError("of the application")
            yield

    with pytest.raises(KeyError, match="of the application"):
        await lifespan().__aenter__()

    assert database.listener("billing").lease_expires_at is None


PROGRAM = """
import sys
from contextlib import asynccontextmanager

from fastapi import FastAPI

from sa_outbox import Outbox
from sa_outbox.consumer import Consumer
from sa_outbox.contrib.asgi import consuming

outbox = Outbox(prefix="nowhere")


@outbox.listener("billing", on="*")
async def bill(event): ...


@asynccontextmanager
async def lifespan(app):
    async with consuming(Consumer(outbox, sys.argv[1]), exit_on_failure=True):
        yield
    print("application ended")


import uvicorn

uvicorn.run(FastAPI(lifespan=lifespan), host="127.0.0.1", port=0)
"""


def test_a_consumer_that_fails_can_end_the_server(database: Database, tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(PROGRAM)
    url = database.engine.url.render_as_string(hide_password=False)

    ended = subprocess.run(
        [sys.executable, "shop.py", url],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert ended.returncode in {0, -signal.SIGTERM}, ended.stderr
    assert "application ended" in ended.stdout
    assert "consumer failed" in ended.stderr
