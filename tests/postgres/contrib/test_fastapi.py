"""What ``session_of`` promises besides the commit before the response."""

# FastAPI evaluates the annotations of functions, which here name what is local to a test: so they
# are no strings in this module.
from collections.abc import Callable, Iterator
from typing import Annotated, Any

import pytest
from fastapi import Depends, FastAPI, params
from fastapi.testclient import TestClient
from sqlalchemy import Engine
from sqlalchemy.exc import InvalidRequestError
from sqlalchemy.orm import Session, sessionmaker

from sa_outbox import Outbox, OutboxSession
from sa_outbox.contrib.fastapi import session_of
from sa_outbox.errors import ConfigError


@pytest.fixture
def sessions(engine: Engine) -> sessionmaker[OutboxSession]:
    return Outbox(notify="off").sessionmaker(engine)


def test_all_of_a_request_has_one_session_and_another_request_has_another(
    sessions: sessionmaker[OutboxSession],
) -> None:
    app, seen = FastAPI(), []

    def user(session: Annotated[Session, session_of(sessions)]) -> Session:
        return session

    @app.get("/")
    def show(
        session: Annotated[Session, session_of(sessions)], same: Annotated[Session, Depends(user)]
    ) -> None:
        seen.append((session, same))

    with TestClient(app) as client:
        assert client.get("/").is_success
        assert client.get("/").is_success

    (first, same), (second, _) = seen
    assert first is same
    assert first is not second


def test_two_factories_give_two_sessions(
    sessions: sessionmaker[OutboxSession], engine: Engine
) -> None:
    app, others = FastAPI(), sessionmaker(engine)

    @app.get("/")
    def show(
        session: Annotated[Session, session_of(sessions)],
        other: Annotated[Session, session_of(others)],
    ) -> bool:
        return session is other

    with TestClient(app) as client:
        assert client.get("/").json() is False


def test_a_response_that_does_not_fit_its_model_rolls_back(
    sessions: sessionmaker[OutboxSession], committed: Callable[[], int]
) -> None:
    app = FastAPI()

    @app.get("/", response_model=int)
    def show(session: Annotated[OutboxSession, session_of(sessions)]) -> str:
        session.add_event("order.placed")
        return "no number"

    with TestClient(app, raise_server_exceptions=False) as client:
        assert client.get("/").status_code == 500

    assert committed() == 0


def test_a_test_can_replace_it(
    sessions: sessionmaker[OutboxSession], committed: Callable[[], int]
) -> None:
    app = FastAPI()

    @app.get("/")
    def show(session: Annotated[OutboxSession, session_of(sessions)]) -> None:
        session.add_event("order.placed")

    def rolled_back() -> Iterator[Session]:
        with sessions() as session:
            yield session

    mine: Any = session_of(sessions).dependency  # FastAPI declares it as optional
    app.dependency_overrides[mine] = rolled_back
    with TestClient(app) as client:
        assert client.get("/").is_success

    assert committed() == 0


def test_a_function_that_commits_can_not_go_on_in_a_second_transaction(
    sessions: sessionmaker[OutboxSession], committed: Callable[[], int]
) -> None:
    app = FastAPI()

    @app.get("/")
    def show(session: Annotated[OutboxSession, session_of(sessions)]) -> None:
        session.add_event("order.placed")
        session.commit()
        with pytest.raises(InvalidRequestError):
            session.connection()

    with TestClient(app) as client:
        assert client.get("/").is_success

    assert committed() == 1


def test_what_is_no_factory_is_refused(engine: Engine) -> None:
    wrong: Any = engine

    with pytest.raises(ConfigError, match=r"outbox\.sessionmaker\(engine\) returns, not Engine"):
        session_of(wrong)


def test_a_fastapi_that_would_commit_after_the_response_is_refused(
    sessions: sessionmaker[OutboxSession], monkeypatch: pytest.MonkeyPatch
) -> None:
    class Older:
        __annotations__ = {"dependency": Any, "use_cache": bool}

    monkeypatch.setattr(params, "Depends", Older)

    with pytest.raises(ConfigError, match=r'newer FastAPI.*pip install "fastapi>=0\.121"'):
        session_of(sessions)
