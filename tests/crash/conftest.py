"""A server of its own, since its processes are stopped here, and databases for writers and readers.

The databases are copies of one that is migrated once. So an outbox in another database has the
same oid as ours: who looks for locks and forgets to ask for the database finds the wrong ones.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

import psycopg
import pytest
from psycopg import sql
from sqlalchemy import make_url

from sa_outbox import schema
from sa_outbox.embedded import EmbeddedPostgres
from sa_outbox.settings import Names
from tests.crash import seen
from tests.support import writers
from tests.support.server import administer

SETTINGS = {
    "max_prepared_transactions": "64",
    # Writers take their aggregates in any order. Found late, a deadlock stops a tenth of them for
    # a second, and nothing is learned from it.
    "deadlock_timeout": "50ms",
}


@pytest.fixture(scope="session")
def crash_server() -> Iterator[str]:
    """A superuser's address of the maintenance database."""
    with EmbeddedPostgres(settings=SETTINGS) as server:
        yield server.url()


@pytest.fixture(scope="session")
def template(crash_server: str) -> str:
    """Name of a database with the outbox and the tables of the writers and of the readers."""
    name = "template_crash"
    administer(crash_server, sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
    address = _address(crash_server, name)
    schema.transact(address, lambda connection: schema.migrate(connection, Names()))
    with psycopg.connect(address) as connection:
        connection.execute(writers.TABLES)
        connection.execute(seen.TABLE)
    return name


@pytest.fixture
def new_copy(crash_server: str, template: str) -> Iterator[Callable[[], str]]:
    """Makes databases with everything in place, dropped after the test; their addresses."""
    with ExitStack() as copies:
        yield lambda: copies.enter_context(_copy(crash_server, template))


@pytest.fixture
def dsn(new_copy: Callable[[], str]) -> str:
    """The database of the test."""
    return new_copy()


@pytest.fixture
def other_dsn(new_copy: Callable[[], str]) -> str:
    """Another database of the same server, with an outbox too."""
    return new_copy()


@contextmanager
def _copy(server: str, template: str) -> Iterator[str]:
    name = f"crash_{secrets.token_hex(6)}"
    make = sql.SQL("CREATE DATABASE {} TEMPLATE {}")
    administer(server, make.format(sql.Identifier(name), sql.Identifier(template)))
    try:
        yield _address(server, name)
    finally:
        _roll_back_prepared(_address(server, name))
        drop = sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)")
        administer(server, drop.format(sql.Identifier(name)))


def _roll_back_prepared(address: str) -> None:
    """What a test left behind when it failed: no database is dropped under it, by no force."""
    with psycopg.connect(address, autocommit=True) as connection:
        left = connection.execute(
            "SELECT gid FROM pg_prepared_xacts WHERE database = current_database()"
        ).fetchall()
        for (name,) in left:
            connection.execute(sql.SQL("ROLLBACK PREPARED {}").format(sql.Literal(name)))


def _address(server: str, database: str) -> str:
    return make_url(server).set(database=database).render_as_string(hide_password=False)
