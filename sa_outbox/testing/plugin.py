"""The pytest plugin: fixtures for tests of programs that use sa_outbox.

Every import of what a fixture needs is in the fixture: pytest loads this module in any project that
has sa_outbox installed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from sqlalchemy import URL, Connection, Engine
    from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, async_sessionmaker
    from sqlalchemy.orm import sessionmaker

    from sa_outbox.clock import Clock
    from sa_outbox.outbox import Outbox
    from sa_outbox.producer.session import AsyncOutboxSession, OutboxSession

    from .added_events import AddedEvents
    from .async_fixtures import RolledBack
    from .consumer_run import Drain
    from .databases import Databases
    from .handler_rounds import Deliver
    from .server import RunServer

_SERVER = pytest.StashKey["RunServer"]()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addini(
        "sa_outbox", "module:attribute of the Outbox under test, for sa_outbox's fixtures"
    )
    parser.addini(
        "sa_outbox_tables",
        "module:attribute of a MetaData, or of a function that takes a Connection: what creates "
        "the program's own tables in the databases of sa_outbox's fixtures",
    )


def pytest_configure(config: pytest.Config) -> None:
    if config.pluginmanager.hasplugin("asyncio"):
        from .async_fixtures import asyncio_fixtures  # noqa: PLC0415 - if somebody can use them

        config.pluginmanager.register(asyncio_fixtures(), "sa_outbox_asyncio")


def pytest_unconfigure(config: pytest.Config) -> None:
    # Not in a fixture: it may have to wait for other processes, and no test's time limit counts.
    server = config.stash.get(_SERVER, None)
    if server is not None:
        server.stop()


# What the program has


@pytest.fixture(scope="session")
def outbox_app(pytestconfig: pytest.Config) -> Outbox:
    """The Outbox under test. From the setting ``sa_outbox``; or override this fixture."""
    from sa_outbox.consume.loader import load_outbox  # noqa: PLC0415 - see the module's docstring

    target = pytestconfig.getini("sa_outbox")
    if not target:
        pytest.fail(
            'which Outbox? Set sa_outbox = "package.module:outbox" in pytest\'s configuration, or '
            "override the fixture outbox_app",
            pytrace=False,
        )
    return load_outbox(target)


@pytest.fixture(scope="session")
def outbox_tables(pytestconfig: pytest.Config) -> Any:
    """What creates the program's own tables: a ``MetaData``, or a function that takes a
    ``Connection``. From the setting ``sa_outbox_tables``; or override this fixture."""
    target = pytestconfig.getini("sa_outbox_tables")
    if not target:
        return None
    from pkgutil import resolve_name  # noqa: PLC0415 - see the module's docstring

    return resolve_name(target)


# Databases


@pytest.fixture(scope="session")
def outbox_server_url(_outbox_server: RunServer) -> str:
    """The address of the run's PostgreSQL: an embedded one, or that in
    ``SA_OUTBOX_TEST_DATABASE_URL``."""
    return _outbox_server.url()


@pytest.fixture(scope="session")
def _outbox_server(
    pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory
) -> RunServer:
    from .server import RunServer  # noqa: PLC0415 - see the module's docstring

    folder = tmp_path_factory.getbasetemp()
    if hasattr(pytestconfig, "workerinput"):  # a process of pytest-xdist: the folder of all
        folder = folder.parent
    server = pytestconfig.stash[_SERVER] = RunServer(folder / "sa_outbox")
    return server


@pytest.fixture(scope="session")
def _outbox_databases(
    _outbox_server: RunServer, outbox_server_url: str, outbox_app: Outbox, outbox_tables: Any
) -> Iterator[Databases]:
    from .databases import Databases  # noqa: PLC0415 - see the module's docstring

    databases = Databases(_outbox_server, outbox_server_url, outbox_app, outbox_tables)
    yield databases
    databases.drop_all()


@pytest.fixture
def outbox_database_url(_outbox_databases: Databases) -> Iterator[URL]:
    """A database of this test, with all tables: for tests that commit. Set the driver with
    ``.set(drivername="postgresql+psycopg")``."""
    url = _outbox_databases.copy()
    yield url
    _outbox_databases.drop(url)


@pytest.fixture
def outbox_engine(outbox_database_url: URL) -> Iterator[Engine]:
    """An engine for this test's database: for tests that commit."""
    from .databases import sync_engine  # noqa: PLC0415 - see the module's docstring

    engine = sync_engine(outbox_database_url)
    yield engine
    engine.dispose()


@pytest.fixture
def outbox_async_engine(outbox_database_url: URL) -> AsyncEngine:
    """An async engine for this test's database: for tests that commit."""
    from .server import async_engine  # noqa: PLC0415 - see the module's docstring

    return async_engine(outbox_database_url)


# A transaction that is rolled back


@pytest.fixture(scope="session")
def _outbox_rollback_url(_outbox_databases: Databases) -> URL:
    return _outbox_databases.copy()


@pytest.fixture(scope="session")
def _outbox_rollback_engine(_outbox_rollback_url: URL) -> Iterator[Engine]:
    from .databases import sync_engine  # noqa: PLC0415 - see the module's docstring

    engine = sync_engine(_outbox_rollback_url)
    yield engine
    engine.dispose()


@pytest.fixture(scope="session")
def _outbox_rollback_async_engine(_outbox_rollback_url: URL) -> AsyncEngine:
    from .server import async_engine  # noqa: PLC0415 - see the module's docstring

    return async_engine(_outbox_rollback_url)


@pytest.fixture
def outbox_connection(_outbox_rollback_engine: Engine) -> Iterator[Connection]:
    """A connection in a transaction that is rolled back after the test. Bind your own session to
    it, with ``join_transaction_mode="create_savepoint"``."""
    with _outbox_rollback_engine.connect() as connection:
        transaction = connection.begin()
        yield connection
        transaction.rollback()


@pytest.fixture(scope="session")
def _outbox_maker(outbox_app: Outbox) -> sessionmaker[OutboxSession]:
    return outbox_app.sessionmaker(join_transaction_mode="create_savepoint")


@pytest.fixture
def outbox_session(
    outbox_connection: Connection, _outbox_maker: sessionmaker[OutboxSession]
) -> Iterator[OutboxSession]:
    """A session whose commits are rolled back after the test."""
    with _outbox_maker(bind=outbox_connection) as session:
        yield session


@pytest.fixture
async def _outbox_rolled_back_anyio(
    _outbox_rollback_async_engine: AsyncEngine,
) -> AsyncIterator[RolledBack]:
    from .async_fixtures import rolled_back  # noqa: PLC0415 - see the module's docstring

    async for each in rolled_back(_outbox_rollback_async_engine):
        yield each


@pytest.fixture
def _outbox_rolled_back(request: pytest.FixtureRequest) -> RolledBack:
    from .async_fixtures import fixture_for  # noqa: PLC0415 - see the module's docstring

    place: RolledBack = request.getfixturevalue(fixture_for(request))
    return place


@pytest.fixture
def outbox_async_connection(_outbox_rolled_back: RolledBack) -> AsyncConnection:
    """An async connection in a transaction that is rolled back after the test. Bind your own
    session to it, with ``join_transaction_mode="create_savepoint"``."""
    return _outbox_rolled_back.connection


@pytest.fixture(scope="session")
def _outbox_async_maker(outbox_app: Outbox) -> async_sessionmaker[AsyncOutboxSession]:
    return outbox_app.async_sessionmaker(
        join_transaction_mode="create_savepoint", expire_on_commit=False
    )


@pytest.fixture
def outbox_async_session(
    _outbox_rolled_back: RolledBack, _outbox_async_maker: async_sessionmaker[AsyncOutboxSession]
) -> AsyncOutboxSession:
    """An async session whose commits are rolled back after the test."""
    session = _outbox_async_maker(bind=_outbox_rolled_back.connection)
    _outbox_rolled_back.sessions.append(session)
    return session


# What happened


@pytest.fixture
def outbox_events() -> Iterator[AddedEvents]:
    """The events that were added during the test and not rolled back."""
    from .capture import EventCapture  # noqa: PLC0415 - see the module's docstring

    with EventCapture().watching() as events:
        yield events


@pytest.fixture
def outbox_deliver() -> Deliver:
    """``await outbox_deliver(session)`` calls handlers in the session's open transaction; without
    ``await`` for a sync session."""
    from .handler_rounds import deliver  # noqa: PLC0415 - see the module's docstring

    return deliver


@pytest.fixture
def outbox_drain(outbox_app: Outbox) -> Drain:
    """``await outbox_drain(async_engine)`` delivers what is committed, with a real consumer;
    without ``await`` for a sync engine."""
    from functools import partial  # noqa: PLC0415 - see the module's docstring
    from typing import cast  # noqa: PLC0415

    from .consumer_run import drain  # noqa: PLC0415

    return cast("Drain", partial(drain, outbox_app))


@pytest.fixture
def outbox_clock() -> Iterator[Clock]:
    """The clock that everything in this process goes by; back to normal after the test."""
    from sa_outbox.clock import clock  # noqa: PLC0415 - see the module's docstring

    clock.reset()
    yield clock
    clock.reset()
