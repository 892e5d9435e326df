"""What ``RequestSessions`` promises besides the commit before the response."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from flask import Flask, Response
from sqlalchemy import Engine
from sqlalchemy.ext.asyncio import async_sessionmaker

from sa_outbox import Outbox, OutboxSession, event_context
from sa_outbox.contrib.flask import RequestSessions
from sa_outbox.errors import ConfigError
from sa_outbox.event.context import fill_in


@pytest.fixture
def sessions(engine: Engine) -> RequestSessions[OutboxSession]:
    return RequestSessions(Outbox(notify="off").sessionmaker(engine))


@pytest.fixture
def app(sessions: RequestSessions[OutboxSession]) -> Flask:
    app = Flask(__name__)
    sessions.init_app(app)

    @app.post("/orders")
    def place_order() -> str:
        sessions.current().add_event("order.placed")
        return "thank you"

    return app


def test_a_response_with_an_error_status_commits_nothing(
    app: Flask, sessions: RequestSessions[OutboxSession], committed: Callable[[], int]
) -> None:
    @app.post("/refused")
    def refuse() -> tuple[str, int]:
        sessions.current().add_event("order.placed")
        return "no", 409

    assert app.test_client().post("/refused").status_code == 409
    assert committed() == 0


def test_a_redirect_commits(
    app: Flask, sessions: RequestSessions[OutboxSession], committed: Callable[[], int]
) -> None:
    @app.post("/form")
    def redirect() -> tuple[str, int, dict[str, str]]:
        sessions.current().add_event("order.placed")
        return "", 303, {"Location": "/thanks"}

    assert app.test_client().post("/form").status_code == 303
    assert committed() == 1


def test_what_a_later_function_raises_comes_before_the_commit(
    app: Flask, committed: Callable[[], int]
) -> None:
    @app.after_request
    def breaks(response: Response) -> Response:
        if response.status_code == 200:
            raise ValueError("of the program")
        return response

    assert app.test_client().post("/orders").status_code == 500
    assert committed() == 0


def test_a_request_without_a_session_opens_none(app: Flask, engine: Engine) -> None:
    @app.get("/health")
    def health() -> str:
        assert engine.pool.checkedout() == 0  # type: ignore[attr-defined]  # a QueuePool
        return "ok"

    assert app.test_client().get("/health").data == b"ok"


def test_requests_of_one_application_context_share_no_session(
    app: Flask, sessions: RequestSessions[OutboxSession]
) -> None:
    """As in a test that pushes it: Flask's ``g`` is one for all of them."""
    seen: list[OutboxSession] = []

    @app.get("/")
    def show() -> str:
        seen.append(sessions.current())
        return "shown"

    with app.app_context():
        app.test_client().get("/")
        app.test_client().get("/")

    assert seen[0] is not seen[1]


def test_the_context_around_a_request_is_in_effect_again_after_it(app: Flask) -> None:
    found: dict[str, str | int] = {}
    with event_context(request_id="outer"):
        app.test_client().post("/orders", headers={"X-Request-ID": "inner"})
        fill_in("order.placed", None, found, None)

    assert found == {"request_id": "outer"}


def test_a_session_that_nobody_would_commit_is_refused(
    app: Flask, sessions: RequestSessions[OutboxSession]
) -> None:
    with app.app_context(), pytest.raises(ConfigError, match=r"with Session\.begin\(\)"):
        sessions.current()


def test_an_async_factory_is_refused() -> None:
    wrong: Any = async_sessionmaker()

    with pytest.raises(ConfigError, match="not async_sessionmaker: Flask's views are sync"):
        RequestSessions(wrong)
