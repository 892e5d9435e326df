"""Databases for migrations: one that is left as it was, or a fresh one for what must commit."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from sqlalchemy import create_engine

from tests.support.server import temporary_database

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from sqlalchemy import URL, Connection, Engine


@pytest.fixture(scope="session")
def _empty_engine(server_url: str) -> Iterator[Engine]:
    with temporary_database(server_url, "migration") as url:
        engine = create_engine(url.set(drivername="postgresql+psycopg"))
        yield engine
        engine.dispose()


@pytest.fixture
def connection(_empty_engine: Engine) -> Iterator[Connection]:
    """In an empty database; what is done is rolled back, roles too. Do not commit."""
    with _empty_engine.connect() as connection:
        yield connection
        connection.rollback()


@pytest.fixture
def url(new_database: Callable[[], URL]) -> URL:
    """A fresh database, without a driver."""
    return new_database()


@pytest.fixture
def address(url: URL) -> str:
    """The fresh database, as a user types it."""
    return url.render_as_string(hide_password=False)


@pytest.fixture
def engine(url: URL) -> Iterator[Engine]:
    """On the fresh database."""
    engine = create_engine(url.set(drivername="postgresql+psycopg"))
    yield engine
    engine.dispose()
