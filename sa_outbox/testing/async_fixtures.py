"""An async connection in the loop of its test, for pytest-asyncio and for anyio.

anyio runs any async fixture of a test that is anyio's. pytest-asyncio wants its own decorator, and
to know in which loop: there is a fixture for each.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

import pytest

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, AsyncSession

SCOPES: Final = ("function", "class", "module", "package", "session")


class RolledBack:
    """A connection in a transaction that is rolled back, and the sessions on it."""

    def __init__(self, connection: AsyncConnection) -> None:
        self.connection = connection
        self.sessions: list[AsyncSession] = []


async def rolled_back(_outbox_rollback_async_engine: AsyncEngine) -> AsyncIterator[RolledBack]:
    async with _outbox_rollback_async_engine.connect() as connection:
        transaction = await connection.begin()
        place = RolledBack(connection)
        yield place
        for session in place.sessions:
            await session.close()
        await transaction.rollback()


def fixture_for(request: pytest.FixtureRequest) -> str:
    """The name of the fixture that runs in the loop of the test."""
    if "anyio_backend" in request.fixturenames:
        backend = request.getfixturevalue("anyio_backend")
        name = backend if isinstance(backend, str) else backend[0]
        if name != "asyncio":
            pytest.fail(f"SQLAlchemy's async sessions need asyncio, not {name}", pytrace=False)
        return "_outbox_rolled_back_anyio"
    marker = request.node.get_closest_marker("asyncio")
    if marker is None or not request.config.pluginmanager.hasplugin("asyncio"):
        pytest.fail(
            "an async session needs an async test, run by pytest-asyncio or anyio; in a sync test "
            "use outbox_session or outbox_connection",
            pytrace=False,
        )
    scope = marker.kwargs.get("loop_scope") or marker.kwargs.get("scope")
    return f"_outbox_rolled_back_{scope or _default_scope(request.config)}"


def _default_scope(config: pytest.Config) -> str:
    try:
        return str(config.getini("asyncio_default_test_loop_scope") or "function")
    except (KeyError, ValueError):  # before 0.26
        return "function"


def asyncio_fixtures() -> Any:
    """A plugin with a fixture for each scope of pytest-asyncio's loops."""
    make: Any = import_module("pytest_asyncio").fixture

    class Fixtures:
        pass

    for scope in SCOPES:

        async def in_loop(
            _self: object, _outbox_rollback_async_engine: AsyncEngine
        ) -> AsyncIterator[RolledBack]:
            async for each in rolled_back(_outbox_rollback_async_engine):
                yield each

        name = f"_outbox_rolled_back_{scope}"
        setattr(Fixtures, name, make(loop_scope=scope, name=name)(in_loop))
    return Fixtures()
