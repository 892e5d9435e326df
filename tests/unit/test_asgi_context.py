"""What a request's headers become."""

from __future__ import annotations

from typing import Any

import pytest

from sa_outbox.contrib.asgi import App, EventContextMiddleware
from sa_outbox.event.context import fill_in

pytestmark = pytest.mark.anyio

Headers = list[tuple[bytes, bytes]]


async def headers_of_an_event(
    sent: Headers, kind: str = "http", **options: str
) -> dict[str, str | int]:
    """Of one that is added while such a request is handled."""
    found: dict[str, str | int] = {}

    async def application(scope: Any, receive: Any, send: Any) -> None:
        fill_in("order.placed", None, found, None)

    app: App = EventContextMiddleware(application, **options)
    scope = {"type": kind} if kind == "lifespan" else {"type": kind, "headers": sent}
    nothing: Any = None
    await app(scope, nothing, nothing)
    return found


async def test_the_ids_of_a_request_are_headers_of_its_events() -> None:
    sent = [(b"x-request-id", b"r-1"), (b"x-correlation-id", b"c-1"), (b"host", b"shop")]

    assert await headers_of_an_event(sent) == {"request_id": "r-1", "correlation_id": "c-1"}
    assert await headers_of_an_event(sent, "websocket") == {
        "request_id": "r-1",
        "correlation_id": "c-1",
    }


async def test_they_end_with_the_request() -> None:
    await headers_of_an_event([(b"x-request-id", b"r-1")])
    found: dict[str, str | int] = {}
    fill_in("order.placed", None, found, None)

    assert found == {}


async def test_other_headers_can_be_named() -> None:
    sent = [(b"x-request-id", b"r-1"), (b"x-amzn-trace-id", b"t-1")]

    assert await headers_of_an_event(sent, request_id="X-Amzn-Trace-Id") == {"request_id": "t-1"}


@pytest.mark.parametrize("value", [b"", b"a\x00b", b"x" * 10_000], ids=["empty", "control", "long"])
async def test_a_value_that_can_not_be_stored_fails_no_request(value: bytes) -> None:
    sent = [(b"x-request-id", value), (b"x-correlation-id", b"c-1")]

    assert await headers_of_an_event(sent) == {"correlation_id": "c-1"}


async def test_the_first_of_several_counts() -> None:
    sent = [(b"x-request-id", b"r-1"), (b"x-request-id", b"r-2")]

    assert await headers_of_an_event(sent) == {"request_id": "r-1"}


async def test_the_lifespan_of_an_application_has_no_headers() -> None:
    assert await headers_of_an_event([], "lifespan") == {}
