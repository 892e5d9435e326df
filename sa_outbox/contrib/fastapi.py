"""Sessions for the functions of a FastAPI application."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlalchemy.ext.asyncio import async_sessionmaker
from sqlalchemy.orm import sessionmaker

from ..errors import ConfigError

try:
    from fastapi import Depends
    from fastapi import params as _params
except ModuleNotFoundError as _error:
    raise ConfigError(
        'sa_outbox.contrib.fastapi needs FastAPI: pip install "fastapi>=0.121"'
    ) from _error

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from fastapi.params import Depends as Dependency
    from sqlalchemy.ext.asyncio import AsyncSession
    from sqlalchemy.orm import Session


def session_of(
    sessions: async_sessionmaker[Any] | sessionmaker[Any],
) -> Dependency:
    """A dependency: a session in a transaction that ends with the function, before the response.

    ::

        DatabaseSession = Annotated[AsyncOutboxSession, session_of(Session)]

        @app.post("/orders")
        async def place_order(product: str, session: DatabaseSession) -> None:
            session.add_event("order.placed", {"product": product})

    When the function returns it is committed, and only then is the response sent: if the commit
    fails the client gets a 500. If the function raises, an ``HTTPException`` included, it is rolled
    back. A ``yield`` dependency of your own ends *after* the response by default, when the client
    has read of a success. Everything in a request that depends on the session of one factory
    gets the same session, however often this is called.

    From a ``sessionmaker`` the session is sync, for functions without ``async``: FastAPI runs them
    in threads. A test replaces ``app.dependency_overrides[session_of(Session).dependency]``.

    Raises :class:`ConfigError` if *sessions* is no factory, or FastAPI is older than 0.121.
    """
    opened: _Sessions | _AsyncSessions
    if isinstance(sessions, async_sessionmaker):
        opened = _AsyncSessions(sessions)
    elif isinstance(sessions, sessionmaker):
        opened = _Sessions(sessions)
    else:
        raise ConfigError(
            "session_of() takes what outbox.async_sessionmaker(engine) or "
            f"outbox.sessionmaker(engine) returns, not {type(sessions).__name__}"
        )
    if "scope" not in _params.Depends.__annotations__:
        raise ConfigError(
            "session_of() needs a newer FastAPI, one that can end a dependency before the response "
            'is sent: pip install "fastapi>=0.121"'
        )
    dependency: Dependency = Depends(opened, scope="function")
    return dependency


class _OfFactory:
    """Equal for the same factory: FastAPI then calls it once for each request."""

    def __init__(self, sessions: object) -> None:
        self._made_by = sessions

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _OfFactory) and other._made_by is self._made_by

    def __hash__(self) -> int:
        return hash((_OfFactory, id(self._made_by)))


class _AsyncSessions(_OfFactory):
    def __init__(self, sessions: async_sessionmaker[Any]) -> None:
        super().__init__(sessions)
        self._sessions = sessions

    async def __call__(self) -> AsyncIterator[AsyncSession]:
        async with self._sessions.begin() as session:
            yield session


class _Sessions(_OfFactory):
    def __init__(self, sessions: sessionmaker[Any]) -> None:
        super().__init__(sessions)
        self._sessions = sessions

    def __call__(self) -> Iterator[Session]:
        with self._sessions.begin() as session:
            yield session
