"""A consumer, sessions and the context of events for a Litestar application."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

from sqlalchemy.ext.asyncio import AsyncSession, async_sessionmaker
from sqlalchemy.orm import Session, sessionmaker

from ..errors import ConfigError
from .asgi import EventContextMiddleware, consuming
from .litestar_commit import CommitBeforeSend, ProvidesSessions

try:
    from litestar.di import Provide
    from litestar.plugins import InitPlugin
except ModuleNotFoundError as _error:
    raise ConfigError(
        'sa_outbox.contrib.litestar needs Litestar: pip install "litestar>=2.23"'
    ) from _error

if TYPE_CHECKING:
    from collections.abc import Callable

    from litestar import Litestar
    from litestar.config.app import AppConfig

    from ..consumer import Consumer


class OutboxPlugin(InitPlugin):
    """A consumer in the application's lifespan, request ids in its events, sessions for it.

    ::

        app = Litestar(
            [place_order],
            plugins=[OutboxPlugin(Consumer(outbox, engine), sessions=Session)],
        )

    *sessions* makes the dependency *session_key*: a session in a transaction, committed when the
    route handler returns and before the response is sent, rolled back if it raises. From a
    ``sessionmaker`` it is sync, for handlers with ``sync_to_thread=True``.

    *alchemy* is the configuration, or the configurations, that ``SQLAlchemyPlugin`` of Advanced
    Alchemy has. Its sessions are committed before a response with a status below 400 is sent. If
    that fails, the request fails: with Advanced Alchemy's own ``autocommit`` the client would get
    the response of success.

    *consumer* starts after the lifespans of all other plugins and stops before them, so it never
    works on an engine that Advanced Alchemy's plugin has disposed of. *exit_on_failure* is that of
    :func:`consuming`; *context* switches :class:`EventContextMiddleware` off.
    """

    def __init__(
        self,
        consumer: Consumer | None = None,
        *,
        sessions: async_sessionmaker[Any] | sessionmaker[Any] | None = None,
        session_key: str = "session",
        alchemy: ProvidesSessions | Sequence[ProvidesSessions] = (),
        context: bool = True,
        exit_on_failure: bool = False,
    ) -> None:
        self._consumer = consumer
        self._sessions = sessions
        self._session_key = session_key
        self._alchemy = alchemy if isinstance(alchemy, Sequence) else (alchemy,)
        self._context = context
        self._exit_on_failure = exit_on_failure

    def on_app_init(self, app_config: AppConfig) -> AppConfig:
        """Called by Litestar."""
        if self._context:
            outermost: Any = EventContextMiddleware  # our Scope is not declared as Litestar's
            app_config.middleware.insert(0, outermost)
        if self._sessions is not None:
            self._add_dependency(app_config, self._sessions)
        # Before the hooks that Advanced Alchemy appends, which close the session.
        app_config.before_send[:0] = [CommitBeforeSend(each) for each in self._alchemy]
        if self._consumer is not None:
            running = partial(_lifespan, self._consumer, exit_on_failure=self._exit_on_failure)
            app_config.plugins.append(_Last(running))
        return app_config

    def _add_dependency(self, app_config: AppConfig, sessions: object) -> None:
        if self._session_key in app_config.dependencies:
            raise ConfigError(
                f"the application has a dependency {self._session_key!r} already: choose another "
                "session_key for OutboxPlugin"
            )
        app_config.dependencies[self._session_key] = Provide(_opened_by(sessions))


def _opened_by(sessions: object) -> Callable[[], Any]:
    if isinstance(sessions, async_sessionmaker):

        async def opened() -> AsyncIterator[AsyncSession]:
            async with sessions.begin() as session:
                yield session

        return opened
    if isinstance(sessions, sessionmaker):

        def opened_in_a_thread() -> Iterator[Session]:
            with sessions.begin() as session:
                yield session

        return opened_in_a_thread
    raise ConfigError(
        "OutboxPlugin(sessions=...) takes what outbox.async_sessionmaker(engine) or "
        f"outbox.sessionmaker(engine) returns, not {type(sessions).__name__}"
    )


@asynccontextmanager
async def _lifespan(
    consumer: Consumer, _: Litestar, *, exit_on_failure: bool
) -> AsyncIterator[None]:
    async with consuming(consumer, exit_on_failure=exit_on_failure):
        yield


class _Last(InitPlugin):
    """Adds a lifespan when every other plugin has added its own.

    Litestar goes through the list while plugins append to it, as Advanced Alchemy's does: whoever
    is at its end is the last.
    """

    def __init__(self, lifespan: Any) -> None:
        self._lifespan = lifespan

    def on_app_init(self, app_config: AppConfig) -> AppConfig:
        if app_config.plugins[-1] is self:
            app_config.lifespan.append(self._lifespan)
        else:
            app_config.plugins.append(_Last(self._lifespan))
        return app_config
