"""The PostgreSQL of a test run, and databases on it.

One server for the whole run. With pytest-xdist the controller starts it and the workers are told
its address; otherwise it starts when the first test asks for it.
"""

from __future__ import annotations

import os
import secrets
from contextlib import contextmanager
from typing import TYPE_CHECKING

import psycopg
from psycopg import sql
from sqlalchemy import URL, make_url

from sa_outbox.embedded import EmbeddedPostgres

if TYPE_CHECKING:
    from collections.abc import Iterator

ADDRESS_VARIABLE = "SA_OUTBOX_TEST_DATABASE_URL"
"""Environment variable: a superuser's address of a server to use instead."""


class TestServer:
    """The server of this run: the one in the environment, the controller's, or our own."""

    __test__ = False

    def __init__(self, address: str | None = None) -> None:
        self._address = address or os.environ.get(ADDRESS_VARIABLE)
        self._embedded: EmbeddedPostgres | None = None

    def url(self) -> str:
        """Its maintenance database, for libpq. Starts the server if nobody has."""
        if self._address is None:
            self._embedded = EmbeddedPostgres()
            self._embedded.start()
            self._address = self._embedded.url()
        return self._address

    def stop(self) -> None:
        if self._embedded is not None:
            self._embedded.stop()


@contextmanager
def temporary_database(server_url: str, label: str) -> Iterator[URL]:
    """An empty database, dropped at the end whoever is still connected."""
    name = f"test_{label}_{secrets.token_hex(6)}"
    administer(server_url, sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
    try:
        yield make_url(server_url).set(drivername="postgresql", database=name)
    finally:
        drop = sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)")
        administer(server_url, drop.format(sql.Identifier(name)))


def administer(server_url: str, statement: sql.Composed) -> None:
    with psycopg.connect(server_url, autocommit=True) as connection:
        connection.execute(statement)
